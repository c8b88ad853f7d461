"""Stages that check the reported state of the robot, and the inputs that permit its motion.

The first stage is `SoundState`: nothing is decided on values that are no numbers, or on times that
lie ahead. A comparison with NaN is always false, so a later stage might accept such a value. The
inputs are those by which a person or a cell permits motion: hold-to-run and the external stop.
"""

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.driver_interface.interlocks import FIRST_STOP, FOLLOWED, Interlock
from stringline.real_robot.ipc.heartbeat import is_age
from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.stage_context import (
    Cycle,
    Freshness,
    Retreat,
    StageContext,
    StatelessStage,
)

_OPTIONAL = ("commanded", "gripper_goals")


class StateCheck:
    """Checks that all values of the states of an embodiment are numbers, with a possible time."""

    def __init__(self, embodiment: Embodiment) -> None:
        joints = [joint.name for joint in embodiment.joints]
        grippers = [joint.name for joint in embodiment.joints if joint.kind == "gripper"]
        every = dict.fromkeys(("position", "velocity", "effort", "commanded"), joints)
        self._names = every | {"gripper_goals": grippers}

    def wrong_fields(self, state: ArmState, now: float = np.inf) -> list[str]:
        """Returns the fields that cannot be used at a time; without one, times ahead may be."""
        time_is_sound = is_age(now - state.time) and np.isfinite(state.time)
        found = [] if time_is_sound else ["time"]
        return found + [
            field
            for field, names in self._names.items()
            if not self._is_sound(field, getattr(state, field), len(names))
        ]

    @staticmethod
    def _is_sound(field: str, values: Any, count: int) -> bool:
        right = np.shape(values) == (count,) or (field in _OPTIONAL and np.shape(values) == (0,))
        return right and bool(np.isfinite(values).all())

    def problems(self, state: ArmState, now: float = np.inf) -> list[str]:
        """Returns a phrase for each value that cannot be used: `effort of left/waist nan`."""
        found = []
        for field in self.wrong_fields(state, now):
            values = getattr(state, field)
            names = self._names.get(field, [])
            if field == "time":
                found.append(f"time {state.time}")
            elif np.shape(values) != (len(names),):
                found.append(f"{field} of shape {np.shape(values)}")
            else:
                pairs = zip(names, np.asarray(values).tolist(), strict=True)
                found += [f"{field} of {name} {one}" for name, one in pairs if not np.isfinite(one)]
        return found

    def repaired(self, state: ArmState, before: ArmState, now: float = np.inf) -> ArmState:
        """Returns a state in which the values of a sound one replace those that cannot be used."""
        changes: dict[str, Any] = {}
        for field in self.wrong_fields(state, now):
            values = getattr(state, field)
            kept = getattr(before, field)
            alike = np.shape(values) == np.shape(kept)
            changes[field] = np.where(np.isfinite(values), values, kept) if alike else kept
        if "time" in changes:
            changes["time"] = before.time
        return replace(state, **changes) if changes else state


class SoundState(StatelessStage):
    """A measured value that is no number is a fault, and so is a time or an age that cannot be.

    Later stages get the last sound values in their place, by which the arms brake.
    """

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._check = StateCheck(context.embodiment)

    def act(self, cycle: Cycle) -> None:
        """Counts the fields, and the ages of inputs, that cannot be used."""
        wrong = self._check.wrong_fields(cycle.state, cycle.now)
        if wrong:
            cycle.state = self._check.repaired(cycle.state, cycle.before, cycle.now)
        count = len(wrong) + _wrong_ages(cycle.freshness)
        # These would make arms in motion stand.
        if not is_age(cycle.freshness.suspended_s):
            cycle.freshness = replace(cycle.freshness, suspended_s=0.0)
        if not is_age(cycle.freshness.ahead_s):
            cycle.freshness = replace(cycle.freshness, ahead_s=0.0)
        if not is_age(cycle.freshness.delayed_s):
            cycle.freshness = replace(cycle.freshness, delayed_s=0.0)
        if count:
            cycle.fault(Reason.BAD_STATE, count)


