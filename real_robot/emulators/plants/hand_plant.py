"""The scripted hand that moves emulated leaders along a path, whatever their servos do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.emulators.plants.plant import outcome_without_success


def save_hand(path: Path, time: Vector, position: Vector) -> None:
    """Writes a path: times (T,) in seconds, positions (T, J) in units of the embodiment."""
    with path.open("wb") as file:
        np.savez(file, time=time, position=position)


def load_hand(path: Path, joints: int) -> tuple[Vector, Vector]:
    """Reads a path for that number of joints.

    Raises:
        ValueError: The file is not a path, or is for another embodiment.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            time = arrays["time"].astype(np.float64)
            position = arrays["position"].astype(np.float64)
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is not the path of a hand: {error}.") from error
    grows = time.ndim == 1 and len(time) > 0 and bool((np.diff(time) > 0).all())
    if not grows or position.shape != (len(time), joints) or not np.isfinite(position).all():
        raise ValueError(
            f"The path in {path} has times {time.shape} and positions {position.shape}; allowed: "
            f"growing times (T,) and finite positions (T, {joints})."
        )
    return time - time[0], position


class HandPlant:
    """Joints held by a hand: at the beginning of the path until an episode begins, then along it.

    Args:
        time: (T,) seconds of the path, from 0.
        position: (T, J) positions.
    """

    def __init__(self, time: Vector, position: Vector, *, period_s: float = 0.01) -> None:
        self._time = time
        self._path = position
        self.period_s = period_s
        self._begun = False
        self._steps = 0

    def begin(self, seed: int, options: Mapping[str, Any]) -> None:
        """Begins the path, whatever the seed; options are refused."""
        if options:
            raise ValueError(f"A hand has no options; got {', '.join(options)}.")
        self._begun = True
        self._steps = 0

    def limit_efforts(self, largest: Vector) -> None:
        """Does nothing: the hand is stronger than the servos."""

    def advance(self, target: Vector) -> None:
        """Advances by one period; the hand is stronger than the servos, so targets do not count."""
        self._steps += self._begun

    def measure(self) -> tuple[Vector, Vector, Vector]:
        """Returns positions, velocities and zero efforts."""
        now = self._at(self._steps)
        velocity = (now - self._at(max(self._steps - 1, 0))) / self.period_s
        return now, velocity, np.zeros_like(now)

    def _at(self, steps: int) -> Vector:
        time = steps * self.period_s
        return np.array([np.interp(time, self._time, joint) for joint in self._path.T])

    def frames(self) -> dict[str, Array]:
        """Returns no images."""
        return {}

    def outcome(self) -> dict[str, bool | int | float | str]:
        """Returns an outcome without success; the episode expires at the end of the path."""
        time = self._steps * self.period_s
        return outcome_without_success(time, expired=time >= float(self._time[-1]))

    def close(self) -> None:
        """Does nothing."""
