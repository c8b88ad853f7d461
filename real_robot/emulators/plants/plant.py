"""The interface of the worlds that emulated robots move, and the simplest one."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.real_robot.emulators.plants.held_objects import HeldObjects
from stringline.real_robot.emulators.plants.test_pattern import TestPattern

_TIME_CONSTANT_S = 0.05  # In which a joint covers 63 % of the way.
_FROM_CAMERAS = ("rgb/", "depth/", "intrinsics/", "time/")


def from_cameras(seen: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the parts of an observation that real cameras measure; their poses are not."""
    return {key: value for key, value in seen.items() if key.startswith(_FROM_CAMERAS)}


def outcome_without_success(time: float, *, expired: bool) -> dict[str, bool | int | float | str]:
    """Returns the outcome of a world without a task; `time` in seconds."""
    return {"success": False, "stage": 0, "stage_name": "start", "time": time, "expired": expired}


class Plant(Protocol):
    """Joints that follow targets. Vectors are (J,) in the order and units of the embodiment."""

    @property
    def period_s(self) -> float:
        """Seconds by which `advance` advances the world."""
        ...

    def begin(self, seed: int, options: Mapping[str, Any]) -> None:
        """Begins an episode."""
        ...

    def limit_efforts(self, largest: Vector) -> None:
        """Limits the efforts of the joints from now on; infinite: only their own limits hold."""
        ...

    def advance(self, target: Vector) -> None:
        """Drives the joints towards the targets for one period."""
        ...

    def measure(self) -> tuple[Vector, Vector, Vector]:
        """Returns positions, velocities and efforts."""
        ...

    def frames(self) -> dict[str, Array]:
        """Returns the latest images by the keys of the contract, in times of the plant."""
        ...

    def outcome(self) -> dict[str, bool | int | float | str]:
        """Returns `success`, `stage`, `stage_name`, `time` in seconds and `expired`."""
        ...

    def close(self) -> None:
        """Frees its resources."""
        ...


class FirstOrderPlant:
    """Joints that approach their targets exponentially, without gravity.

    The only contacts are those of grippers with objects.

    Args:
        time_limit_s: Seconds until an episode expires.

    Attributes:
        objects: What is between the pads of the grippers.
    """

    def __init__(
        self,
        embodiment: Embodiment,
        *,
        period_s: float = 0.01,
        time_limit_s: float = 15.0,
        pattern: TestPattern | None = None,
    ) -> None:
        self._pattern = pattern
        self._home = embodiment.home
        self.period_s = period_s
        self._time_limit_s = time_limit_s
        self._share = 1 - np.exp(-period_s / _TIME_CONSTANT_S)
        self._position = self._home.copy()
        self._velocity = np.zeros_like(self._home)
        self._effort = np.zeros_like(self._home)
        self._largest = np.full_like(self._home, np.inf)
        self.objects = HeldObjects(embodiment)
        self._steps = 0

    def begin(self, seed: int, options: Mapping[str, Any]) -> None:
        """Moves the joints to the home pose, whatever the seed; options are refused."""
        if options:
            raise ValueError(f"The first-order plant has no options; got {', '.join(options)}.")
        self._position = self._home.copy()
        self._velocity = np.zeros_like(self._home)
        self._effort = np.zeros_like(self._home)
        self.objects.clear()
        self._steps = 0

    def limit_efforts(self, largest: Vector) -> None:
        """Limits the efforts (J,) with which grippers push against objects, N."""
        self._largest = largest

    def advance(self, target: Vector) -> None:
        """Covers a fixed share of the way to the targets."""
        before = self._position
        free = before + self._share * (target - before)
        self._position, self._effort = self.objects.stop(free, target, self._largest)
        self._velocity = (self._position - before) / self.period_s
        self._steps += 1

    def measure(self) -> tuple[Vector, Vector, Vector]:
        """Returns positions, velocities, and the efforts of grippers against objects."""
        return self._position, self._velocity, self._effort

    def frames(self) -> dict[str, Array]:
        """Returns the images of this time."""
        return {} if self._pattern is None else self._pattern.at(self._steps * self.period_s)

    def outcome(self) -> dict[str, bool | int | float | str]:
        """Returns an outcome without success."""
        time = self._steps * self.period_s
        return outcome_without_success(time, expired=time >= self._time_limit_s - 1e-9)

    def close(self) -> None:
        """Does nothing."""
