"""Windows per second of this store and of other formats, sizes on disk, and waiting in training.

    python benchmarks/data.py --json data.json
    python benchmarks/data.py --folder /mnt/disk --episodes 24 --cameras 4 --batch 64 --steps 30
    python benchmarks/data.py trainer.batch_size=64

A window is RGB and depth of each camera at 128x128, the state, camera geometry and 48 actions;
every reader returns the same batches (this is checked), copied into new arrays. Rounds are
interleaved in one process.

Names:
    windows/<ours|memmap|zarr|diffusion_policy|lerobot>
        Windows per second of processor time, with the files in the page cache; neighbours on a
        shared machine disturb it less than the clock. Peer `memmap`, ratio of rates, the median
        over rounds. zarr is zarr's own reader on our store; window_readers.py describes the others.
        lerobot's decoder may use several threads, and all count.
    cold/<ours|memmap>
        Windows per second by the clock of one batch, with the files dropped from the page cache
        before it, as if the store were much larger than the memory; peer `memmap`.
    size/<ours|archive|diffusion_policy|lerobot>
        MiB on disk; peer `ours`, ratio of sizes. lerobot: colour only, with loss.
    loader/<cameras>x128_rgbd
        Samples per second by the clock of the training loader alone, collated into tensors; peer
        `none`.
    input_wait/train
        Share of the time of training in which it waits for data, by default with the default
        recipe; peer `none`.

The process keeps large blocks, as under `make` (the variables of malloc in the Makefile); otherwise
half of the time is spent on their allocation.
"""

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from input_wait import measure_input_wait
from measurement import Row, parser_of, row, write_rows
from numpy.typing import NDArray
from recorded_noise import CHUNK, SIZE, write_store
from window_readers import (
    Reader,
    diffusion_policy_reader,
    lerobot_reader,
    memmap_reader,
    zarr_reader,
)

from stringline.datasets.command.entry_points import keep_freed_memory
from stringline.datasets.editing.archive import archive
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.store import EpisodeStore
from stringline.sim.training.training_data import WindowBatches

SLOW = ("zarr", "diffusion_policy", "lerobot")
LOST_COLOUR = 16.0
COLD_ROUNDS = 9


def measure(
    readers: Mapping[str, Reader], count: int, batch: int, seconds: float
) -> dict[str, float]:
    """Returns windows per second of processor time by reader: medians of interleaved rounds."""
    rates: dict[str, list[float]] = {name: [] for name in readers}
    end, round_number = time.perf_counter() + seconds, 0
    while time.perf_counter() < end or round_number < 3:
        rng = np.random.default_rng(round_number)
        for name, read in readers.items():
            batches = [rng.integers(0, count, batch) for _ in range(1 if name in SLOW else 10)]
            start = time.process_time()
            for indices in batches:
                read(indices)
            rates[name].append(batch * len(batches) / (time.process_time() - start))
        round_number += 1
    return {name: statistics.median(found) for name, found in rates.items()}


def measure_cold(store: EpisodeStore, batch: int) -> dict[str, float]:
    """Returns windows per second by the clock when every image comes from the disk."""
    openers: dict[str, Callable[[Windows], Reader]] = {
        "ours": lambda windows: windows.batch,
        "memmap": lambda windows: memmap_reader(store, windows),
    }
    rates: dict[str, list[float]] = {name: [] for name in openers}
    for round_number in range(COLD_ROUNDS):
        for name, opener in openers.items():
            windows = Windows(store, chunk=CHUNK)
            read = opener(windows)
            drop_from_page_cache(store.path)
            rng = np.random.default_rng(round_number)
            indices = rng.integers(0, len(windows), batch)
            start = time.perf_counter()
            read(indices)
            rates[name].append(batch / (time.perf_counter() - start))
    return {name: statistics.median(found) for name, found in rates.items()}


