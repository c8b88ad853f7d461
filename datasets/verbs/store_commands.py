"""The verbs of `stringline-data` that edit, copy and check episode stores.

Edits: trim, delete, split, merge, relabel, filter, calibrate. Copies: cache, resample, depth.
Checks: verify.
"""

import logging
import os
import sys
import time
from pathlib import Path

import numpy as np
from hydra.utils import instantiate
from numpy.typing import NDArray
from omegaconf import DictConfig

from stringline.datasets.cameras.camera_calibration import CameraCalibration
from stringline.datasets.command.application import report_next
from stringline.datasets.contract.argument_checks import printable
from stringline.datasets.contract.contract import Array
from stringline.datasets.editing.derived_stores import (
    Conditions,
    DepthEstimation,
    Resolution,
    cache,
    estimate_depth,
    filter_store,
    merge,
    split_store,
)
from stringline.datasets.editing.edit import (
    calibrate,
    delete,
    relabel,
    scaled_intrinsics,
    select,
    split_episode,
    trim,
)
from stringline.datasets.editing.rate_change import RateChange, resample
from stringline.datasets.images.image_store import ImageStore, is_image_store
from stringline.datasets.store.store import (
    EpisodeStore,
    describe_leftover,
    format_size,
    store_size,
    verify_store,
)
from stringline.datasets.store.transactions import trash_of


def trim_episodes(config: DictConfig) -> None:
    """Replaces episodes by parts of them."""
    store = EpisodeStore.open(config.store)
    names = select(store, _as_list(config.episodes))
    _print_replaced(store, names, trim(store, names, from_s=config.from_s, to_s=config.to_s))


def delete_episodes(config: DictConfig) -> None:
    """Moves episodes to the trash."""
    store = EpisodeStore.open(config.store)
    names = select(store, _as_list(config.episodes))
    delete(store, names)
    _print(
        f"{len(names)} episodes moved to {trash_of(store.path)}; {len(store)} are left in "
        f"{store.path}."
    )


def split(config: DictConfig) -> None:
    """Splits an episode or a store."""
    store = EpisodeStore.open(config.store)
    if (config.episode is None) == (config.parts is None):
        raise ValueError(
            "Set parts={train: 0.9, validation: 0.1} to split the store, or episode=... and "
            "at_s=[...] to split one episode."
        )
    if config.episode is not None:
        names = select(store, [config.episode])
        if len(names) != 1:
            raise ValueError(
                f"Only one episode can be split at a time; got {len(names)}: "
                f"{', '.join(names[:5])}."
            )
        _print_replaced(
            store, names, split_episode(store, names[0], [float(at) for at in config.at_s])
        )
        return
    outputs = {
        Path(f"{config.output}_{part}"): float(share) for part, share in config.parts.items()
    }
    for created in split_store(store, outputs, seed=config.seed):
        _print_created(created)


def merge_stores(config: DictConfig) -> None:
    """Merges several stores into a new one."""
    _print_created(
        merge([EpisodeStore.open(path) for path in _as_list(config.stores)], Path(config.output))
    )


def relabel_episodes(config: DictConfig) -> None:
    """Replaces attributes of episodes."""
    store = EpisodeStore.open(config.store)
    names = select(store, _as_list(config.episodes))
    labels = {key: config[key] for key in ("success", "instruction", "task", "source")}
    _print_replaced(store, names, relabel(store, names, **labels))


def filter_episodes(config: DictConfig) -> None:
    """Creates a store of the episodes that meet the conditions."""
    wanted = Conditions(
        **{key: config[key] for key in ("success", "task", "source", "shortest_s", "longest_s")}
    )
    _print_created(filter_store(EpisodeStore.open(config.store), Path(config.output), wanted))


def _as_list(value: object) -> list[str]:
    """Returns a list, also for a single text."""
    if isinstance(value, str):
        return [value]
    return [str(entry) for entry in value]  # type: ignore[attr-defined]


def _print(line: str) -> None:
    """Prints a line; names in it come from data."""
    sys.stdout.write(f"{printable(line)}\n")


def _print_replaced(store: EpisodeStore, old: list[str], new: list[str]) -> None:
    _print(
        f"{len(old)} episodes of {store.path} replaced by {len(new)}; the old ones are in "
        f"{trash_of(store.path)}."
    )
    for name in new:
        _print(f"  {name}")


def _print_created(store: EpisodeStore) -> None:
    _print(
        f"{store.path}: {len(store)} episodes, {format_size(store_size(store))}; on the same disk "
        "their arrays are shared."
    )


_log = logging.getLogger(__name__)


