"""What every export shares: it appears as a whole, holds one contract, and shows an image at every step."""

import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from tqdm import tqdm

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.files.atomic import explained_full_disk, require_space, sync, sync_tree
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore

_log = logging.getLogger(__name__)


@contextmanager
def complete(path: Path, expected_bytes: int) -> Iterator[Path]:
    """Gives a place to write to, which gets the name `path` when the block ends without an error.

    What a killed export left behind is removed.

    Args:
        path: Where the result, a file or a folder, is to be.
        expected_bytes: About how much will be written, at most.

    Yields:
        Where to write the result; nothing is there yet. The folder around it may be used too, and
        goes away.

    Raises:
        ValueError: There is something at `path`.
        NoSpaceError: The disk is too full; nothing stays behind.
    """
    if path.exists():
        raise ValueError(
            f"{path} exists; an export makes a new data set. Remove it or choose another name."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    require_space(path.parent, expected_bytes)
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
    """Opens all episodes, which must have one contract.

    Raises:
        ValueError: There are none, or their contracts differ.
    """
    episodes = store.episodes()
    if not episodes:
        raise ValueError(f"There are no episodes in {store.path} to export.")
    common = episodes[0].attributes.contract
    for episode in episodes:
        if (contract := episode.attributes.contract) != common:
            why = " ".join(common.misfits(contract)) or "Their cameras differ."
            raise ValueError(
                f"Episode {episode.name} does not fit {episodes[0].name}; one data set holds one "
                f"kind. {why}"
            )
    return episodes


def with_progress(episodes: list[StoredEpisode]) -> Iterator[tuple[int, StoredEpisode]]:
    """Yields episodes with their numbers, and shows how far it is."""
    return enumerate(tqdm(episodes, desc="exporting", unit="episode", dynamic_ncols=True))


def chosen_cameras(contract: Contract, cameras: Mapping[str, str] | None) -> Mapping[str, str]:
    """Returns the cameras to export, each with the name it gets.

    Raises:
        ValueError: One does not exist.
    """
    offered = [camera.name for camera in contract.cameras]
    for name in cameras or ():
        if name not in offered:
            raise unknown_name("camera", name, offered)
    return cameras or {name: name for name in offered}


def images_of(episode: StoredEpisode, kind: str, camera: str) -> Iterator[Array]:
    """Yields the image that each step saw; a camera slower than the steps shows one several times."""
    images = episode.arrays[f"{kind}/{camera}"]
    for frame in episode.arrays[f"frame/{camera}"].tolist():
        yield images[frame]


def size_of_images(
    episodes: list[StoredEpisode], cameras: Mapping[str, str], *, depth: bool
) -> int:
    """Returns the bytes of all images when every step has one."""
    contract = episodes[0].attributes.contract
    found = [contract.camera(name) for name in cameras]
    per_step = sum(c.height * c.width * (3 + 2 * (depth and c.depth is not None)) for c in found)
    return per_step * sum(episode.steps for episode in episodes)


def report_left_out(contract: Contract, held: set[str]) -> None:
    """Logs what of a contract the format has no place for.

    Args:
        contract: Of the episodes.
        held: Which of `depth`, `geometry`, `poses` the format holds.
    """
    present = {
        "depth": any(camera.depth for camera in contract.cameras),
        "geometry": any(camera.has_geometry for camera in contract.cameras),
        "poses": bool(contract.arms),
    }
    words = {
        "depth": "depth",
        "geometry": "intrinsics and poses of the cameras",
        "poses": "poses of the grippers",
    }
    lost = [words[name] for name, there in present.items() if there and name not in held]
    if lost:
        _log.info("The format has no place for: %s.", "; ".join(lost))


def float_rows(array: Array) -> Array:
    """Returns numbers (T, D) as contiguous float32."""
    return np.ascontiguousarray(array, np.float32)
