"""Opening and reading of a store of very many short episodes, with few open files.

    python benchmarks/many_episodes.py --json many_episodes.json
    python benchmarks/many_episodes.py --folder /mnt/disk --episodes 50000 --size 64 --steps 100

The process may open 1024 files (`ulimit -n 1024`). An episode has 10 steps and 5 images of one
RGB-D camera; all are hard links of eight different ones, so that the store is made quickly and its
images are in the page cache.

Names:
    open/episodes
        Seconds to open all episodes of the store; peer `none`.
    open/windows
        Seconds to make the windows of the store, for the first time; peer `none`.
    windows/<ours|memmap>
        Windows per second of processor time; peer `memmap`, ratio of rates, medians over
        interleaved rounds. memmap makes the same copies: all arrays but images are held in memory,
        and the file of an image is mapped (`numpy.memmap`) for each, since they cannot all stay
        open.
    windows/one_file
        The same with the images of all episodes in one file per key, mapped once: another layout,
        which a store does not have; peer `memmap`.
    input_wait/train
        Share of the time of training in which it waits for data, by default with the default
        recipe; peer `none`.
"""

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from input_wait import measure_input_wait
from measurement import Row, parser_of, row, write_rows
from numpy.typing import NDArray

from stringline.datasets.command.entry_points import keep_freed_memory
from stringline.datasets.contract.contract import ActionDimension, Array, Camera, Contract
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.episode import EpisodeAttributes, StoredEpisode
from stringline.datasets.store.store import EpisodeStore, episode_name
from stringline.datasets.store.zarr_layout import chunk_file

FILES, STEPS, FRAME_EVERY, JOINTS, CHUNK, TEMPLATES = 1024, 10, 2, 14, 48, 8
CAMERA = "overhead"
IMAGES = {f"rgb/{CAMERA}": (3,), f"depth/{CAMERA}": ()}
STATE = ("time", "joints/position", "T_base_gripper/left")
BY_FRAME = (f"time/{CAMERA}", f"T_base_camera/{CAMERA}")
Reader = Callable[[NDArray[np.int64]], Mapping[str, Array]]
ReadImage = Callable[[int, str, int], Array]


def write_templates(path: Path, size: int) -> list[StoredEpisode]:
    """Writes a store of a few short episodes with images of noise."""
    joints = tuple(f"joint_{number}" for number in range(JOINTS))
    contract = Contract(
        embodiment="benchmark",
        base_frame="table",
        control_hz=50.0,
        cameras=(Camera(CAMERA, size, size, "simulated"),),
        joints=joints,
        arms=("left",),
        action=tuple(ActionDimension(joint, "left", "joint") for joint in joints),
    )
    store = EpisodeStore.create(path)
    for seed in range(TEMPLATES):
        store.write(_episode(seed, size), EpisodeAttributes(contract, "short", seed))
    return store.episodes()


