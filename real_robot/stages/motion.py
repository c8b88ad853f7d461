"""Stages that limit motion: how fast, how suddenly, and where to."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.clearance import Clearance, Room
from stringline.real_robot.limits import SafetyLimits
from stringline.real_robot.reasons import Reason
from stringline.real_robot.stages.cycle import Cycle, Setting, SettledStage

Vector = NDArray[np.float64]

_SOFT_START_SHARE = 0.1
_ROUNDING_M = 1e-9
# Shares of the way from braking to what is wanted, tried in this order when an arm gets too near to something.
_SHARES = np.array([1.0, 0.5, 0.25, 0.0])


class SoftStart(SettledStage):
    """After arming, limits of motion grow from a tenth to all."""

    def act(self, cycle: Cycle) -> None:
        """Sets the share in force."""
        if cycle.elapsed_s < self.limits.soft_start_s:
            cycle.scale = _SOFT_START_SHARE + (1 - _SOFT_START_SHARE) * cycle.elapsed_s / self.limits.soft_start_s


class MotionLimits(SettledStage):
    """Velocity and acceleration are limited against the last command that was sent, with room to stop before every bound."""

    def act(self, cycle: Cycle) -> None:
        """Chooses the speed that follows the target best; without one it brakes, or goes back where it has to."""
        cycle.braking = cycle.speed = cycle.limiter.braking(cycle.scale)
        if cycle.wanted is not None:
            cycle.speed = cycle.limiter.propose(cycle.wanted, cycle.scale)
            return
        cycle.limiter.forget_target()
        if cycle.retreat is not None:
            back = cycle.limiter.settle(cycle.retreat.pose, cycle.scale)
            cycle.speed = np.where(cycle.retreat.joints, back, cycle.braking)


class Space(NamedTuple):
    """Something that arms keep off.

    Attributes:
        reason: What is said when it acts.
        spare: From clearances, how much nearer (A,) each arm may come, metres.
    """

    reason: Reason
    spare: Callable[[Room, SafetyLimits], Vector]


TABLE = Space(Reason.TABLE, lambda room, limits: room.heights - limits.table_clearance)
WALLS = Space(Reason.BOX, lambda room, limits: room.walls)
OTHER_ARM = Space(Reason.OTHER_ARM, lambda room, limits: np.full_like(room.heights, room.between - limits.arm_clearance))
SPACES: tuple[Space, ...] = (TABLE, WALLS, OTHER_ARM)


class KeepClear:
    """The next pose, and the pose in which the arms would come to rest after it, are clear of everything.

    Every mixture of two allowed speeds is allowed. Arms that are too near already may move, but not nearer than braking brings
    them.
    """

    def __init__(self, setting: Setting) -> None:
        embodiment, self._limits = setting.embodiment, setting.limits
        self._clearance = Clearance(embodiment, setting.limits.table_height, setting.limits.box)
        self._arm_of_joint = np.array([embodiment.arms.index(joint.arm) for joint in embodiment.joints])
        self._spaces = SPACES

    def start(self) -> None:
        """Has nothing to forget."""

    def act(self, cycle: Cycle) -> None:
        """Chooses the speed nearest to the wanted one that keeps clear; who brakes does so, whatever is in the way."""
        if cycle.wanted is None and cycle.retreat is None:
            return
        level = np.zeros(len(self._clearance.arms), dtype=np.int64)
        wanted, floor = cycle.speed, None
        while level.min() < len(_SHARES) - 1:
            share = _SHARES[level][self._arm_of_joint]
            cycle.speed = cycle.braking + share * (wanted - cycle.braking)
            spare = self._spare(cycle, cycle.speed)
            blocked = spare < 0
            if blocked.any():
                floor = self._spare(cycle, cycle.braking) if floor is None else floor
                blocked &= spare < floor - _ROUNDING_M
            if not blocked.any():
                return
            for index, space in enumerate(self._spaces):
                if blocked[index].any():
                    cycle.note(space.reason, float(-spare[index][blocked[index]].min()))
            arms: NDArray[np.bool_] = np.logical_or.reduce(blocked, axis=0)
            if (level[arms] == len(_SHARES) - 1).all():
                cycle.speed = np.where(arms[self._arm_of_joint], cycle.braking, cycle.speed)
                return
            level[arms] = np.minimum(level[arms] + 1, len(_SHARES) - 1)
        cycle.speed = cycle.braking

    def _spare(self, cycle: Cycle, speed: Vector) -> Vector:
        """Returns how much nearer (spaces, A) each arm may come, in the worse of the next pose and the pose at rest."""
        rooms = [self._clearance.measure(pose) for pose in cycle.limiter.after(speed, cycle.scale)]
        spares = [[space.spare(room, self._limits) for space in self._spaces] for room in rooms]
        worse: Vector = np.min(np.array(spares).reshape(len(rooms), -1, len(self._clearance.arms)), axis=0)
        return worse