def calibrate_episodes(config: DictConfig) -> None:
    """Adds or replaces the calibration of episodes, and names the command that checks it."""
    store = EpisodeStore.open(config.store)
    chosen = [config.episodes] if isinstance(config.episodes, str) else list(config.episodes)
    names = select(store, chosen)
    calibration = CameraCalibration.read(Path(config.cameras), tuple(config.uncalibrated))
    first = store.episode(names[0])
    new = calibrate(store, names, calibration)
    for sentence in scaled_intrinsics(first, calibration):
        _log.info("%s", sentence)
    sys.stdout.write(
        f"{len(new)} episodes of {store.path} have the calibrations of "
        f"{', '.join(calibration.cameras)}; the old episodes are in {trash_of(store.path)}.\n"
    )
    contract = store.episode(new[0]).attributes.contract
    compared = [camera for camera in contract.cameras if camera.depth and camera.has_geometry]
    check = {"check": True} if len(compared) > 1 else {}
    report_next("stringline-view", {"store": str(config.store), **check})


def cache_store(config: DictConfig) -> None:
    """Creates or completes the training copy of a store."""
    store = EpisodeStore.open(config.store)
    cameras = None if config.cameras is None else list(config.cameras)
    resolution = Resolution(config.height, config.width, cameras, config.depth_method)
    expected = sum(resolution.size(episode) for episode in store.episodes())
    whole = format_size(store_size(store))
    sys.stdout.write(
        f"{store.path}: {len(store)} episodes, {whole}; the training copy will take "
        f"{format_size(expected)}.\n"
    )
    start = time.perf_counter()
    copy = cache(
        store, Path(config.output), resolution, workers=config.workers or os.cpu_count() or 1
    )
    seconds = time.perf_counter() - start
    sys.stdout.write(
        f"{copy.path}: {len(copy)} episodes, {format_size(store_size(copy))}, in {seconds:.1f} s.\n"
    )


def resample_store(config: DictConfig) -> None:
    """Creates or completes a copy of a store at another rate."""
    store = EpisodeStore.open(config.store)
    change = RateChange(
        config.rate_hz, config.relative, config.largest_gap_s, tuple(_as_list(config.leave_out))
    )
    copy = resample(
        store, Path(config.output), change, workers=config.workers or os.cpu_count() or 1
    )
    rates = sorted({each.attributes.contract.control_hz for each in store.episodes()})
    steps = [sum(each.steps for each in one.episodes()) for one in (store, copy)]
    _print(
        f"{copy.path}: {len(copy)} episodes, {steps[1]} steps at {change.rate_hz:g} Hz, from "
        f"{steps[0]} at {', '.join(f'{rate:g}' for rate in rates)} Hz."
    )


def estimate_depth_of_store(config: DictConfig) -> None:
    """Creates or completes a copy of a store with estimated depth."""
    store = EpisodeStore.open(config.store)
    cameras = None if config.cameras is None else [str(name) for name in config.cameras]
    settings = {
        key: config[key] for key in ("replace_depth", "depth_unit_m", "farthest_m", "batch")
    }
    # Checks the settings before a model is loaded.
    planned = DepthEstimation(_not_yet, str(config.model), cameras, **settings)
    expected = sum(planned.size(episode) for episode in store.episodes())
    sys.stdout.write(
        f"{store.path}: {len(store)} episodes; their depth will take {format_size(expected)}.\n"
    )
    estimation = DepthEstimation(
        instantiate(config.estimator), str(config.model), cameras, **settings
    )
    start = time.perf_counter()
    copy = estimate_depth(store, Path(config.output), estimation)
    seconds = time.perf_counter() - start
    sys.stdout.write(
        f"{copy.path}: {len(copy)} episodes with estimated depth, after {seconds:.1f} s.\n"
    )


def _not_yet(images: Array) -> NDArray[np.float32]:
    raise AssertionError("Sizes are known without the model.")


def verify(config: DictConfig) -> None:
    """Reports the damage of a store, and sets damaged episodes aside if configured."""
    if is_image_store(config.store):
        _verify_images(ImageStore(config.store), set_aside=config.set_aside)
        return
    store = EpisodeStore.open(config.store)
    damage = verify_store(store)
    for sentence in (sentence for sentences in damage.values() for sentence in sentences):
        sys.stdout.write(f"{printable(sentence)}\n")
    for left in store.leftovers():
        sys.stdout.write(f"{describe_leftover(left)} The next recording removes it.\n")
    if damage and config.set_aside:
        delete(store, list(damage))
        raise ValueError(
            f"{len(damage)} damaged episodes moved to {trash_of(store.path)}; {len(store)} intact "
            "episodes remain."
        )
    if damage:
        advice = f"Set them aside: stringline-data verify store={store.path} set_aside=true"
        raise ValueError(
            f"{len(damage)} of {len(store)} episodes in {store.path} are damaged; the others can "
            f"be used. {advice}"
        )
    sys.stdout.write(f"All {len(store)} episodes in {store.path} are intact.\n")


def _verify_images(store: ImageStore, *, set_aside: bool) -> None:
    if set_aside:
        raise ValueError(f"{store.path} has no episodes that set_aside could move.")
    if damaged := store.damaged():
        raise ValueError(f"{store.path} is damaged: {', '.join(damaged)} have changed.")
    sys.stdout.write(f"All {len(store)} {store.kind} in {store.path} are intact.\n")
