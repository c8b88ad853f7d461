"""Ways of the arms from a period at some speed until rest, measured once."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.safety.measured import Measured
from stringline.real_robot.safety.stage_cycle import Cycle
from stringline.real_robot.safety.surroundings import Surroundings

Vector = NDArray[np.float64]

_SAME_RAD = 1e-12  # Poses of last cycle's path are those of this one, up to rounding.


class BrakingPath(NamedTuple):
    """The poses from the coming period until rest, if the arms brake after it.

    Attributes:
        speed: (J,) of the coming period.
        poses: (T, J). Joints that cannot be sent a command move as well.
        measured: The arms at these poses; while joints wait, also at those without their motion.
        spare: (N, S, A, C) clearance to spare at the measured poses, metres.
        least: (S, A, C) the smallest one.
    """

    speed: Vector
    poses: Vector
    measured: Measured
    spare: Vector
    least: Vector


class BrakingPaths:
    """Measures the paths of a cycle, for all stages.

    Braking continues the path of the last cycle, which was measured then.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self._arms = int(surroundings.arm_of_hinge.max()) + 1
        self._surroundings = surroundings
        self._cycle: Cycle | None = None
        self._found: dict[bytes, BrakingPath] = {}
        self._before: BrakingPath | None = None

    def of(self, cycle: Cycle, speed: Vector) -> BrakingPath:
        """Returns the path of a period at a speed (J,)."""
        self._begin(cycle)
        key = speed.tobytes()
        path = self._found.get(key)
        if path is None:
            path = self._found[key] = self._new(cycle, speed)
        return path

    def start(self, cycle: Cycle) -> Measured:
        """Returns the arms at the last command, as the first pose."""
        self._begin(cycle)
        position = cycle.limiter.position[None]
        if self._before is not None and _same(self._before.poses[:1], position):
            return self._before.measured
        return self._surroundings.measure(position)

    def room(self, cycle: Cycle) -> Vector:
        """Returns the least clearance to spare (A,) on the path of the last command, metres.

        It is infinite where no path was measured.
        """
        self._begin(cycle)
        if self._before is None:
            return np.full(self._arms, np.inf)
        return np.asarray(self._before.least.min(axis=(0, 2), initial=np.inf))

    def _begin(self, cycle: Cycle) -> None:
        """Forgets the paths of the last cycle, except that of its command."""
        if cycle is not self._cycle:
            self._before = self._found.get(cycle.limiter.speed.tobytes())
            self._cycle = cycle
            self._found = {}

    def _new(self, cycle: Cycle, speed: Vector) -> BrakingPath:
        stopping = cycle.limiter.stopping
        poses = all_poses = stopping(speed, cycle.scale)
        if np.any(cycle.waits):
            frozen = stopping(np.where(cycle.waits, 0.0, speed), cycle.scale)
            all_poses = np.concatenate([poses, frozen])
        elif self._before is not None and len(self._before.spare) == len(self._before.poses):
            count = len(poses)
            if _same(self._before.poses[-count:], poses):
                spare = self._before.spare[-count:]
                measured = self._before.measured.last(count)
                return BrakingPath(speed, poses, measured, spare, spare.min(axis=0))
        measured = self._surroundings.measure(all_poses)
        spare = self._surroundings.spare(measured)
        return BrakingPath(speed, poses, measured, spare, spare.min(axis=0))


def _same(a: Vector, b: Vector) -> bool:
    return a.shape == b.shape and bool(np.abs(a - b).max() < _SAME_RAD)
