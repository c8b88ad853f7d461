"""The time budget of a chain: its counts follow from the measured speeds of this machine.

A stopwatch measures the phases of a run, and adds up over interruptions.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stringline.datasets.files.atomic import write_file
from stringline.sim.rollout.jobs import Speed

_log = logging.getLogger(__name__)


class Stopwatch:
    """Seconds by phase, in a file that a continued run adds to."""

    def __init__(self, file: Path, phases: tuple[str, ...]) -> None:
        self._file = file
        self.phases = phases
        self.seconds: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}

    def elapsed(self) -> float:
        """Returns the sum of all finished blocks, seconds."""
        return sum(self.seconds.values())

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Times a block, also if it is interrupted."""
        _log.info("%d of %d: %s", self.phases.index(name) + 1, len(self.phases), name)
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_file(self._file, json.dumps(self.seconds, indent=1).encode())


BEFORE_TRIALS = 0.8  # Share of the budget until the end of the training.
REPORT_S = 10.0
# Fewer are no chain, unless the configuration has fewer.
SMALLEST = {"expert_trials": 4, "episodes": 10, "steps": 50, "trials": 5, "emulated_trials": 2}
WORDS = {"expert_trials": "trials of the expert", "episodes": "demonstrations", "steps": "steps"}
FIRST = ("expert_trials", "episodes", "steps")
LAST = ("trials", "emulated_trials")
# No machine of a few cores is faster; they show that a budget is impossible before any measurement.
FASTEST = {
    "expert_trials": Speed(2.0, 0.05),
    "episodes": Speed(2.0, 0.1),
    "steps": Speed(2.0, 0.01),
}
_LARGEST_FACTOR = 1000.0
_HALVINGS = 60


class Budget:
    """The counts of a chain that takes a given time.

    All counts are those of the configuration, multiplied by one factor for demonstrations and
    training and another for the trials, which are planned when the training is over. They are
    stored, so a continued run has the same counts.

    Args:
        file: The file of speeds and counts.
        minutes: Duration of the whole run.
        counts: Number of expert trials, demonstrations, training steps, trials and, if there are
            any, trials through the real protocol by name, as in the configuration.

    Raises:
        ValueError: The file has counts of another budget.
    """

    def __init__(self, file: Path, minutes: float, counts: Mapping[str, int]) -> None:
        self._file = file
        self._minutes = minutes
        self._usual = dict(counts)
        stored: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        self.speeds = {name: Speed(**speed) for name, speed in stored.get("speeds", {}).items()}
        self.counts: dict[str, int] = stored.get("counts", {})
        known = [stored.get("minutes", minutes), stored.get("proportions", self._usual)]
        if self.counts and known != [minutes, self._usual]:
            raise ValueError(
                f"{file.parent} holds a run with minutes={known[0]:g} and the proportions "
                f"{known[1]} (now {minutes:g} and {self._usual}). Choose another output."
            )

    def speed(self, name: str, measured: Callable[[], Speed]) -> None:
        """Measures the speed of a phase, unless it is known from an interrupted run."""
        if name not in self.speeds:
            self.speeds[name] = measured()
            self._save()

    def check(self, elapsed_s: float, done: Mapping[str, int]) -> None:
        """Checks that the smallest useful run is possible, as far as speeds are known.

        Phases that were not measured count with the speed of the fastest machine.

        Args:
            elapsed_s: Duration of the run so far, seconds.
            done: Finished units by name.

        Raises:
            ValueError: The budget is too short.
        """
        if all(name in self.counts for name in FIRST):
            return
        needed = (elapsed_s + self._seconds(FIRST, 0.0, done)) / BEFORE_TRIALS
        if needed > self._minutes * 60:
            smallest = ", ".join(f"{self._count(name, 0.0)} {WORDS[name]}" for name in FIRST)
            measured = all(name in self.speeds for name in FIRST)
            raise ValueError(
                f"minutes is {self._minutes:g}; the smallest useful run ({smallest}) needs "
                f"{'' if measured else 'more than '}{math.ceil(needed / 6) / 10:g} minutes on this "
                "machine."
            )

    def plan_training(self, elapsed_s: float, done: Mapping[str, int]) -> None:
        """Plans the phases until the end of the training, whose speeds are known; see `check`.

        Raises:
            ValueError: The budget is too short for the smallest useful run.
        """
        if all(name in self.counts for name in FIRST):
            return
        self.check(elapsed_s, done)
        self._plan(FIRST, self._minutes * 60 * BEFORE_TRIALS - elapsed_s, done)

    def plan_trials(self, elapsed_s: float, done: Mapping[str, int]) -> None:
        """Plans the trials for the rest of the time, and the smallest number if none is left."""
        last = tuple(name for name in LAST if name in self._usual)
        if not all(name in self.counts for name in last):
            self._plan(last, self._minutes * 60 - REPORT_S - elapsed_s, done)
            for name in last[1:]:
                self.counts[name] = min(self.counts[name], self.counts["trials"])
            self._save()

    def _plan(self, names: tuple[str, ...], left_s: float, done: Mapping[str, int]) -> None:
        low = 0.0
        high = _LARGEST_FACTOR
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if self._seconds(names, middle, done) <= left_s:
                low = middle
            else:
                high = middle
        self.counts |= {name: max(self._count(name, low), done.get(name, 0)) for name in names}
        chosen = ", ".join(f"{name}={self.counts[name]}" for name in names)
        _log.info("%s; they will take %.1f minutes.", chosen, self._seconds(names, low, done) / 60)
        self._save()

    def _count(self, name: str, factor: float) -> int:
        usual = self._usual[name]
        return max(min(SMALLEST[name], usual), int(factor * usual))

    def _seconds(self, names: tuple[str, ...], factor: float, done: Mapping[str, int]) -> float:
        total = 0.0
        for name in names:
            missing = max(self._count(name, factor) - done.get(name, 0), 0)
            speed = self.speeds[name] if name in self.speeds else FASTEST[name]
            total += speed.start_s + missing * speed.each_s
        return total

    def _save(self) -> None:
        stored = {
            "minutes": self._minutes,
            "proportions": self._usual,
            "counts": self.counts,
            "speeds": {name: asdict(speed) for name, speed in self.speeds.items()},
        }
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_file(self._file, json.dumps(stored, indent=1).encode())