def _wrong_ages(freshness: Freshness) -> int:
    ages = [getattr(freshness, field.name) for field in fields(freshness)]
    single = [age for age in ages if not isinstance(age, tuple)]
    return sum(not is_age(age) for age in (*single, *freshness.image_ages_s))


_FAULT_EFFORT_FACTOR = 5
_OLDEST_STATE_PERIODS = 3
_ROUNDING_S = _ROUNDING_RAD = 1e-9


class PortsAlive(StatelessStage):
    """A lost port is a fault."""

    def act(self, cycle: Cycle) -> None:
        """Counts the lost ports."""
        if cycle.state.lost.any():
            cycle.fault(Reason.LINK_LOST, float(cycle.state.lost.sum()))


class NoServoError(StatelessStage):
    """A hardware error, lost torque or an expired bus watchdog is a fault."""

    def act(self, cycle: Cycle) -> None:
        """Counts the servos with error bits."""
        if cycle.state.servo_error.any():
            cycle.fault(Reason.SERVO_ERROR, float(np.count_nonzero(cycle.state.servo_error)))


class ControllersTakeCommands(StatelessStage):
    """A controller that accepts no commands makes all arms hold; a stopped arm is a fault.

    Commands continue from the position at which the controller holds its arm, never from commands
    that it did not follow. While no command can be sent to an arm, its commands are frozen: later
    ones continue from the last one that was sent.
    """

    def act(self, cycle: Cycle) -> None:
        """Reads the interlocks, and restarts the commands of arms that stand by themselves."""
        if len(cycle.state.accepts):
            cycle.waits = ~cycle.state.accepts[self.context.arm_of_joint]
        interlock = cycle.state.interlock
        if not interlock.any():
            return
        gravest = int(interlock.max())
        if gravest >= FIRST_STOP:
            cycle.fault(Reason.STOPPED, gravest)
        else:
            cycle.hold(Reason.CONTROLLER_REFUSES, gravest)
        cycle.limiter.restart(self._idle(cycle)[self.context.arm_of_joint], cycle.state.anchor)

    def _idle(self, cycle: Cycle) -> NDArray[np.bool_]:
        """Returns the arms (A,) that stand by themselves, instead of being braked by commands."""
        interlock = cycle.state.interlock
        apart = np.abs(cycle.limiter.position - cycle.state.anchor) > _ROUNDING_RAD
        arm_of_joint = self.context.arm_of_joint
        elsewhere = np.array([apart[arm_of_joint == arm].any() for arm in range(len(interlock))])
        brakes = np.isin(interlock, FOLLOWED) & ~(elsewhere & (interlock >= FIRST_STOP))
        return np.asarray((interlock != Interlock.NONE) & ~brakes)


class AllServosAnswer(StatelessStage):
    """A silent servo makes the arms hold, and is a fault if it stays silent."""

    def act(self, cycle: Cycle) -> None:
        """Compares the largest number of missed answers with its limits."""
        misses = int(cycle.state.servo_misses.max())
        if misses >= self.limits.fault_after_misses:
            cycle.fault(Reason.SERVO_SILENT, misses)
        elif misses >= self.limits.hold_after_misses:
            cycle.hold(Reason.SERVO_SILENT, misses)


class FreshState(StatelessStage):
    """The arms hold if the measured state is older than three periods."""

    def act(self, cycle: Cycle) -> None:
        """Compares the age of the state with its limit."""
        age_s = cycle.now - cycle.state.time
        if not age_s <= _OLDEST_STATE_PERIODS * self.period_s + _ROUNDING_S:
            cycle.hold(Reason.OLD_STATE, age_s)


