"""Stages that judge what the robot reports."""

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.driver_interface.interlocks import FIRST_STOP, FOLLOWED, Bar
from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.stage_cycle import Cycle, Retreat, Setting, SettledStage

_FAULT_EFFORT_FACTOR = 5
_OLDEST_STATE_PERIODS = 3
_ROUNDING_S = _ROUNDING_RAD = 1e-9


class PortsAlive(SettledStage):
    """A port that is gone is a fault."""

    def act(self, cycle: Cycle) -> None:
        """Looks at the ports."""
        if cycle.state.lost.any():
            cycle.fault(Reason.LINK_LOST, float(cycle.state.lost.sum()))


class NoServoError(SettledStage):
    """A hardware error, lost torque or an expired bus watchdog is a fault."""

    def act(self, cycle: Cycle) -> None:
        """Looks at the error bits."""
        if cycle.state.servo_error.any():
            cycle.fault(Reason.SERVO_ERROR, float(np.count_nonzero(cycle.state.servo_error)))


class ControllersTakeCommands:
    """A controller that takes no commands makes all arms hold; one that has stopped its arm is a fault.

    Commands go on from where that controller has its arm, never from those that it has not
    followed. For an arm that cannot be sent a command, time stands still: later commands go on from
    the last that was sent.
    """

    def __init__(self, setting: Setting) -> None:
        arms = setting.embodiment.arms
        self._arm_of_joint = np.array(
            [arms.index(joint.arm) for joint in setting.embodiment.joints]
        )

    def start(self) -> None:
        """Has nothing to forget."""

    def act(self, cycle: Cycle) -> None:
        """Looks at what controllers say."""
        if len(cycle.state.asked):
            cycle.waits = ~cycle.state.asked[self._arm_of_joint]
        barred = cycle.state.barred
        if not barred.any():
            return
        gravest = int(barred.max())
        if gravest >= FIRST_STOP:
            cycle.fault(Reason.STOPPED, gravest)
        else:
            cycle.hold(Reason.BARRED, gravest)
        cycle.limiter.restart(self._idle(cycle)[self._arm_of_joint], cycle.state.anchor)

    def _idle(self, cycle: Cycle) -> NDArray[np.bool_]:
        """Returns which arms (A,) stand by themselves; the others brake, unless they have stopped and stand elsewhere."""
        barred = cycle.state.barred
        apart = np.abs(cycle.limiter.position - cycle.state.anchor) > _ROUNDING_RAD
        elsewhere = np.array([apart[self._arm_of_joint == arm].any() for arm in range(len(barred))])
        brakes = np.isin(barred, FOLLOWED) & ~(elsewhere & (barred >= FIRST_STOP))
        return np.asarray((barred != Bar.NONE) & ~brakes)


class AllServosAnswer(SettledStage):
    """A servo that keeps silent makes the arms hold; if it lasts, it is a fault."""

    def act(self, cycle: Cycle) -> None:
        """Looks at the servo that has been silent for longest."""
        misses = int(cycle.state.servo_misses.max())
        if misses >= self.limits.fault_after_misses:
            cycle.fault(Reason.SERVO_SILENT, misses)
        elif misses >= self.limits.hold_after_misses:
            cycle.hold(Reason.SERVO_SILENT, misses)


class FreshState(SettledStage):
    """Arms are not moved by what was measured more than three periods ago."""

    def act(self, cycle: Cycle) -> None:
        """Compares the time of the measurement with now."""
        age_s = cycle.now - cycle.state.time
        if age_s > _OLDEST_STATE_PERIODS * self.period_s + _ROUNDING_S:
            cycle.hold(Reason.OLD_STATE, age_s)


class EffortInBounds:
    """A joint that works too hard for too long makes the arms hold and its arm let go; a fault if it lasts, or comes again.

    A goal beyond an obstacle presses on for as long as it is held. So the hinges of that arm go
    back to where they were measured when one had worked too hard for too long. That is looked at
    once in a hold: gravity keeps arms below their goals, and goals that followed them would sink
    with them. Grippers keep their goals, and what they carry.

    The hold ends when no joint has been strained for as long as one may be. Holds add up, until
    none was strained for five times that: whoever pushes again as soon as the arms have let go ends
    in a fault as well.
    """

    def __init__(self, setting: Setting) -> None:
        self._limits = setting.limits
        self._period_s = setting.period_s
        arms = setting.embodiment.arms
        self._arm_of_joint = np.array(
            [arms.index(joint.arm) for joint in setting.embodiment.joints]
        )
        self.start()

    def start(self) -> None:
        """Forgets past strain."""
        self._strained_s = np.zeros(len(self._limits.lower))
        self._calm_s = self._held_s = 0.0
        self._retreat: Retreat | None = None

    def act(self, cycle: Cycle) -> None:
        """Measures how long each joint has been strained, and for how long arms have held because of that."""
        strained = np.abs(cycle.state.effort) > self._limits.effort
        self._strained_s = np.where(strained, self._strained_s + self._period_s, 0.0)
        self._calm_s = 0.0 if strained.any() else self._calm_s + self._period_s
        patience = self._limits.hold_after_effort_s
        too_long = self._strained_s > patience
        if too_long.any() or (self._retreat is not None and self._calm_s <= patience):
            self._held_s += self._period_s
            cycle.retreat = self._retreat = self._letting_go(too_long, cycle.state)
            react = (
                cycle.fault
                if patience + self._held_s > _FAULT_EFFORT_FACTOR * patience
                else cycle.hold
            )
            react(Reason.EFFORT, patience + self._held_s)
            return
        self._retreat = None
        if self._calm_s > _FAULT_EFFORT_FACTOR * patience:
            self._held_s = 0.0

    def _letting_go(self, too_long: NDArray[np.bool_], state: ArmState) -> Retreat:
        """Returns the retreat so far, with the hinges of those arms that have to let go from now on."""
        none = np.zeros(len(too_long), dtype=np.bool_)
        joints, pose = self._retreat or Retreat(none, state.position)
        # An arm whose controller takes no commands is not led anywhere, and may be elsewhere when
        # it does again.
        led = ~(state.barred > 0)[self._arm_of_joint] if len(state.barred) else ~none
        of_arm = np.isin(self._arm_of_joint, self._arm_of_joint[too_long]) & np.isfinite(
            self._limits.effort
        )
        begins = of_arm & led & ~joints
        return Retreat((joints & led) | begins, np.where(begins, state.position, pose))


class CoolEnough(SettledStage):
    """A servo that gets too warm makes the arms hold, one that is hot is a fault: before it shuts down, and its joint falls."""

    def act(self, cycle: Cycle) -> None:
        """Looks at the warmest servo."""
        warmest = float(cycle.state.temperature.max(initial=0))
        if warmest >= self.limits.fault_temperature:
            cycle.fault(Reason.HOT, warmest)
        elif warmest >= self.limits.hold_temperature:
            cycle.hold(Reason.HOT, warmest)


class FaultLatch:
    """A fault stays one until somebody resets it."""

    def __init__(self, setting: Setting) -> None:
        self.start()

    def start(self) -> None:
        """Resets."""
        self._kept = Reason(0)

    def act(self, cycle: Cycle) -> None:
        """Keeps the faults so far."""
        self._kept |= cycle.faults
        cycle.faults = self._kept
