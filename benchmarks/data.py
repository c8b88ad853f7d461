"""Windows per second of this store and of other formats, sizes on disk, and waiting in training.

    python benchmarks/data.py --json data.json
    python benchmarks/data.py --folder /mnt/disk --episodes 24 --cameras 4 --batch 64 --steps 30
    python benchmarks/data.py trainer.batch_size=64

A window is RGB and depth of each camera at 128x128, the state, camera geometry and 48 actions;
every reader returns the same batches (this is checked), copied into new arrays. Rounds are
interleaved in one process.

Names:
    windows/<ours|memmap|zarr|diffusion_policy|lerobot>  files in the page cache; windows per second
    of processor time, which
        neighbours on a shared machine disturb less than the clock; peer `memmap`, ratio of rates,
        the median over rounds. zarr is zarr's own reader on our store; the others are described in
        window_readers.py. lerobot's decoder may use several threads, and all count.
    cold/<ours|memmap>  windows per second by the clock, the files dropped from the page cache
    before each round; peer `memmap`. size/<ours|archive|diffusion_policy|lerobot>  MiB on disk;
    peer `ours`, ratio of sizes. lerobot: colour only, with loss. loader/<cameras>x128_rgbd  samples
    per second by the clock of the training loader alone, collated into tensors; peer `none`.
    input_wait/train  share of the time of training, with the default recipe unless it is changed,
    in which it waits for data;
        peer `none`.

Large blocks stay with the process, as under `make` (the variables of malloc in the Makefile); else
half of the time goes into fetching them again from the system.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from omegaconf import OmegaConf
from recorded_noise import CHUNK, SIZE, write_store
from torch import Tensor, nn
from window_readers import (
    Reader,
    diffusion_policy_reader,
    lerobot_reader,
    memmap_reader,
    zarr_reader,
)

import stringline
from stringline.datasets.command.configuration import Configuration
from stringline.datasets.editing.archive import archive
from stringline.datasets.files.atomic import write_file
from stringline.datasets.loading.statistics import Statistics
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.store import EpisodeStore
from stringline.encoders.training.checkpoint import build
from stringline.policies.checkpoints.load import build_policy
from stringline.sim.training.training_data import WindowBatches

ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "SVT_LOG": "1",
}
SLOW = ("zarr", "diffusion_policy", "lerobot")
LOST_COLOUR = 16.0
COLD_ROUNDS, COLD_BATCHES = 3, 4
Row = dict[str, object]


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
    """Returns windows per second by the clock where every image comes from the disk."""
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
            start = time.perf_counter()
            for _ in range(COLD_BATCHES):
                read(rng.integers(0, len(windows), batch))
            rates[name].append(batch * COLD_BATCHES / (time.perf_counter() - start))
    return {name: statistics.median(found) for name, found in rates.items()}


def drop_from_page_cache(folder: Path) -> None:
    """Asks the system to forget what it holds of files that are on the disk and not mapped."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def measure_loader(windows: Windows, batch: int, seconds: float) -> float:
    """Returns samples per second by the clock that the training loader gives when nobody trains."""
    with contextlib.closing(WindowBatches(windows, batch, seed=0).stream(0, 1 << 30)) as batches:
        for _ in range(4):
            next(batches)
        start, samples = time.perf_counter(), 0
        while time.perf_counter() - start < seconds or not samples:
            samples += len(next(batches)["action"])
        return samples / (time.perf_counter() - start)


class TimedBatches:
    """Batches, and how long was waited for them after the first."""

    def __init__(self, batches: WindowBatches) -> None:
        """Has measured nothing yet."""
        self._batches = batches
        self.waited_s, self.started = 0.0, 0.0

    def stream(
        self, first_step: int, last_step: int, process: int = 0, processes: int = 1
    ) -> Iterator[Mapping[str, Tensor]]:
        """Yields what the batches yield."""
        with contextlib.closing(
            self._batches.stream(first_step, last_step, process, processes)
        ) as stream:
            yield next(stream)
            self.started = time.perf_counter()
            while True:
                asked = time.perf_counter()
                batch = next(stream, None)
                self.waited_s += time.perf_counter() - asked
                if batch is None:
                    return
                yield batch