class EffortInBounds(StatelessStage):
    """A lasting overload makes the arms hold and its arm retreat; a repeated one is a fault.

    A goal beyond an obstacle presses on for as long as it is held. So the revolute joints of an
    overloaded arm return to their measured positions. These are read once in a hold: gravity keeps
    arms below their goals, and goals that followed the measurement would sink with the arm.
    Grippers keep their goals, and their loads. While hold-to-run is released, after an external
    stop and without a supervisor the arm brakes instead: see `Cycle.retreat`.

    The hold ends when no joint was overloaded for as long as one may be. Durations of holds add up
    until no joint was overloaded for five times that, so repeated pressing is a fault as well.
    """

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self.start()

    def start(self) -> None:
        """Forgets past overload."""
        self._strained_s = np.zeros(len(self.limits.lower))
        self._calm_s = self._held_s = 0.0
        self._retreat: Retreat | None = None

    def act(self, cycle: Cycle) -> None:
        """Measures the overload of each joint and the total duration of holds."""
        strained = ~(np.abs(cycle.state.effort) <= self.limits.effort)
        self._strained_s = np.where(strained, self._strained_s + self.period_s, 0.0)
        self._calm_s = 0.0 if strained.any() else self._calm_s + self.period_s
        patience = self.limits.hold_after_effort_s
        too_long = self._strained_s > patience
        if too_long.any() or (self._retreat is not None and self._calm_s <= patience):
            self._held_s += self.period_s
            cycle.planned_retreat = self._retreat = self._extended_retreat(too_long, cycle.state)
            lasts = patience + self._held_s > _FAULT_EFFORT_FACTOR * patience
            react = cycle.fault if lasts else cycle.hold
            react(Reason.EFFORT, patience + self._held_s)
            return
        self._retreat = None
        if self._calm_s > _FAULT_EFFORT_FACTOR * patience:
            self._held_s = 0.0

    def _extended_retreat(self, too_long: NDArray[np.bool_], state: ArmState) -> Retreat:
        """Returns the current retreat, extended by the revolute joints of newly overloaded arms."""
        none = np.zeros(len(too_long), dtype=np.bool_)
        joints, pose = self._retreat or Retreat(none, state.position)
        arm_of_joint = self.context.arm_of_joint
        # An arm whose controller accepts no commands does not follow a retreat, and may be
        # elsewhere when it accepts them again.
        led = ~(state.interlock > 0)[arm_of_joint] if len(state.interlock) else ~none
        of_arm = np.isin(arm_of_joint, arm_of_joint[too_long]) & np.isfinite(self.limits.effort)
        begins = of_arm & led & ~joints
        return Retreat((joints & led) | begins, np.where(begins, state.position, pose))


class CoolEnough(StatelessStage):
    """A warm servo makes the arms hold; a hot one is a fault before it shuts down."""

    def act(self, cycle: Cycle) -> None:
        """Compares the highest temperature with its limits."""
        warmest = float(cycle.state.temperature.max(initial=0))
        if not warmest < self.limits.fault_temperature:
            cycle.fault(Reason.HOT, warmest)
        elif not warmest < self.limits.hold_temperature:
            cycle.hold(Reason.HOT, warmest)


class FaultLatch:
    """Keeps a fault until an operator resets it."""

    def __init__(self, context: StageContext) -> None:
        self.start()

    def start(self) -> None:
        """Resets the fault."""
        self._kept = Reason(0)

    def act(self, cycle: Cycle) -> None:
        """Adds the earlier faults to those of this cycle."""
        self._kept |= cycle.faults
        cycle.faults = self._kept


class StopLineClosed(StatelessStage):
    """An external stop is a fault, and so is the loss of its line."""

    def act(self, cycle: Cycle) -> None:
        """Compares the time since the line last permitted motion with its limit."""
        if not cycle.freshness.stop_line_age_s <= self.limits.oldest_stop_line_s:
            cycle.fault(Reason.EXTERNAL_STOP, cycle.freshness.stop_line_age_s)


class HeldToRun(StatelessStage):
    """The arms hold while nobody holds the key, pedal or input of hold-to-run."""

    def act(self, cycle: Cycle) -> None:
        """Compares the time since the last permission with its limit."""
        if not cycle.freshness.permission_age_s <= self.limits.oldest_permission_s:
            cycle.hold(Reason.RELEASED, cycle.freshness.permission_age_s)
