"""`stringline-data keyposes` and `stringline-data clouds`."""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from textwrap import fill
from typing import Any, TypeVar

import numpy as np
from omegaconf import DictConfig
from tqdm import tqdm

from stringline.datasets.files.atomic import write_file
from stringline.datasets.loading.keypose_modes import (
    EventModes,
    KeyposeCounts,
    Mode,
    ModeSettings,
    count_keyposes,
)
from stringline.datasets.loading.sampler import split_names
from stringline.datasets.loading.window_settings import KeyposeSettings
from stringline.datasets.loading.windows import Windows
from stringline.datasets.loading.workspace_clouds import (
    CloudMaker,
    CloudSettings,
    cache_folder,
    check_cloud_cameras,
    cloud_maker,
)
from stringline.datasets.store.store import EpisodeStore, format_size

SHOWN_SEQUENCES = 10
WIDTH = 100
SettingsT = TypeVar("SettingsT")


def count_store(config: DictConfig) -> None:
    """Reports the keyposes of a store.

    Raises:
        ValueError: Episodes have no keyposes; the report is written before.
    """
    store = EpisodeStore.open(config.store)
    episodes = store.episodes()
    if not episodes:
        raise ValueError(f"{store.path} has no episodes. Record some with stringline-collect.")
    settings = _settings(KeyposeSettings, config)
    modes = _settings(ModeSettings, config)
    maker, blind = _scene_maker(store, config)
    shown = tqdm(episodes, desc="keyposes", unit="episode", mininterval=0.5)
    counts = count_keyposes(shown, settings, modes, maker)
    sys.stdout.write(f"{store.path}: ")
    sys.stdout.write("".join(f"{line}\n" for line in report(counts, modes, blind)))
    if config.output is not None:
        plain = {"store": str(store.path), "settings": asdict(settings) | asdict(modes)}
        text = json.dumps(plain | counts.to_dict(), indent=1, allow_nan=False)
        Path(config.output).parent.mkdir(parents=True, exist_ok=True)
        write_file(Path(config.output), f"{text}\n".encode())
        sys.stdout.write(f"Written to {config.output}.\n")
    if counts.without:
        raise ValueError(_without(store, counts))


def _scene_maker(store: EpisodeStore, config: DictConfig) -> tuple[CloudMaker | None, str]:
    """Returns what makes clouds of the scene, or why there is nothing."""
    episodes = store.episodes()
    contract = episodes[0].attributes.contract
    if config.cameras is not None:
        return cloud_maker(episodes, list(config.cameras), CloudSettings()), ""
    seeing = []
    for camera in contract.cameras:
        try:
            check_cloud_cameras([camera])
            seeing.append(camera.name)
        except ValueError:
            continue
    if not seeing or not contract.arms:
        return None, "no camera has depth and calibration"
    return cloud_maker(episodes, seeing, CloudSettings()), ""


def report(counts: KeyposeCounts, modes: ModeSettings, blind: str = "") -> Iterator[str]:
    """Yields the lines of the report.

    Args:
        counts: The keyposes of a store.
        modes: When keyposes are alike.
        blind: Why modes are told apart without the scene.
    """
    total = len(counts.steps) + len(counts.without)
    number = sum(map(len, counts.steps.values()))
    yield f"{number} keyposes in {len(counts.steps)} of {total} episodes."
    if counts.without:
        yield ""
        yield "Episodes without keyposes"
        for name, reason in counts.without.items():
            yield f"   {name}: {_short(reason)}"
    if not number:
        return
    yield ""
    yield "Sequences of events"
    for text, names in list(counts.sequences.items())[:SHOWN_SEQUENCES]:
        yield f"{len(names):6}  {_share(len(names), len(counts.steps))}  {text}"
    if (further := len(counts.sequences) - SHOWN_SEQUENCES) > 0:
        yield f"        and {further} other sequences, see output=FILE.json"
    yield ""
    yield _explained(modes, blind)
    yield (
        f"{'event, mode':<26}{'count':>6}{'share':>7}{'time, s':>9}{'descent':>9}{'height, mm':>12}"
        f"{'scene, mm':>18}  typical episode"
    )
    for event in counts.events:
        yield from _event_lines(event)


