"""Shared parts of the bridge benchmarks: codecs side by side, and response times."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
from measurement import Row, parser_of, row, write_rows

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.scheduling import Priority, request_priority
from stringline.real_robot.driver_interface.driver import ArmDriver
from stringline.real_robot.safety.limits import SafetyLimits

# Ends with its parent, also if that is killed.
_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    pass"


class Report(Protocol):
    """Counts of an emulated arm."""

    @property
    def periods(self) -> int:
        """Number of periods of its controller."""

    @property
    def in_time(self) -> int:
        """Number of periods that were answered before the next one."""


def measure_codec(
    work: Mapping[str, Callable[[], object]], peer: str, rounds: int, calls: int
) -> list[Row]:
    """Returns microseconds of processor time per message.

    Args:
        work: Timed functions by the name of the result; names of the peer end with `/<peer>`.
        peer: The reference.
        rounds: Number of rounds, which are interleaved; their median counts.
        calls: Number of calls per round.
    """
    took: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, job in work.items():
            start = time.process_time()
            for _ in range(calls):
                job()
            took[name].append(1e6 * (time.process_time() - start) / calls)
    found = {name: statistics.median(times) for name, times in took.items()}
    return [
        row(name, value, "us", peer, value / found[f"{name.rpartition('/')[0]}/{peer}"])
        for name, value in found.items()
    ]


def measure_answers(
    name: str,
    driver: ArmDriver,
    embodiment: Embodiment,
    period_ms: int,
    seconds: float,
    report: Callable[[], Mapping[str, Report]],
    *,
    priority: Priority = Priority.PREFERRED,
    core: int | None = None,
) -> Row:
    """Returns the share of periods that a device process answered in time while the arms moved.

    Args:
        name: Name of the result.
        driver: A driver that is not connected yet.
        embodiment: Embodiment of the arms.
        period_ms: Period of the device process.
        seconds: Duration.
        report: Returns the counts of the emulator by arm.
        priority: Need of real-time priority.
        core: Core on which the device process runs once the arms are armed; if None, any.
    """
    limits = SafetyLimits.of(embodiment, margin_rad=0.02, cartesian_speed=None)
    with DeviceProcess(
        driver, embodiment, limits, period_s=1e-3 * period_ms, priority=priority
    ) as device:
        device.connect()
        device.arm()
        device.begin()
        if core is not None and device.pid is not None:
            os.sched_setaffinity(device.pid, {core})
        before, end = report(), time.monotonic() + seconds
        while time.monotonic() < end:
            due = time.monotonic() + 0.02 * np.arange(50, dtype=np.float64)
            way = np.tile(embodiment.home, (50, 1))
            way[:, 0] += 0.2 * np.sin(due)
            device.send(ActionChunk(due, way.astype(np.float32)))
            time.sleep(0.2)
        after = report()
    periods = sum(after[arm].periods - before[arm].periods for arm in after)
    answered = sum(after[arm].in_time - before[arm].in_time for arm in after)
    return row(name, 100.0 * answered / periods, "%")


@contextmanager
def busy_core() -> Iterator[int]:
    """Keeps the last core busy, and this process and those that it starts on the other cores.

    Yields:
        The busy core.
    """
    cores = os.sched_getaffinity(0)
    busy = max(cores)
    with subprocess.Popen([sys.executable, "-c", _BUSY]) as program:
        os.sched_setaffinity(program.pid, {busy})
        os.sched_setaffinity(0, cores - {busy} or cores)
        try:
            yield busy
        finally:
            os.sched_setaffinity(0, cores)
            program.kill()


@contextmanager
def child_priority() -> Iterator[None]:
    """Starts child processes with real-time priority, which they inherit; see `check_priority`."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    request_priority()
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def run(
    description: str,
    jobs: Callable[[], Mapping[str, Callable[[], object]]],
    peer: str,
    answers: Callable[[str, int, float], Row],
    more: Callable[[float], list[Row]] = lambda _: [],
) -> None:
    """Runs the benchmark of one bridge to KUKA arms from the command line.

    Args:
        description: Description of the command.
        jobs: Returns the functions for `measure_codec`.
        peer: The reference for `measure_codec`.
        answers: Returns the share of answers in time of `one` or `two` arms, given a period in ms
            and a duration in seconds.
        more: Returns further results, given a duration in seconds.
    """
    parser = parser_of(description)
    parser.add_argument("--rounds", type=int, default=20, help="rounds of each codec")
    parser.add_argument("--calls", type=int, default=2000, help="calls per round")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of each share")
    given = parser.parse_args()
    entries = measure_codec(jobs(), peer, given.rounds, given.calls)
    entries += [
        answers(arms, period_ms, given.seconds) for arms in ("one", "two") for period_ms in (10, 5)
    ]
    show(entries + more(given.seconds), given.json)


def show(entries: Sequence[Row], file: Path | None) -> None:
    """Prints a table and writes it, if there is a file for it."""
    for entry in entries:
        beside = f"   {entry['ratio']:.3f} x {entry['peer']}" if entry["ratio"] else ""
        print(f"{entry['name']:34s} {entry['value']:9.3f} {entry['unit']}{beside}", flush=True)
    write_rows(entries, file)
