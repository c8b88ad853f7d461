"""A world whose state is its last action; picklable."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tests.policies.scripted import CONTRACT, seen
from tests.sim.deaths import Deaths

from stringline.datasets.contract.contract import Array


@dataclass
class Outcome:
    """The outcome of a step."""

    time: float
    expired: bool
    success: bool = False
    stage: int = 0
    unstable: bool = False


@dataclass
class Task:
    """One stage."""

    stages: tuple[str, ...] = ("start",)


@dataclass
class Track:
    """A point on a line, for a number of control periods."""

    steps: int = 30
    contract = CONTRACT
    task = Task()
    frame_due = False

    def begin(self, seed: int | None = None, options: Mapping[str, float] | None = None) -> None:
        self.step, self.x = 0, 0.0

    def observe(self, cameras: bool = True) -> dict[str, Array]:
        return seen(self.step) | {"joints/position": np.array([self.x], np.float32)}

    def advance(self, action: NDArray[np.float64]) -> Outcome:
        self.x, self.step = float(action[0]), self.step + 1
        return Outcome(self.step / self.contract.control_hz, self.step >= self.steps)

    def close(self) -> None:
        """Does nothing."""


class SlowTrack(Track):
    """The same, but slow enough for an interruption."""

    def advance(self, action: NDArray[np.float64]) -> Outcome:
        time.sleep(0.01)
        return super().advance(action)


class MortalTrack(Track):
    """The same, but the episodes in `deaths` end the process."""

    deaths: Deaths

    def begin(self, seed: int | None = None, options: Mapping[str, float] | None = None) -> None:
        self.deaths.begin(seed)
        super().begin(seed, options)


def mortal_track(deaths: Deaths, steps: int) -> MortalTrack:
    track = MortalTrack(steps)
    track.deaths = deaths
    return track
