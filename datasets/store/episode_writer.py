"""Writer of an episode: steps go to disk as they are added, and `commit` publishes the episode."""

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from stringline.datasets.contract.contract import (
    OPTIONAL_STEP_KEYS,
    Array,
    Contract,
    Observation,
    check_action,
    check_episode,
    check_observation,
)
from stringline.datasets.files.atomic import (
    check_space,
    explained_full_disk,
    link_or_copy,
    lock_folder,
    sync,
    sync_tree,
    write_all,
)
from stringline.datasets.store.episode import (
    EpisodeAttributes,
    MappedArrays,
    StoredEpisode,
    write_metadata,
)
from stringline.datasets.store.zarr_layout import (
    ROWS_FILE,
    ArrayEntry,
    array_name,
    as_bytes,
    chunk_file,
    crc32,
    crc32_of_rows,
    little_endian,
)

OPEN_PREFIX = ".open-"
NEW_PREFIX = ".new-"


class _Series:
    """An array that grows along its first axis, in its chunk file."""

    def __init__(self, path: Path, row: tuple[int, ...], dtype: str) -> None:
        self.row = row
        self.dtype = dtype
        self.rows = 0
        self.crc = 0
        self.row_crcs = bytearray()
        path.parent.mkdir(parents=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def extend(self, rows: Array) -> None:
        write_all(self._file, as_bytes(rows))
        self.crc = crc32(rows, self.crc)
        self.row_crcs += crc32_of_rows(rows)
        self.rows += len(rows)

    def close(self) -> None:
        os.close(self._file)


class EpisodeWriter:
    """Writes one episode under a temporary name; `commit` makes it part of the store.

    Use it in a `with` block: leaving the block without `commit` discards the episode. Memory use
    does not grow with the length of the episode. If the process dies, the temporary folder remains;
    readers ignore it, and `EpisodeStore.remove_leftovers` removes it.
    """

    def __init__(
        self, root: Path, name: str, attributes: EpisodeAttributes, *, expected_bytes: int = 0
    ) -> None:
        """Opens the temporary folder of the episode `name` below `root`, the folder of the store.

        `commit` may complete the attributes. `expected_bytes` is the size of the episode, if known.
        """
        check_space(root, expected_bytes)
        self.name = name
        self.attributes = attributes
        self._path = root / f"{OPEN_PREFIX}{name}"
        self._final = root / name
        self._series: dict[str, _Series] = {}
        self._entries: dict[str, ArrayEntry] = {}
        self._last_capture: dict[str, float] = {}
        self._intrinsics: dict[str, Array] = {}
        # The lock marks a living writer for `EpisodeStore.leftovers`; it ends with the process. The
        # folder gets its name after it is locked, so that it is never taken for a leftover.
        starting = root / f"{NEW_PREFIX}{name}"
        with explained_full_disk(self._final):
            starting.mkdir()
        self._alive = lock_folder(starting)
        try:
            starting.rename(self._path)
        except OSError:
            os.close(self._alive)
            starting.rmdir()
            raise

    @property
    def contract(self) -> Contract:
        """The contract of observations and actions."""
        return self.attributes.contract

    def step(self, observation: Observation, action: Array) -> None:
        """Appends one step: the state, the action (A,), and the images since the last step.

        An image is new if `time/<camera>` differs from the last stored one; images may be missing
        after the first step. `reward`, `stage` and `sim/state` are stored if present.
        """
        action = np.asarray(action, np.float32)
        images = all(f"rgb/{camera.name}" in observation for camera in self.contract.cameras)
        check_observation(observation, self.contract, cameras=images)
        check_action(action, self.contract)
        for camera in self.contract.cameras:
            self._capture(camera.name, observation)
        state = ["time", "joints/position", "joints/velocity", "joints/effort", *OPTIONAL_STEP_KEYS]
        for key in (*state, *(f"T_base_gripper/{arm}" for arm in self.contract.arms)):
            if key in observation:
                self.append(key, observation[key])
        self.append("action", action)
        for camera in self.contract.cameras:
            self.append(
                f"frame/{camera.name}", np.int32(self._series[f"rgb/{camera.name}"].rows - 1)
            )

    def _capture(self, camera: str, observation: Observation) -> None:
        if f"rgb/{camera}" not in observation:
            if camera not in self._last_capture:
                raise ValueError(
                    f"The first step of an episode needs an image of every camera; that of "
                    f"{camera!r} is missing."
                )
            return
        captured = float(observation[f"time/{camera}"])
        if self._last_capture.get(camera) == captured:
            return
        self._last_capture[camera] = captured
        for kind in ("rgb", "depth", "time", "T_base_camera"):
            if (key := f"{kind}/{camera}") in observation:
                self.append(key, observation[key])
        if (intrinsics := observation.get(f"intrinsics/{camera}")) is None:
            return
        if camera not in self._intrinsics:
            self._intrinsics[camera] = np.array(intrinsics)
            self.put(f"intrinsics/{camera}", intrinsics)
        if not np.array_equal(self._intrinsics[camera], intrinsics):
            raise ValueError(
                f"intrinsics/{camera} changed within the episode; a store keeps one matrix per "
                "episode."
            )

    def append(self, key: str, row: ArrayLike) -> None:
        """Appends one row to the array `key`."""
        self._extend(key, little_endian(np.asarray(row))[None])

    def extend(self, key: str, rows: Array) -> None:
        """Appends rows to the array `key`."""
        self._extend(key, little_endian(rows))

    def put(self, key: str, array: Array) -> None:
        """Stores a whole array under a new key."""
        self._check_new(key)
        array = little_endian(array)
        if array.ndim and array.size:
            self._extend(key, array)
            return
        self._entries[key] = ArrayEntry(array.shape, array.dtype.name, crc32(array))
        if array.size:
            path = chunk_file(self._path, key, 0)
            with explained_full_disk(self._final):
                path.parent.mkdir()
                path.write_bytes(array.tobytes())

    def take_over(self, episode: StoredEpisode, keys: Iterable[str]) -> None:
        """Adds arrays of another episode under new keys: hard links, or copies on another disk.

        If an edit has removed the episode, they come from its copy in the trash or in a pin.
        """
        folder = (episode.kept() or episode).path
        for key in keys:
            self._check_new(key)
            entry = self._entries[key] = episode.entries[key]
            if not entry.nbytes:
                continue
            old, new = (chunk_file(root, key, len(entry.shape)) for root in (folder, self._path))
            if not old.is_file():
                raise ValueError(f"Episode {episode.name}: {key} is missing or empty ({old}).")
            new.parent.mkdir(parents=True)
            rows = array_name(key), ROWS_FILE
            with explained_full_disk(self._final, key):
                link_or_copy(old, new)
                if folder.joinpath(*rows).is_file():
                    link_or_copy(folder.joinpath(*rows), self._path.joinpath(*rows))

    def _check_new(self, key: str) -> None:
        if key in self._series or key in self._entries:
            raise ValueError(f"{key} has been written already.")

    def _extend(self, key: str, rows: Array) -> None:
        at = self._series[key].rows if key in self._series else 0
        with explained_full_disk(self._final, f"{key}, frame {at}"):
            if key not in self._series:
                self._series[key] = _Series(
                    chunk_file(self._path, key, rows.ndim), rows.shape[1:], rows.dtype.name
                )
            series = self._series[key]
            if (rows.shape[1:], rows.dtype.name) != (series.row, series.dtype):
                got = f"{rows.dtype.name} {rows.shape[1:]}"
                raise ValueError(
                    f"{key}: a row is {got}; the previous rows are {series.dtype} {series.row}."
                )
            series.extend(rows)

    def commit(self, success: bool | None = None, extra: Mapping[str, Any] | None = None) -> str:
        """Checks the episode, syncs all files, publishes the episode, and returns its name.

        `success`, unless None, and the entries of `extra` complete the attributes.
        """
        decided = self.attributes.success if success is None else success
        self.attributes = replace(
            self.attributes, success=decided, extra={**self.attributes.extra, **(extra or {})}
        )
        entries = self._entries | {
            key: ArrayEntry((s.rows, *s.row), s.dtype, s.crc) for key, s in self._series.items()
        }
        check_episode(MappedArrays(self._path, entries), self.contract)
        with explained_full_disk(self._final):
            write_metadata(self._path, self.attributes, entries)
            for key, series in self._series.items():
                if series.row_crcs:
                    (self._path / array_name(key) / ROWS_FILE).write_bytes(series.row_crcs)
            sync_tree(self._path)
            self._path.rename(self._final)
            sync(self._final.parent)
        self._close()
        return self.name

    def discard(self) -> None:
        """Removes the temporary folder."""
        self._close()
        shutil.rmtree(self._path, ignore_errors=True)

    def _close(self) -> None:
        for series in self._series.values():
            series.close()
        self._series.clear()
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._alive >= 0:
            self.discard()


def write_episode(
    root: Path,
    name: str,
    attributes: EpisodeAttributes,
    arrays: Iterable[tuple[str, Array]],
    expected_bytes: int,
) -> None:
    """Adds an episode with the given arrays by key to the store at `root`."""
    with EpisodeWriter(root, name, attributes, expected_bytes=expected_bytes) as writer:
        for key, array in arrays:
            writer.put(key, array)
        writer.commit()