def measure_input_wait(
    store: EpisodeStore, folder: Path, steps: int, changes: Sequence[str]
) -> float:
    """Returns the share of training time after the first batch that is spent waiting for data."""
    overrides = [
        f"dataset.path={store.path}",
        f"trainer.steps={steps}",
        f"trainer.probe_every={steps}",
        *changes,
    ]
    configuration = Configuration(
        (Path(stringline.__file__).parent / "configs").absolute(), "train", "data.py"
    )
    settings = OmegaConf.to_container(configuration.composed(overrides), resolve=True)
    assert isinstance(settings, dict)
    policy = build_policy(
        settings["policy"],
        store.episodes()[0].attributes.contract,
        Statistics.of_store(store, store.names()),
    )
    trainer = build(settings["trainer"])
    windows = Windows(
        store, chunk=policy.chunk, cameras=[camera.name for camera in policy.contract.cameras]
    )
    batches = TimedBatches(WindowBatches(windows, trainer.batch_size, seed=0))
    ended = []

    def end(model: nn.Module) -> None:
        ended.append(time.perf_counter())

    trainer.fit(policy, batches, folder, save_model=end)
    return batches.waited_s / (ended[0] - batches.started)


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
    shifted = np.roll(expected, 1, axis=2)  # What the next frame shows.
    distance, to_next = (
        np.abs(got.astype(float) - images).mean() for images in (expected, shifted)
    )
    assert distance < min(LOST_COLOUR, to_next), (
        f"lerobot: {key} is {distance:.1f} off, its neighbour {to_next:.1f}"
    )


def size_mib(folder: Path) -> float:
    """Returns what the files of a folder hold."""
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
        row(f"windows/{name}", rate, "windows/cpu-s", "memmap", rates["memmap"])
        for name, rate in rates.items()
    ]
    rows += [
        row(f"cold/{name}", rate, "windows/s", "memmap", cold["memmap"])
        for name, rate in cold.items()
    ]
    archive(store, str(folder / "archive"))
    sizes = {
        name: size_mib(folder / place)
        for name, place in (("ours", "store"), ("archive", "archive"))
    }
    sizes |= {name: size_mib(folder / name) for name in ("diffusion_policy", "lerobot")}
    rows += [
        row(f"size/{name}", size, "MiB", "ours", sizes["ours"]) for name, size in sizes.items()
    ]
    loader = measure_loader(windows, arguments.batch, arguments.seconds / 3)
    rows.append(row(f"loader/{arguments.cameras}x{SIZE}_rgbd", loader, "samples/s", "none", None))
    wait = measure_input_wait(store, folder / "run", arguments.steps, arguments.changes)
    rows.append(row("input_wait/train", wait, "share", "none", None))
    return rows


def row(name: str, value: float, unit: str, peer: str, of_peer: float | None) -> Row:
    """Returns a line of the table."""
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "peer": peer,
        "ratio": None if of_peer is None else value / of_peer,
    }


def main() -> None:
    """Prints the table and, if asked, writes it."""
    if any(os.environ.get(name) != value for name, value in ALLOCATOR.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ALLOCATOR)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument(
        "--folder",
        type=Path,
        help="where to put the data, by default the folder for temporary files",
    )
    for name, default in (
        ("episodes", 24),
        ("cameras", 4),
        ("batch", 64),
        ("seconds", 30),
        ("steps", 30),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument(
        "changes", nargs="*", help="to the recipe of training, as stringline-train takes them"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        rows = run(Path(folder), arguments)
    for entry in rows:
        value, ratio = entry["value"], entry["ratio"]
        number = f"{value:,.0f}" if isinstance(value, float) and value >= 100 else f"{value:.3g}"
        beside = "" if ratio is None else f"{ratio:.4f} x {entry['peer']}"
        print(f"{entry['name']:<26} {number:>12} {entry['unit']:<14}{beside}")
    if arguments.json:
        write_file(arguments.json, json.dumps(rows, indent=2).encode())


if __name__ == "__main__":
    main()
