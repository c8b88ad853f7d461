"""The memory of a process, and the timing of a device process: periods, jitter and command ages.

The command age is the time from the first action of the plan in force to the cycle that sends a
command of the plan. The first action is due at the time of the observation or, if the arms waited
for the plan, later. Timing is measured in bounded memory.

Memory and processor time are read from the kernel's own files (Linux), not by psutil: it sums up
clean and dirty private pages, and clean ones are not a leak.
"""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import state_layout
from stringline.real_robot.incidents.incident_log import cycle_layout, unpack_chunk
from stringline.real_robot.incidents.incident_records import Entry, Kind, Mark, Ring, scan
from stringline.real_robot.ipc.mailbox import Memory, Record
from stringline.real_robot.safety.reasons import REASONS, Mode, Reason

MEBIBYTE = 2**20
PER_S = 600.0  # Growth is given per ten minutes.
_FIELDS = {"Rss": "rss", "Pss": "pss", "Private_Dirty": "private"}


@dataclass(frozen=True)
class Resident:
    """Memory of a process in RAM, bytes.

    Attributes:
        rss: Resident set size; shared pages count in full.
        pss: Proportional set size; shared pages are divided among their processes.
        private: Private dirty pages.
    """

    rss: int
    pss: int
    private: int


def resident(pid: int, system: Path = Path("/proc")) -> Resident | None:
    """Returns the memory of a process; None if it has ended or belongs to another user."""
    try:
        lines = (system / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    words = [line.split() for line in lines]
    found = {
        _FIELDS[name]: int(word[1]) * 1024
        for word in words
        if word and (name := word[0].rstrip(":")) in _FIELDS
    }
    return Resident(**found) if len(found) == len(_FIELDS) else None


def processor_s(pid: int, system: Path = Path("/proc")) -> float:
    """Returns the processor time of all threads of a process, seconds; NaN if it has ended."""
    try:
        # The name, in brackets, may contain brackets; numbers follow it.
        words = (system / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Growth:
    """A straight line fitted to memory over time.

    Attributes:
        mib: Rise per ten minutes, MiB.
        error_mib: Its standard error, MiB; NaN with fewer than three samples.
        span_s: Time from the first to the last sample, seconds.
    """

    mib: float
    error_mib: float
    span_s: float

    @classmethod
    def of(cls, seconds: Sequence[float], sizes: Sequence[int]) -> "Growth":
        """Fits a line by least squares to sizes (N,) in bytes at rising times (N,).

        Raises:
            ValueError: There are fewer than two samples, or not as many sizes as times.
        """
        if len(seconds) < 2 or len(seconds) != len(sizes):
            raise ValueError(
                f"Growth needs two samples or more, each with its time; got {len(sizes)} and "
                f"{len(seconds)}."
            )
        time = np.asarray(seconds, np.float64)
        size = np.asarray(sizes, np.float64) / MEBIBYTE
        time = time - time.mean()
        size = size - size.mean()
        slope = float(time @ size / (time @ time))
        rest = size - slope * time
        error = np.sqrt(rest @ rest / (len(time) - 2) / (time @ time)) if len(time) > 2 else np.nan
        return cls(slope * PER_S, float(error) * PER_S, float(seconds[-1] - seconds[0]))


_SHARES = (0.5, 0.95, 0.99, 0.999)
_PLANS_KEPT = 16
_OLDEST_S = 4.0
_LONGEST_CYCLE_S = 0.5


class RunningQuantiles:
    """Quantiles of a stream of durations, from a histogram of constant size.

    Args:
        bin_s: Width of a bin, which is the resolution of the quantiles, seconds.
        most_s: Longer durations share a bin.

    Attributes:
        largest: Longest duration, seconds.
    """

    def __init__(self, bin_s: float, most_s: float) -> None:
        # Filled, not only reserved: memory that is touched bit by bit would look like a leak.
        self._counts = np.full(round(most_s / bin_s) + 1, 0, np.int64)
        self._bin_s = bin_s
        self.count = 0
        self.largest = 0.0

    def add(self, seconds: float) -> None:
        """Counts a duration, at least 0."""
        self._counts[min(int(seconds / self._bin_s), len(self._counts) - 1)] += 1
        self.count += 1
        self.largest = max(self.largest, seconds)

    def quantile(self, share: float) -> float:
        """Returns a quantile in seconds, rounded up to a bin; NaN without durations."""
        if not self.count:
            return float("nan")
        place = int(np.searchsorted(np.cumsum(self._counts), share * self.count - 1e-9))
        return (
            self.largest
            if place >= len(self._counts) - 1
            else min((place + 1) * self._bin_s, self.largest)
        )

    def to_dict(self) -> dict[str, float | None]:
        """Returns quantiles in milliseconds and the count, as plain JSON."""
        found: dict[str, float | None] = {
            f"q{share * 100:g}_ms": round(self.quantile(share) * 1e3, 3) if self.count else None
            for share in _SHARES
        }
        return found | {"largest_ms": round(self.largest * 1e3, 3), "count": self.count}

    def __str__(self) -> str:
        """Reads like `median 10.00, 95 % 10.12, 99 % 10.90, 99.9 % 14.30, largest 31.00 ms`."""
        if not self.count:
            return "none"
        names = ("median", *(f"{share * 100:g} %" for share in _SHARES[1:]))
        parts = [
            f"{name} {self.quantile(share) * 1e3:.2f}"
            for name, share in zip(names, _SHARES, strict=True)
        ]
        return ", ".join([*parts, f"largest {self.largest * 1e3:.2f} ms"])


class TimingMonitor:
    """Reads new records of the ring of a device process, which never waits for it.

    Attributes:
        late: Missed deadlines, as the number of skipped cycles.
        holds: Transitions from following a plan to holding within an episode.
        held: Cycles in which the arms held.
        lost: Records that were overwritten before they were read.
        acted: Cycles in which each reason of the safety filter acted.
        cycle: Durations from one cycle to the next.
        jitter: Absolute differences of these from the period.
        starts: Number of the first command of each episode, by session and arm; the reader removes
            its entries.
        commands: Commands sent to each arm so far.
        newest: Newest record of a cycle, or None.
        newest_age_s: Its command age; NaN without a plan in force.
    """

    def __init__(self, memory: Memory, layout: np.dtype[np.void], period_s: float) -> None:
        self._ring = Ring(memory)
        self._layout = layout
        self._period_s = period_s
        self._place = self._ring.marks[Mark.WRITTEN]
        self.cycles = self.late = self.holds = self.held = self.faults = self.lost = 0
        self.acted: Counter[Reason] = Counter()
        self.cycle = RunningQuantiles(2e-5, _LONGEST_CYCLE_S)
        self.jitter = RunningQuantiles(2e-5, _LONGEST_CYCLE_S)
        self.age = RunningQuantiles(1e-3, _OLDEST_S)
        self.starts: dict[int, tuple[int, ...]] = {}
        self.commands: tuple[int, ...] = ()
        self.newest: Record | None = None
        self.newest_age_s = float("nan")
        self._planned: dict[int, float] = {}
        self._number = 0
        self._before = (-1, -1, 0.0, Mode.HOLD)
        self._late = -1

    @classmethod
    def of(cls, device: DeviceProcess, embodiment: Embodiment, period_s: float) -> Self:
        """Builds a monitor of a device process that has an incident log.

        Raises:
            ValueError: The device process has no log.
        """
        if device.incidents is None:
            raise ValueError("The timing monitor needs a device process with an incident log.")
        joints = len(embodiment.joints)
        layout = cycle_layout(state_layout(joints, len(device.servos), len(device.arms)), joints)
        return cls(device.incidents.memory, layout, period_s)

    def update(self) -> None:
        """Reads the new records."""
        data, self._place = self._ring.read(self._place)
        for entry in scan(data):
            if not isinstance(entry, Entry):
                continue
            self.lost += max(0, entry.number - self._number - 1) if self._number else 0
            self._number = entry.number
            if entry.kind == Kind.CYCLE and len(entry.payload) == self._layout.itemsize:
                self._add(np.frombuffer(entry.payload, self._layout).reshape(()))
            elif entry.kind == Kind.CHUNK:
                self._plan(entry.payload)

    def _plan(self, payload: bytes) -> None:
        chunk, _, number = unpack_chunk(payload)
        if number:
            self._planned[number] = float(chunk.time[0])
        while len(self._planned) > _PLANS_KEPT:
            del self._planned[next(iter(self._planned))]

    def _add(self, record: Record) -> None:
        state = record["state"]
        now = float(record["now"])
        number = int(record["chunk"])
        session = int(state["session"])
        tick = int(state["tick"])
        mode = Mode(int(state["mode"]))
        last_session, last_tick, last_now, last_mode = self._before
        same = session == last_session
        if same and tick == last_tick + 1:
            self.cycle.add(max(now - last_now, 0.0))
            self.jitter.add(abs(now - last_now - self._period_s))
        self.commands = tuple(int(count) for count in state["writes"])
        if not same:
            self.starts[session] = tuple(count - 1 for count in self.commands)
        self.late += max(0, int(state["late"]) - self._late) if self._late >= 0 else 0
        self._late = int(state["late"])
        self.holds += same and mode is Mode.HOLD and last_mode is Mode.RUN
        self.faults += mode is Mode.FAULT and not (same and last_mode is Mode.FAULT)
        self.held += mode is not Mode.RUN
        reasons = int(state["reasons"])
        self.acted.update(reason for reason in REASONS if reasons & reason)
        self.newest = record
        self.newest_age_s = float("nan")
        if number in self._planned:
            self.newest_age_s = max(now - self._planned[number], 0.0)
            self.age.add(self.newest_age_s)
        self.cycles = self.cycles + 1
        self._before = (session, tick, now, mode)

    def to_dict(self) -> dict[str, Any]:
        """Returns all statistics as plain JSON."""
        names = ("cycles", "late", "holds", "held", "faults", "lost")
        return {name: getattr(self, name) for name in names} | {
            "cycle": self.cycle.to_dict(),
            "jitter": self.jitter.to_dict(),
            "command_age": self.age.to_dict(),
            "acted": {str(reason.name).lower(): count for reason, count in self.acted.items()},
        }

    def lines(self) -> list[str]:
        """Returns all statistics as lines of text."""
        return [
            f"{self.cycles} cycles, {self.late} deadlines missed, {self.holds} holds, {self.held} "
            f"cycles held, {self.faults} faults.",
            f"cycle:       {self.cycle}",
            f"jitter:      {self.jitter}",
            f"command age: {self.age}",
        ]