def _explained(modes: ModeSettings, blind: str) -> str:
    """Returns what a mode is."""
    distance = f"{1e3 * modes.mode_m:g} mm"
    scene = (
        f" alone, not by the place of a grasp on an object: {blind}."
        if blind
        else f" and by the scene ({distance}): where the mean of the points around the gripper is "
        "in its frame, before the event."
    )
    return fill(
        "Modes are ways in which an event happens, whatever the place of the scene and its turn "
        f"about the vertical. They are told apart by the tilt ({modes.mode_deg:g} degrees) and the "
        f"height ({distance}) of the gripper{scene}",
        WIDTH,
    )


def _event_lines(event: EventModes) -> Iterator[str]:
    yield f"{event.event:<26}{len(event):>6}{'':>7}{np.median(event.times_s):>9.1f}"
    for number, mode in enumerate(event.modes, 1):
        yield _mode_line(number, mode, len(event))
    if event.others:
        share = _share(len(event.others), len(event))
        yield f"{'   like no mode':<26}{len(event.others):>6}{share:>7}"


def _mode_line(number: int, mode: Mode, total: int) -> str:
    time = np.median([each.time_s for each in mode.members])
    descent = _numbers(mode.mean("descent_deg"), "deg")
    height = _numbers(1e3 * mode.mean("height"))
    scene = " | ".join(_numbers(each, sign=True) for each in 1e3 * mode.mean("scene"))
    return (
        f"{f'   mode {number}':<26}{len(mode):>6}{_share(len(mode), total):>7}{time:>9.1f}"
        f"{descent:>9}{height:>12}{scene:>18}  {mode.members[0].episode}"
    )


def _numbers(values: Any, unit: str = "", *, sign: bool = False) -> str:
    shown = [("none" if np.isnan(v) else f"{v:{'+' if sign else ''}.0f}") for v in values]
    shown = ["none"] if set(shown) == {"none"} else shown
    return " ".join(f"{text} {unit}".strip() if text != "none" else text for text in shown)


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:3.0f} %"


def _short(reason: str) -> str:
    """Returns a reason without the episode in front and the ways out behind."""
    return reason.partition(": ")[2].partition(" Set ")[0] or reason


def _without(store: EpisodeStore, counts: KeyposeCounts) -> str:
    """Returns the message about episodes without keyposes."""
    names = list(counts.without)
    total = len(names) + len(counts.steps)
    reason = counts.without[names[0]]
    if not counts.steps:
        return f"None of {total} episodes has keyposes. {reason}"
    listed = ",".join(f"{name.rpartition('.')[0]}.*" for name in names)
    return (
        f"{len(names)} of {total} episodes have no keyposes, so a training with policy=keyposes "
        f"does not begin. {reason} Or leave them out: stringline-data delete store={store.path} "
        f"'episodes=[{listed}]'"
    )


def make_clouds(config: DictConfig) -> None:
    """Makes the point clouds of a store that a training reads."""
    store = EpisodeStore.open(config.store)
    settings = _settings(CloudSettings, config)
    events = _settings(KeyposeSettings, config)
    parts = split_names(store, store.names(), config.held_out)
    if not parts[0]:
        raise ValueError(f"{store.path} has no episodes. Record some with stringline-collect.")
    cameras = None if config.cameras is None else list(config.cameras)
    maker = cloud_maker([store.episode(name) for name in parts[0]], cameras, settings)
    start = time.perf_counter()
    chosen = [camera.name for camera in maker.cameras]
    count = 0
    for names in parts:
        if names:
            # The windows of a training, whose making completes the cache.
            count += len(
                Windows(store, chunk=1, names=names, cameras=chosen, events=events, clouds=maker)
            )
    folder = cache_folder() / maker.digest
    size = sum(file.stat().st_size for file in folder.glob("*.npy"))
    sys.stdout.write(
        f"{folder}: {count} clouds of {sum(map(len, parts))} episodes, {format_size(size)}, in "
        f"{time.perf_counter() - start:.1f} s. Trainings of this store with these settings use "
        "them.\n"
    )


def _settings(kind: type[SettingsT], config: DictConfig) -> SettingsT:
    """Returns settings whose fields are options of the command."""
    known: Any = kind
    return kind(**{field.name: config[field.name] for field in fields(known)})
