"""The hand that moves emulated leaders: a way through joint angles, walked in time whatever the servos want."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.embodiment import Embodiment

Vector = NDArray[np.float64]


def save_hand(path: Path, time: Vector, position: Vector) -> None:
    """Writes a way (T,) in seconds, (T, J) in the units of the body."""
    with path.open("wb") as file:
        np.savez(file, time=time, position=position)


def load_hand(path: Path, joints: int) -> tuple[Vector, Vector]:
    """Reads a way.

    Raises:
        ValueError: The file is none, or is for another body.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            time = arrays["time"].astype(np.float64)
            position = arrays["position"].astype(np.float64)
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"{path} holds no way of a hand: {error}.") from error
    grows = time.ndim == 1 and len(time) > 0 and bool((np.diff(time) > 0).all())
    if not grows or position.shape != (len(time), joints) or not np.isfinite(position).all():
        raise ValueError(
            f"The way in {path} has times {time.shape} and positions {position.shape}; allowed: "
            f"growing times (T,) and finite "
            f"positions (T, {joints})."
        )
    return time - time[0], position


class HandPlant:
    """Joints held by a hand: at rest at the beginning of the way until an episode begins, and at its end when it is over.

    Args:
        embodiment: Whose joints they are.
        time: (T,) seconds of the way, from 0.
        position: (T, J).
        period_s: Of one step.
    """

    def __init__(
        self, embodiment: Embodiment, time: Vector, position: Vector, *, period_s: float = 0.01
    ) -> None:
        if position.shape != (len(time), len(embodiment.joints)):
            raise ValueError(
                f"A way of {len(time)} times and positions {position.shape} is none for "
                f"{embodiment.name}."
            )
        self._time = time
        self._way = position
        self.period_s = period_s
        self._begun = False
        self._steps = 0

    def begin(self, seed: int, options: Mapping[str, float]) -> None:
        """Begins the way, whatever the seed; there are no options."""
        if options:
            raise ValueError(f"A hand has no options; got {', '.join(options)}.")
        self._begun = True
        self._steps = 0

    def advance(self, target: Vector) -> None:
        """Goes on by one period; a hand is stronger than the servos of a leader, so their targets do not count."""
        self._steps += self._begun

    def measure(self) -> tuple[Vector, Vector, Vector]:
        """Returns positions, velocities and no efforts."""
        now = self._at(self._steps)
        velocity = (now - self._at(max(self._steps - 1, 0))) / self.period_s
        return now, velocity, np.zeros_like(now)

    def _at(self, steps: int) -> Vector:
        time = steps * self.period_s
        return np.array([np.interp(time, self._time, joint) for joint in self._way.T])

    def frames(self) -> dict[str, Array]:
        """Returns nothing: it has no cameras."""
        return {}

    def outcome(self) -> dict[str, bool | int | float | str]:
        """Returns that nothing is to be achieved; the episode expires with the way."""
        time = self._steps * self.period_s
        return {
            "success": False,
            "stage": 0,
            "stage_name": "start",
            "time": time,
            "expired": time >= float(self._time[-1]),
        }

    def close(self) -> None:
        """Holds nothing."""
