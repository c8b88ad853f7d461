"""Common parts of exports: atomic results, a single contract, one image per step."""

import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from tqdm import tqdm

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.files.atomic import check_space, explained_full_disk, sync, sync_tree
from stringline.datasets.formats.checks import SAME_TIME_S
from stringline.datasets.formats.foreign import SkippedFields
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore

OF_CAMERAS = ("rgb", "depth", "intrinsics", "T_base_camera")


@contextmanager
def complete(path: Path, expected_bytes: int) -> Iterator[Path]:
    """Yields a temporary path for a file or folder that becomes `path` after the block.

    The parent folder of the temporary path may be used as well and is removed afterwards, as are
    the remains of a killed export. `expected_bytes` is an approximate upper limit of the size.

    Raises:
        ValueError: `path` exists.
        NoSpaceError: The disk is too full; nothing is left at `path`.
    """
    if path.exists():
        raise ValueError(
            f"{path} exists; an export creates a new data set. Remove it or choose another name."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    check_space(path.parent, expected_bytes)
    workspace = path.with_name(f".{path.name}.partial")
    shutil.rmtree(workspace, ignore_errors=True)
    try:
        with explained_full_disk(path):
            workspace.mkdir()
            yield workspace / path.name
            sync_tree(workspace)
            (workspace / path.name).rename(path)
            sync(path.parent)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def episodes_of(store: EpisodeStore) -> list[StoredEpisode]:
    """Opens all episodes, and checks that there are any and that they have one contract."""
    episodes = store.episodes()
    if not episodes:
        raise ValueError(f"There are no episodes in {store.path} to export.")
    common = episodes[0].attributes.contract
    for episode in episodes:
        if why := common.differences(episode.attributes.contract):
            raise ValueError(
                f"Episode {episode.name} does not fit {episodes[0].name}; a data set has a single "
                f"contract. {' '.join(why)}"
            )
    return episodes


def with_progress(episodes: list[StoredEpisode]) -> Iterator[tuple[int, StoredEpisode]]:
    """Yields episodes with their numbers and shows a progress bar."""
    return enumerate(tqdm(episodes, desc="exporting", unit="episode", dynamic_ncols=True))


def chosen_cameras(contract: Contract, cameras: Mapping[str, str] | None) -> Mapping[str, str]:
    """Returns the exported name of each camera to export; by default all cameras."""
    offered = [camera.name for camera in contract.cameras]
    for name in cameras or ():
        if name not in offered:
            raise unknown_name("camera", name, offered)
    return cameras or {name: name for name in offered}


def images_of(episode: StoredEpisode, kind: str, camera: str) -> Iterator[Array]:
    """Yields the image of each step; those of a slower camera repeat."""
    images = episode.arrays[f"{kind}/{camera}"]
    for frame in episode.arrays[f"frame/{camera}"].tolist():
        yield images[frame]


def size_of_images(
    episodes: list[StoredEpisode], cameras: Mapping[str, str], *, depth: bool
) -> int:
    """Returns the size of all images in bytes, with one image per step and camera."""
    contract = episodes[0].attributes.contract
    found = [contract.camera(name) for name in cameras]
    per_step = sum(c.height * c.width * (3 + 2 * (depth and c.depth is not None)) for c in found)
    return per_step * sum(episode.steps for episode in episodes)


def common_keys(episodes: Sequence[StoredEpisode]) -> list[str]:
    """Returns the keys of the arrays that all episodes have, with one type and shape of a row."""
    first, *others = (episode.entries for episode in episodes)
    return [
        key
        for key, entry in first.items()
        if all(
            key in each and (each[key].shape[1:], each[key].dtype) == (entry.shape[1:], entry.dtype)
            for each in others
        )
    ]


def skipped_fields(
    episodes: Sequence[StoredEpisode], held: Collection[str], cameras: Collection[str]
) -> SkippedFields:
    """Counts the episodes with each kind of data that an export does not contain.

    Args:
        episodes: The exported episodes.
        held: What the export contains: keys, their part before the name of a camera or an arm, and
            `success`, `instruction` and `time`.
        cameras: Names of the exported cameras.
    """
    return Counter(
        (name, "no place in the format")
        for episode in episodes
        for name in sorted(_names(episode, cameras) - set(held))
    )


def _names(episode: StoredEpisode, cameras: Collection[str]) -> set[str]:
    """Returns the kinds of data of an episode, as `held` of `skipped_fields` names them."""
    attributes = episode.attributes
    there = {"success": attributes.success is not None, "instruction": attributes.instruction}
    found = {name for name, value in there.items() if value}
    found |= {f"attribute {name}" for name in attributes.extra}
    time = episode.arrays["time"]
    off = time - time[0] - np.arange(len(time)) / attributes.contract.control_hz
    # Times that follow from the rate are not lost.
    regular = {"time"} if np.abs(off).max() < SAME_TIME_S else set[str]()
    for key in episode.entries:
        kind, _, name = key.partition("/")
        if (kind in OF_CAMERAS and name in cameras) or kind == "T_base_gripper":
            found.add(kind)
        elif kind in ("rgb", "joints", "sim", "series") or not name:
            found.add(key)
    return found - regular
