"""Readers that `data.py` compares with ours.

Each returns the same batch for the same windows, except for the loss of video compression.
"""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import zarr
from numcodecs import Blosc
from numpy.typing import NDArray
from recorded_noise import CHUNK, FRAME_EVERY, JOINTS, STEPS
from zarr.storage import MemoryStore

from stringline.datasets.contract.contract import Contract
from stringline.datasets.formats.video import write_video
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.store.zarr_layout import array_name, chunk_file

Arrays = dict[str, NDArray[Any]]
Reader = Callable[[NDArray[np.int64]], Arrays]
CHUNK_BYTES = 2 * 2**20  # diffusion_policy's.
RATE, CODING = 12, {"g": "2", "crf": "30", "preset": "12"}  # Of videos in LeRobot's layout.


def memmap_reader(store: EpisodeStore, windows: Windows) -> Reader:
    """Returns the minimal reader: every array mapped once, rows copied into new arrays."""
    maps = [
        {
            key: _memmap(episode.path, key, entry.shape, entry.dtype)
            for key, entry in episode.entries.items()
        }
        for episode in store.episodes()
    ]
    images, steps, fixed = keys(windows.contract)

    def read(indices: NDArray[np.int64]) -> Arrays:
        count = len(indices)
        places = [(maps[windows.episode[index]], int(windows.step[index])) for index in indices]
        batch = Arrays()
        batch |= {
            key: np.empty((count, *maps[0][key].shape[1:]), maps[0][key].dtype)
            for key in (*images, *steps)
        }
        batch |= {key: np.empty((count, *maps[0][key].shape), maps[0][key].dtype) for key in fixed}
        batch["action"] = np.empty((count, CHUNK, JOINTS), np.float32)
        for row, (arrays, step) in enumerate(places):
            for key in images:
                batch[key][row] = arrays[key][step // FRAME_EVERY]
            for key in steps:
                batch[key][row] = arrays[key][step]
            for key in fixed:
                batch[key][row] = arrays[key]
            batch["action"][row] = arrays["action"][_ahead_of(step)]
        return batch

    return read


def _memmap(episode: Path, key: str, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    return np.memmap(chunk_file(episode, key, len(shape)), dtype, "r", shape=shape).view(np.ndarray)


def _ahead_of(step: int) -> NDArray[np.int64]:
    return np.minimum(step + np.arange(CHUNK), STEPS - 1)


def zarr_reader(store: EpisodeStore, windows: Windows) -> Reader:
    """Returns the plain zarr reader: arrays of the store opened once, rows by indexing."""
    opened = [
        {
            key: zarr.open_array(store.path / name / array_name(key), mode="r")
            for key in store.episode(name).entries
        }
        for name in windows.names
    ]
    images, steps, fixed = keys(windows.contract)

    def stacked(key: str, places: Sequence[tuple[int, int | slice]]) -> NDArray[Any]:
        return np.stack([np.asarray(opened[episode][key][place]) for episode, place in places])

    def read(indices: NDArray[np.int64]) -> Arrays:
        starts = [(int(windows.episode[index]), int(windows.step[index])) for index in indices]
        batch = {
            key: stacked(key, [(episode, step // FRAME_EVERY) for episode, step in starts])
            for key in images
        }
        batch |= {key: stacked(key, starts) for key in steps}
        batch |= {
            key: stacked(key, [(episode, slice(None)) for episode, _ in starts]) for key in fixed
        }
        rows = [
            np.asarray(opened[episode]["action"][step : step + CHUNK]) for episode, step in starts
        ]
        batch["action"] = np.stack(
            [np.pad(row, ((0, CHUNK - len(row)), (0, 0)), mode="edge") for row in rows]
        )
        return batch

    return read


def diffusion_policy_reader(store: EpisodeStore, windows: Windows, folder: Path) -> Reader:
    """Returns a reader of diffusion_policy's layout: one array per key, lz4 chunks of 2 MB.

    As its `ReplayBuffer` does by default (Chi et al., 2023; its code, MIT), compressed chunks are
    held in memory and images are decompressed at each access. Its own code needs zarr 2, so the
    arrays, of zarr format 2, are read by zarr 3. An image is kept once, not once per step; so it
    has a quarter of the bytes that diffusion_policy would have.
    """
    _write_replay_buffer(store, folder)  # For its size on disk.
    memory = MemoryStore()
    compressed = _write_replay_buffer(store, memory)
    group = zarr.open_group(memory, mode="r", zarr_format=2)
    arrays = {key: group[array_name(key)] for key in compressed}
    episodes = store.episodes()
    small = {
        key: np.concatenate([episode.arrays[key] for episode in episodes])
        for key in episodes[0].arrays
        if key not in arrays
    }
    images, steps, fixed = keys(windows.contract)

    def rows(key: str, places: NDArray[np.int64]) -> NDArray[Any]:
        if key in small:
            return np.asarray(small[key][places])
        return np.stack([np.asarray(arrays[key][int(place)]) for place in places])  # type: ignore[index]

    def read(indices: NDArray[np.int64]) -> Arrays:
        episode, step = windows.episode[indices], windows.step[indices]
        frames = episode * (STEPS // FRAME_EVERY) + step // FRAME_EVERY
        batch = {key: rows(key, frames) for key in images} | {
            key: rows(key, episode * STEPS + step) for key in steps
        }
        batch |= {key: small[key].reshape(len(episodes), 3, 3)[episode] for key in fixed}
        batch["action"] = np.stack(
            [
                small["action"][number * STEPS + _ahead_of(int(at))]
                for number, at in zip(episode, step, strict=True)
            ]
        )
        return batch

    return read


def _write_replay_buffer(store: EpisodeStore, place: Path | MemoryStore) -> list[str]:
    """Writes the images of a store; returns their keys."""
    episodes = store.episodes()
    group = zarr.create_group(place, zarr_format=2)
    images = [key for key in episodes[0].arrays if key.startswith(("rgb/", "depth/"))]
    for key in images:
        whole = np.concatenate([episode.arrays[key] for episode in episodes])
        chunk = (max(1, CHUNK_BYTES // whole[0].nbytes), *whole.shape[1:])
        codec = Blosc("lz4", clevel=5, shuffle=Blosc.NOSHUFFLE)
        group.create_array(array_name(key), data=whole, chunks=chunk, compressors=codec)
    return images


def lerobot_reader(store: EpisodeStore, windows: Windows, folder: Path) -> Reader:
    """Returns a reader of LeRobot's layout: AV1 videos (yuv420p, key frame every 2, crf 30).

    Videos are decoded as its PyAV path does, to the requested frame, but stay open. Colour
    only: depth comes from memory, and colours come back changed. LeRobot itself does not install
    beside our torch.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cameras = [camera.name for camera in windows.contract.cameras]
    for name in cameras:
        images = itertools.chain.from_iterable(
            episode.arrays[f"rgb/{name}"] for episode in store.episodes()
        )
        write_video(
            folder / f"{name}.mp4",
            images,
            fps=RATE,
            codec="libsvtav1",
            pixel_format="yuv420p",
            options=CODING,
        )
    videos = {name: av.open(folder / f"{name}.mp4") for name in cameras}
    rest = memmap_reader(store, windows)

    def frame(name: str, place: int) -> NDArray[np.uint8]:
        video = videos[name]
        stream = video.streams.video[0]
        assert stream.time_base is not None
        video.seek(round(place / RATE / stream.time_base), stream=stream)
        for decoded in video.decode(stream):
            assert decoded.time is not None
            if round(decoded.time * RATE) >= place:
                return decoded.to_ndarray(format="rgb24")
        raise ValueError(f"The video of {name} has no frame {place}.")

    def read(indices: NDArray[np.int64]) -> Arrays:
        places = (
            windows.episode[indices] * (STEPS // FRAME_EVERY) + windows.step[indices] // FRAME_EVERY
        )
        batch = rest(indices)
        for name in cameras:
            batch[f"rgb/{name}"] = np.stack([frame(name, int(place)) for place in places])
        return batch

    return read


def keys(contract: Contract) -> tuple[list[str], list[str], list[str]]:
    """Returns the keys that are indexed by frame, by step and not at all."""
    cameras = [camera.name for camera in contract.cameras]
    by_frame = [
        f"{kind}/{name}" for name in cameras for kind in ("rgb", "depth", "T_base_camera", "time")
    ]
    by_step = ["time", "joints/position", *(f"T_base_gripper/{arm}" for arm in contract.arms)]
    return by_frame, by_step, [f"intrinsics/{name}" for name in cameras]