def _episode(seed: int, size: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    time_s = np.arange(STEPS) / 50.0
    frames = STEPS // FRAME_EVERY
    return {
        "time": time_s,
        "joints/position": rng.random((STEPS, JOINTS), np.float32),
        "action": rng.random((STEPS, JOINTS), np.float32),
        "T_base_gripper/left": np.tile(np.eye(4, dtype=np.float32), (STEPS, 1, 1)),
        f"rgb/{CAMERA}": rng.integers(0, 256, (frames, size, size, 3), np.uint8),
        f"depth/{CAMERA}": rng.integers(300, 2000, (frames, size, size), np.uint16),
        f"frame/{CAMERA}": (np.arange(STEPS) // FRAME_EVERY).astype(np.int32),
        f"time/{CAMERA}": time_s[::FRAME_EVERY].copy(),
        f"T_base_camera/{CAMERA}": np.tile(np.eye(4, dtype=np.float32), (frames, 1, 1)),
        f"intrinsics/{CAMERA}": np.array(
            [[size, 0, size / 2], [0, size, size / 2], [0, 0, 1]], np.float32
        ),
    }


def multiply(templates: Sequence[StoredEpisode], path: Path, episodes: int) -> EpisodeStore:
    """Fills a store with hard links of the templates in turn."""
    store = EpisodeStore.create(path)
    trees = [list(os.walk(template.path)) for template in templates]
    for seed in range(episodes):
        template, tree = templates[seed % TEMPLATES], trees[seed % TEMPLATES]
        target = str(path / episode_name("short", seed))
        for folder, _, files in tree:
            there = target + folder.removeprefix(str(template.path))
            os.mkdir(there)
            for file in files:
                os.link(f"{folder}/{file}", f"{there}/{file}")
    return store


def memmap_reader(
    windows: Windows, templates: Sequence[StoredEpisode], size: int, read_image: ReadImage
) -> Reader:
    """Returns a reader with all small arrays in memory; `read_image` is of episode, key, frame."""
    rounds = -(-len(windows.names) // TEMPLATES)

    def whole(key: str) -> Array:
        parts = np.concatenate([np.atleast_2d(each.arrays[key].T).T for each in templates])
        return np.tile(parts, (rounds, *[1] * (parts.ndim - 1)))

    small = {key: whole(key) for key in (*STATE, *BY_FRAME, "action")}
    intrinsics = np.array(templates[0].arrays[f"intrinsics/{CAMERA}"])

    def read(indices: NDArray[np.int64]) -> Mapping[str, Array]:
        episode, step = windows.episode[indices], windows.step[indices]
        frame = step // FRAME_EVERY
        batch = {key: small[key][episode * STEPS + step] for key in STATE}
        batch |= {key: small[key][episode * (STEPS // FRAME_EVERY) + frame] for key in BY_FRAME}
        batch[f"intrinsics/{CAMERA}"] = np.repeat(intrinsics[None], len(indices), 0)
        ahead = np.minimum(step[:, None] + np.arange(CHUNK), STEPS - 1)
        batch["action"] = small["action"][episode[:, None] * STEPS + ahead]
        for key, channels in IMAGES.items():
            dtype = np.uint8 if channels else np.uint16
            images = batch[key] = np.empty((len(indices), size, size, *channels), dtype)
            for at, (number, place) in enumerate(
                zip(episode.tolist(), frame.tolist(), strict=True)
            ):
                images[at] = read_image(number, key, place)
        return batch

    return read


def mapped_each_time(store: EpisodeStore, windows: Windows, size: int) -> ReadImage:
    """Returns a function that maps the file of an image for each."""
    folders = [store.path / name for name in windows.names]

    def read(episode: int, key: str, frame: int) -> Array:
        channels = IMAGES[key]
        shape = (STEPS // FRAME_EVERY, size, size, *channels)
        path = chunk_file(folders[episode], key, len(shape))
        dtype = np.uint8 if channels else np.uint16
        image: Array = np.memmap(path, dtype, "r", shape=shape).view(np.ndarray)[frame]
        return image

    return read


def mapped_once(templates: Sequence[StoredEpisode], folder: Path) -> ReadImage:
    """Returns a function that reads one file per key, with the images of the templates."""
    maps = {}
    for key in IMAGES:
        whole = np.stack([each.arrays[key] for each in templates])
        file = folder / key.replace("/", ".")
        whole.tofile(file)
        maps[key] = np.memmap(file, whole.dtype, "r", shape=whole.shape).view(np.ndarray)
    return lambda episode, key, frame: maps[key][episode % TEMPLATES, frame]


def check(readers: Mapping[str, Reader], count: int) -> None:
    """Checks that all readers return the same."""
    indices = np.random.default_rng(1).integers(0, count, 64)
    ours = readers["ours"](indices)
    for name, read in readers.items():
        for key, value in read(indices).items():
            got = value.reshape(ours[key].shape)
            np.testing.assert_array_equal(got, ours[key], err_msg=f"{name}: {key}")


def measure(readers: Mapping[str, Reader], count: int, seconds: float) -> dict[str, float]:
    """Returns windows per second of processor time by reader: medians of interleaved rounds."""
    rates: dict[str, list[float]] = {name: [] for name in readers}
    rng = np.random.default_rng(0)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(rates["ours"]) < 3:
        batches = rng.integers(0, count, (10, 64))
        for name, read in readers.items():
            start = time.process_time()
            for indices in batches:
                read(indices)
            rates[name].append(batches.size / (time.process_time() - start))
    return {name: statistics.median(found) for name, found in rates.items()}


def run(folder: Path, arguments: argparse.Namespace) -> list[Row]:
    """Makes the data and measures everything."""
    templates = write_templates(folder / "templates", arguments.size)
    path = multiply(templates, folder / "store", arguments.episodes).path
    start = time.perf_counter()
    store = EpisodeStore.open(path)
    assert len(store.episodes()) == arguments.episodes
    opened = time.perf_counter()
    windows = Windows(store, chunk=CHUNK)
    rows = [
        row("open/episodes", opened - start, "s"),
        row("open/windows", time.perf_counter() - opened, "s"),
    ]
    images = {
        "memmap": mapped_each_time(store, windows, arguments.size),
        "one_file": mapped_once(templates, folder),
    }
    readers: dict[str, Reader] = {"ours": windows.batch} | {
        name: memmap_reader(windows, templates, arguments.size, read)
        for name, read in images.items()
    }
    check(readers, len(windows))
    rates = measure(readers, len(windows), arguments.seconds)
    rows += [
        row(f"windows/{name}", rate, "windows/cpu-s", "memmap", rate / rates["memmap"])
        for name, rate in rates.items()
    ]
    wait = measure_input_wait(store, folder / "run", arguments.steps, arguments.changes)
    return [*rows, row("input_wait/train", wait, "share")]


def main() -> None:
    """Prints the table and writes it on request."""
    keep_freed_memory()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    parser = parser_of(__doc__)
    parser.add_argument(
        "--folder", type=Path, help="folder of the data, by default that for temporary files"
    )
    sizes = {"episodes": 50_000, "size": 64, "seconds": 15, "steps": 100}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("changes", nargs="*", help="overrides of stringline-train")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        rows = run(Path(folder), arguments)
        # The removal of the folder takes minutes.
        for entry in rows:
            ratio = "" if entry["ratio"] is None else f"{entry['ratio']:.4f} x {entry['peer']}"
            print(f"{entry['name']:<20} {entry['value']:>12,.3f} {entry['unit']:<14}{ratio}")
        write_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
