"""Windows read per second: ours, plain memory maps laid over the same pictures, and zarr's own reader on our store.

    python benchmarks/data.py [--json FILE] [--folder FOLDER] [--episodes 40] [--cameras 2] [--batch 64] [--seconds 8]

A window is RGB and depth of each camera at 128x128, the state, camera geometry and 48 actions; every reader returns the same
batches (this is checked), copied into new arrays, files in the page cache. Rounds are interleaved; a rate is the median over
rounds, per second of processor time, which neighbours on a shared machine disturb less than the clock on the wall.

Names: `windows/ours`, `windows/memmap`, `windows/zarr` (windows/cpu-s; peer `memmap`, ratio of rates).
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from stringline.datasets.contract import ActionDimension, Camera, Contract
from stringline.datasets.disk import write_file
from stringline.datasets.episode import EpisodeAttributes
from stringline.datasets.store import EpisodeStore
from stringline.datasets.windows import Windows
from stringline.datasets.zarr_layout import array_name, chunk_file

Arrays = dict[str, NDArray[Any]]
Reader = Callable[[NDArray[np.int64]], Arrays]
STEPS, FRAME_EVERY, SIZE, JOINTS, CHUNK = 200, 4, 128, 14, 48


def write_store(path: Path, episodes: int, cameras: int) -> EpisodeStore:
    """Fills a store with noise, which no file system can compress."""
    rng = np.random.default_rng(0)
    names = [f"camera_{number}" for number in range(cameras)]
    joints = tuple(f"joint_{number}" for number in range(JOINTS))
    contract = Contract(
        embodiment="benchmark",
        base_frame="table",
        control_hz=50.0,
        cameras=tuple(Camera(name, SIZE, SIZE, "simulated") for name in names),
        joints=joints,
        arms=("left", "right"),
        action=tuple(ActionDimension(joint, "left", "joint") for joint in joints),
    )
    frames = STEPS // FRAME_EVERY

    def numbers(*shape: int) -> NDArray[np.float32]:
        return rng.random(shape, np.float32)

    store = EpisodeStore.create(path)
    for seed in range(episodes):
        time_s = np.arange(STEPS) / 50
        arrays = Arrays(time=time_s)
        arrays |= {key: numbers(STEPS, JOINTS) for key in ("joints/position", "action")}
        arrays |= {f"T_base_gripper/{arm}": numbers(STEPS, 4, 4) for arm in ("left", "right")}
        for name in names:
            arrays[f"rgb/{name}"] = rng.integers(0, 256, (frames, SIZE, SIZE, 3), np.uint8)
            arrays[f"depth/{name}"] = rng.integers(0, 2000, (frames, SIZE, SIZE), np.uint16)
            arrays[f"frame/{name}"] = (np.arange(STEPS) // FRAME_EVERY).astype(np.int32)
            arrays[f"time/{name}"] = time_s[::FRAME_EVERY].copy()
            arrays[f"intrinsics/{name}"], arrays[f"T_base_camera/{name}"] = numbers(3, 3), numbers(frames, 4, 4)
        store.write(arrays, EpisodeAttributes(contract, "benchmark", seed))
    return store


def ahead_of(step: int) -> NDArray[np.int64]:
    """Returns the steps of a window's actions."""
    return np.minimum(step + np.arange(CHUNK), STEPS - 1)