def drop_from_page_cache(folder: Path) -> None:
    """Drops files that are on the disk and not mapped from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def measure_loader(windows: Windows, batch: int, seconds: float) -> float:
    """Returns samples per second by the clock of the training loader without a training."""
    with contextlib.closing(WindowBatches(windows, batch, seed=0).stream(0, 1 << 30)) as batches:
        for _ in range(4):
            next(batches)
        start, samples = time.perf_counter(), 0
        while time.perf_counter() - start < seconds or not samples:
            samples += len(next(batches)["action"])
        return samples / (time.perf_counter() - start)


def check(readers: Mapping[str, Reader], count: int) -> None:
    """Checks that all readers return the same; LeRobot's colours are compressed, frames equal."""
    indices = np.random.default_rng(1).integers(0, count, 16)
    expected = readers["memmap"](indices)
    for name, read in readers.items():
        got = read(indices)
        for key, value in expected.items():
            if name == "lerobot" and key.startswith("rgb/"):
                _check_colours(got[key], value, key)
            else:
                np.testing.assert_array_equal(got[key], value, err_msg=f"{name}: {key}")


def _check_colours(got: NDArray[np.uint8], expected: NDArray[np.uint8], key: str) -> None:
    shifted = np.roll(expected, 1, axis=2)  # The next frame.
    distance, to_next = (
        np.abs(got.astype(float) - images).mean() for images in (expected, shifted)
    )
    assert distance < min(LOST_COLOUR, to_next), (
        f"lerobot: {key} is {distance:.1f} off, its neighbour {to_next:.1f}"
    )


def size_mib(folder: Path) -> float:
    """Returns the size of the files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def run(folder: Path, arguments: argparse.Namespace) -> list[Row]:
    """Makes the data and measures everything."""
    store = write_store(folder / "store", arguments.episodes, arguments.cameras)
    cold = measure_cold(store, arguments.batch)
    windows = Windows(store, chunk=CHUNK)
    readers: dict[str, Reader] = {
        "ours": windows.batch,
        "memmap": memmap_reader(store, windows),
        "zarr": zarr_reader(store, windows),
        "diffusion_policy": diffusion_policy_reader(store, windows, folder / "diffusion_policy"),
        "lerobot": lerobot_reader(store, windows, folder / "lerobot"),
    }
    check(readers, len(windows))
    rates = measure(readers, len(windows), arguments.batch, arguments.seconds)
    rows = [
        row(f"windows/{name}", rate, "windows/cpu-s", "memmap", rate / rates["memmap"])
        for name, rate in rates.items()
    ]
    rows += [
        row(f"cold/{name}", rate, "windows/s", "memmap", rate / cold["memmap"])
        for name, rate in cold.items()
    ]
    archive(store, str(folder / "archive"))
    sizes = {
        name: size_mib(folder / place)
        for name, place in (("ours", "store"), ("archive", "archive"))
    }
    sizes |= {name: size_mib(folder / name) for name in ("diffusion_policy", "lerobot")}
    rows += [
        row(f"size/{name}", size, "MiB", "ours", size / sizes["ours"])
        for name, size in sizes.items()
    ]
    loader = measure_loader(windows, arguments.batch, arguments.seconds / 3)
    rows.append(row(f"loader/{arguments.cameras}x{SIZE}_rgbd", loader, "samples/s"))
    wait = measure_input_wait(store, folder / "run", arguments.steps, arguments.changes)
    rows.append(row("input_wait/train", wait, "share"))
    return rows


def main() -> None:
    """Prints the table and writes it on request."""
    keep_freed_memory()
    os.environ["SVT_LOG"] = "1"  # Read by the encoder of videos when it starts.
    parser = parser_of(__doc__)
    parser.add_argument(
        "--folder", type=Path, help="folder of the data, by default that for temporary files"
    )
    sizes = {"episodes": 24, "cameras": 4, "batch": 64, "seconds": 30, "steps": 30}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("changes", nargs="*", help="overrides of stringline-train")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        rows = run(Path(folder), arguments)
    for entry in rows:
        value, ratio = entry["value"], entry["ratio"]
        number = f"{value:,.0f}" if isinstance(value, float) and value >= 100 else f"{value:.3g}"
        beside = "" if ratio is None else f"{ratio:.4f} x {entry['peer']}"
        print(f"{entry['name']:<26} {number:>12} {entry['unit']:<14}{beside}")
    write_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
