"""Writing diffusion_policy's replay buffer: zarr format 2, in a folder or a zip file."""

import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract import Array
from stringline.datasets.episode import StoredEpisode
from stringline.datasets.formats import exporting
from stringline.datasets.formats.libraries import optional_library
from stringline.datasets.formats.replay_cameras import UNIT_ATTRIBUTE
from stringline.datasets.store import EpisodeStore

CHUNK_BYTES = 2 * 2**20


class DiffusionPolicyWriter:
    """Writes `data/state`, `data/action`, `data/timestamp` in the contract's units, `data/<camera>` and its `_depth`."""

    def __init__(self, *, cameras: Mapping[str, str] | None = None) -> None:
        """Sets how it is written.

        Args:
            cameras: Cameras to write, each with the name of its series; None writes all under their own names.
        """
        self._cameras = cameras

    def write(self, store: EpisodeStore, path: Path) -> None:
        """Writes a folder, or a zip file where the name ends in `.zip`.

        Raises:
            ValueError: The episodes have different contracts, or there is something at `path`.
            NoSpaceError: The disk is full; nothing stays behind.
        """
        episodes = exporting.episodes_of(store)
        contract = episodes[0].attributes.contract
        cameras = exporting.chosen_cameras(contract, self._cameras)
        taken = {"state", "action", "timestamp"} & set(cameras.values())
        if taken:
            raise ValueError(f"The series {sorted(taken)[0]!r} is taken; give the camera another name, target.cameras={{...}}.")
        exporting.report_left_out(contract, {"depth"})
        size = exporting.size_of_pictures(episodes, cameras, depth=True)
        zipped = path.suffix == ".zip"
        with exporting.complete(path, (1 + zipped) * size) as result:
            folder = result.with_name("buffer") if zipped else result
            _fill(folder, episodes, cameras)
            if zipped:
                _zip(folder, result)


def _fill(root: Path, episodes: list[StoredEpisode], cameras: Mapping[str, str]) -> None:
    """Writes the groups and every series, one after the other."""
    group = optional_library("zarr").open_group(root, mode="w", zarr_format=2)
    ends = np.cumsum([episode.steps for episode in episodes]).astype(np.int64)
    total = int(ends[-1])
    contract = episodes[0].attributes.contract
    numbers = {"timestamp": "time", "action": "action", **({"state": "joints/position"} if contract.joints else {})}
    for key, source in numbers.items():
        _write(group, f"data/{key}", total, (episode.arrays[source] for _, episode in enumerate(episodes)))
    for name, new in cameras.items():
        _write(group, f"data/{new}", total, _shown(episodes, "rgb", name))
        if contract.camera(name).depth is not None:
            _write(group, f"data/{new}_depth", total, _shown(episodes, "depth", name))
            group[f"data/{new}_depth"].attrs[UNIT_ATTRIBUTE] = contract.camera(name).depth_unit_m
    _write(group, "meta/episode_ends", len(ends), [ends])


def _shown(episodes: list[StoredEpisode], kind: str, camera: str) -> Iterator[Array]:
    for _, episode in exporting.with_progress(episodes):
        for picture in exporting.pictures_of(episode, kind, camera):
            yield picture[None]


def _write(group: Any, key: str, rows: int, parts: Iterable[Array]) -> None:
    """Writes an array chunk by chunk, whatever the lengths of the parts (n, ...)."""
    array, waiting, written = None, [], 0
    for part in parts:
        if array is None:
            array = _created(group, key, (rows, *part.shape[1:]), part.dtype)
        waiting.append(part)
        block = array.chunks[0]
        while sum(map(len, waiting)) >= block:
            joined = np.concatenate(waiting)
            array[written : written + block] = joined[:block]
            waiting, written = [joined[block:]], written + block
    rest = np.concatenate(waiting)
    if array is not None and len(rest):
        array[written:] = rest


def _created(group: Any, key: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    row = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
    codecs = optional_library("numcodecs")
    return group.create_array(
        key,
        shape=shape,
        dtype=dtype,
        chunks=(max(1, min(shape[0], CHUNK_BYTES // row)), *shape[1:]),
        compressors=codecs.Blosc(cname="zstd", clevel=5, shuffle=codecs.Blosc.BITSHUFFLE),
        # Else a chunk of zeros is left out, and cannot be told from one that was lost.
        config={"write_empty_chunks": True},
    )


def _zip(folder: Path, path: Path) -> None:
    """Packs a folder, its chunks uncompressed, for they are already."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(folder).as_posix())