def memmap_reader(store: EpisodeStore, windows: Windows) -> Reader:
    """Returns the least that a reader can do: every array of every episode mapped once, rows copied into new arrays."""
    maps = [
        {key: _memmap(episode.path, key, entry.shape, entry.dtype) for key, entry in episode.entries.items()}
        for episode in store.episodes()
    ]
    pictures, steps, fixed = _keys(windows.contract)

    def read(indices: NDArray[np.int64]) -> Arrays:
        count, places = len(indices), [(maps[windows.episode[index]], int(windows.step[index])) for index in indices]
        batch = Arrays()
        batch |= {key: np.empty((count, *maps[0][key].shape[1:]), maps[0][key].dtype) for key in (*pictures, *steps)}
        batch |= {key: np.empty((count, *maps[0][key].shape), maps[0][key].dtype) for key in fixed}
        batch["action"] = np.empty((count, CHUNK, JOINTS), np.float32)
        for row, (arrays, step) in enumerate(places):
            for key in pictures:
                batch[key][row] = arrays[key][step // FRAME_EVERY]
            for key in steps:
                batch[key][row] = arrays[key][step]
            for key in fixed:
                batch[key][row] = arrays[key]
            batch["action"][row] = arrays["action"][ahead_of(step)]
        return batch

    return read


def _memmap(episode: Path, key: str, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    return np.memmap(chunk_file(episode, key, len(shape)), dtype, "r", shape=shape).view(np.ndarray)


def zarr_reader(store: EpisodeStore, windows: Windows) -> Reader:
    """Returns the obvious reader for somebody who has zarr: arrays opened once, rows by indexing."""
    opened = [
        {key: zarr.open_array(store.path / name / array_name(key), mode="r") for key in store.episode(name).entries}
        for name in windows.names
    ]
    pictures, steps, fixed = _keys(windows.contract)

    def stacked(key: str, places: Sequence[tuple[int, int | slice]]) -> NDArray[Any]:
        return np.stack([np.asarray(opened[episode][key][place]) for episode, place in places])

    def read(indices: NDArray[np.int64]) -> Arrays:
        starts = [(int(windows.episode[index]), int(windows.step[index])) for index in indices]
        batch = {key: stacked(key, [(episode, step // FRAME_EVERY) for episode, step in starts]) for key in pictures}
        batch |= {key: stacked(key, starts) for key in steps}
        batch |= {key: stacked(key, [(episode, slice(None)) for episode, _ in starts]) for key in fixed}
        rows = [np.asarray(opened[episode]["action"][step : step + CHUNK]) for episode, step in starts]
        batch["action"] = np.stack([np.pad(row, ((0, CHUNK - len(row)), (0, 0)), mode="edge") for row in rows])
        return batch

    return read


def _keys(contract: Contract) -> tuple[list[str], list[str], list[str]]:
    """Returns the keys that are indexed by frame, by step and not at all."""
    cameras = [camera.name for camera in contract.cameras]
    by_frame = [f"{kind}/{name}" for name in cameras for kind in ("rgb", "depth", "T_base_camera", "time")]
    by_step = ["time", "joints/position", *(f"T_base_gripper/{arm}" for arm in contract.arms)]
    return by_frame, by_step, [f"intrinsics/{name}" for name in cameras]


def measure(readers: dict[str, Reader], windows: int, batch: int, seconds: float) -> dict[str, float]:
    """Returns windows per second by reader, the median over interleaved rounds."""
    rates: dict[str, list[float]] = {name: [] for name in readers}
    end, round_number = time.perf_counter() + seconds, 0
    while time.perf_counter() < end or round_number < 3:
        rng = np.random.default_rng(round_number)
        for name, read in readers.items():
            batches = [rng.integers(0, windows, batch) for _ in range(1 if name == "zarr" else 10)]
            start = time.process_time()
            for indices in batches:
                read(indices)
            rates[name].append(batch * len(batches) / (time.process_time() - start))
        round_number += 1
    return {name: statistics.median(found) for name, found in rates.items()}


def check(readers: dict[str, Reader], count: int) -> None:
    """Sees that all readers return the same."""
    indices = np.random.default_rng(1).integers(0, count, 16)
    expected = readers["memmap"](indices)
    for name, read in readers.items():
        for key, value in expected.items():
            np.testing.assert_array_equal(read(indices)[key], value, err_msg=f"{name}: {key}")


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--folder", type=Path, help="where to put the data, by default the folder for temporary files")
    for name, default in (("episodes", 40), ("cameras", 2), ("batch", 64), ("seconds", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        store = write_store(Path(folder) / "store", arguments.episodes, arguments.cameras)
        windows = Windows(store, chunk=CHUNK)
        readers: dict[str, Reader] = {
            "ours": windows.batch,
            "memmap": memmap_reader(store, windows),
            "zarr": zarr_reader(store, windows),
        }
        check(readers, len(windows))
        rates = measure(readers, len(windows), arguments.batch, arguments.seconds)
    rows = [
        {"name": f"windows/{name}", "value": rate, "unit": "windows/cpu-s", "peer": "memmap", "ratio": rate / rates["memmap"]}
        for name, rate in rates.items()
    ]
    for row in rows:
        print(f"{row['name']:<16} {row['value']:>12,.0f} {row['unit']}   {row['ratio']:.3f} x memmap")
    if arguments.json:
        write_file(arguments.json, json.dumps(rows, indent=2).encode())


if __name__ == "__main__":
    main()
