"""Shared parts of the bridge benchmarks: codecs side by side, and response times."""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.driver_interface.driver import ArmDriver
from stringline.real_robot.safety.limits import SafetyLimits

Entry = dict[str, object]


class Report(Protocol):
    """How an arm fared."""

    @property
    def periods(self) -> int:
        """Of its controller."""
        ...

    @property
    def in_time(self) -> int:
        """Of these, how many were answered before the next."""
        ...


def measure_codec(
    work: Mapping[str, Callable[[], object]], peer: str, rounds: int, calls: int
) -> list[Entry]:
    """Returns microseconds of processor time per message.

    Args:
        work: What is timed, by the names of entries; those of the peer end with its name.
        peer: With whom the others are compared.
        rounds: Of each, interleaved; their median counts.
        calls: Per round.
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
        {
            "name": name,
            "value": value,
            "unit": "us",
            "peer": peer,
            "ratio": value / found[f"{name.rpartition('/')[0]}/{peer}"],
        }
        for name, value in found.items()
    ]


def measure_answers(
    name: str,
    driver: ArmDriver,
    body: Embodiment,
    period_ms: int,
    seconds: float,
    report: Callable[[], Mapping[str, Report]],
) -> Entry:
    """Returns the share of periods that a device process answered in time while the arms moved.

    Args:
        name: Of the entry.
        driver: Not connected.
        body: Of the arms.
        period_ms: Of the device process.
        seconds: How long.
        report: Of the emulator, by arm.
    """
    with DeviceProcess(
        driver, body, SafetyLimits.of(body, margin_rad=0.02), period_s=1e-3 * period_ms
    ) as device:
        device.connect()
        device.arm()
        device.begin()
        before, end = report(), time.monotonic() + seconds
        while time.monotonic() < end:
            due = time.monotonic() + 0.02 * np.arange(50, dtype=np.float64)
            way = np.tile(body.home, (50, 1))
            way[:, 0] += 0.2 * np.sin(due)
            device.send(ActionChunk(due, way.astype(np.float32)))
            time.sleep(0.2)
        after = report()
    asked = sum(after[arm].periods - before[arm].periods for arm in after)
    answered = sum(after[arm].in_time - before[arm].in_time for arm in after)
    return {
        "name": name,
        "value": 100.0 * answered / asked,
        "unit": "%",
        "peer": "none",
        "ratio": None,
    }


def run(
    description: str,
    jobs: Callable[[], Mapping[str, Callable[[], object]]],
    peer: str,
    answers: Callable[[str, int, float], Entry],
) -> None:
    """Runs the benchmark of one bridge to KUKA arms from the command line; writes it on request.

    Args:
        description: What is measured.
        jobs: Returns what `measure_codec` takes.
        peer: The same.
        answers: Returns the share of answers in time of `one` or `two` arms, at a period in ms, in
            so many seconds.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--rounds", type=int, default=20, help="of each codec")
    parser.add_argument("--calls", type=int, default=2000, help="per round")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each answered share")
    given = parser.parse_args()
    entries = measure_codec(jobs(), peer, given.rounds, given.calls)
    entries += [
        answers(arms, period_ms, given.seconds) for arms in ("one", "two") for period_ms in (10, 5)
    ]
    tell(entries, given.json)


def tell(entries: Sequence[Entry], file: Path | None) -> None:
    """Prints a table and, if asked, writes it."""
    for entry in entries:
        beside = f"   {entry['ratio']:.3f} x {entry['peer']}" if entry["ratio"] else ""
        print(f"{entry['name']:34s} {entry['value']:9.3f} {entry['unit']}{beside}", flush=True)
    if file is not None:
        file.write_text(json.dumps(entries, indent=2) + "\n")
