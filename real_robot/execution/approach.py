"""Slow motions to a given pose, before an episode and at its end, through the safety filter."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.device.device_process import DeviceProcess, braked_on_error, hold_reasons
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.execution.lock_step import explain_fault
from stringline.real_robot.safety.reasons import MESSAGES, REASONS, Mode, Reason

_POLL_S = 0.02
_WAYPOINT_S = 0.02
_STEPS = 25
_ARRIVED = 0.1  # rad or opening; gravity and a gripper's play keep real arms within less.
_SETTLE_S = 5.0
_RESTS = 0.05  # Openings per second: noise of an encoder, and less than that of a closing gripper.


class _StoppedError(Exception):
    """The caller stopped the motion."""


class _FaultError(Exception):
    """The safety filter reports a fault, for these reasons."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(" ".join(reasons))
        self.reasons = reasons


class _HeldError(Exception):
    """The arms hold, so the timetable of the motion no longer fits."""


@dataclass(frozen=True, eq=False)
class _Goal:
    """The pose (J,) of a motion, its name in messages, and what may stop the motion."""

    pose: Vector
    name: str
    seconds: float
    stop: Callable[[], bool]

    def distance(self, state: DeviceState) -> float:
        """Returns the largest distance of a joint, rad or opening."""
        return float(np.abs(state.arms.position - self.pose).max())

    def deadline(self) -> float:
        """Returns the latest arrival of a motion that begins now."""
        return time.monotonic() + 2 * self.seconds + _SETTLE_S


def least_jerk(share: Vector) -> Vector:
    """Returns the share of the way (T, 1) at shares (T,) of the time, between two rests.

    The motion has the least jerk; Flash and Hogan (1985), "The coordination of arm movements".
    """
    return np.asarray((10 * share**3 - 15 * share**4 + 6 * share**5)[:, None])


class Approach:
    """Moves arms to poses.

    While the arms hold for another reason than a missing target, the timetable stops. Then the
    motion begins again from the measured pose, at rest, and is not faster than before.

    Args:
        device: Connected and armed device process, in real time.
        watch: Receives each state on the way.
        reset: Reports the reasons of a fault, and returns whether the operator resets it; the
            motion then begins again. If None, a fault ends the motion.
    """

    def __init__(
        self,
        device: DeviceProcess,
        embodiment: Embodiment,
        *,
        watch: Callable[[DeviceState], None] = lambda _: None,
        reset: Callable[[list[str]], bool] = lambda _: False,
    ) -> None:
        self._device = device
        self._embodiment = embodiment
        self._watch = watch
        self._reset = reset

    def to(
        self, pose: Vector, seconds: float, name: str, stop: Callable[[], bool] = lambda: False
    ) -> bool:
        """Begins a new episode of the device, moves the arms and waits for their arrival.

        A gripper at rest that is wider than in the pose holds an object, and has arrived.

        Args:
            pose: (J,).
            seconds: Duration; the safety filter may extend it.
            name: Name of the pose in messages.
            stop: Called all the way; the arms brake as soon as it returns True, as they do at
                Ctrl-C and at an error.

        Returns:
            Whether the arms have arrived; False if they were stopped.

        Raises:
            RuntimeError: The safety filter reports a fault that is not reset, or the arms do not
                arrive. The time in which a person does not hold hold-to-run is not limited.
        """
        goal = _Goal(pose, name, seconds, stop)
        while True:
            try:
                with braked_on_error(self._device):
                    self._move(goal)
                return True
            except _StoppedError:
                return False
            except _FaultError as fault:
                if not self._reset(fault.reasons):
                    raise RuntimeError(f"On the way to {name}: {fault}") from None

    def _move(self, goal: _Goal) -> None:
        self._device.begin()
        farthest = max(goal.distance(self._device.latest()), _ARRIVED)
        deadline = goal.deadline()
        seconds = goal.seconds
        while True:
            deadline = self._await_permission(goal, deadline)
            try:
                self._follow(goal, seconds)
                self._settle(goal, deadline)
                return
            except _HeldError:
                self._drop_plan()
                # Neither speed nor acceleration exceed those of the whole way.
                share = goal.distance(self._device.latest()) / farthest
                seconds = goal.seconds * max(share, math.sqrt(share))

    def _follow(self, goal: _Goal, seconds: float) -> None:
        """Moves from the measured pose, at rest; grippers from their goals, to keep their grip."""
        state = self._device.latest()
        arms = state.arms
        start = arms.position.copy()
        grippers = list(self._embodiment.grippers.values())
        start[grippers] = state.command[grippers]
        share = np.linspace(0.0, 1.0, max(round(seconds / _WAYPOINT_S), 1) + 1)
        way = start + least_jerk(share) * (goal.pose - start)
        due: Vector = arms.time + _WAYPOINT_S * np.arange(len(way), dtype=np.float64)
        for first in range(0, len(way), _STEPS):
            # Twice as long as the wait below, so that a target is always due.
            part = slice(first, first + 2 * _STEPS)
            self._device.send(ActionChunk(due[part], way[part].astype(np.float32)))
            self._wait(float(due[min(first + _STEPS, len(way) - 1)]), goal)

    def _settle(self, goal: _Goal, deadline: float) -> None:
        """Keeps the pose due until the arms have come near it."""
        pose = goal.pose
        while True:
            state = self._device.latest()
            off = self._off(state, pose)
            if off.max() <= _ARRIVED:
                return
            if time.monotonic() > deadline:
                joint = self._embodiment.joints[int(off.argmax())].name
                raise RuntimeError(
                    f"The arms did not reach {goal.name}: {joint} is {off.max():.2f} away. Is "
                    "something in the way?"
                )
            due = state.arms.time + _WAYPOINT_S * np.arange(2 * _STEPS, dtype=np.float64)
            self._device.send(ActionChunk(due, np.tile(pose, (len(due), 1)).astype(np.float32)))
            self._wait(time.monotonic() + _STEPS * _WAYPOINT_S, goal)

    def _off(self, state: DeviceState, pose: Vector) -> Vector:
        """Returns the distances (J,) from a pose; 0 for a gripper at rest that is too wide.

        Such a gripper has closed on an object.
        """
        arms = state.arms
        off = np.abs(arms.position - pose)
        for joint in self._embodiment.grippers.values():
            if arms.position[joint] > pose[joint] and abs(arms.velocity[joint]) <= _RESTS:
                off[joint] = 0.0
        return off

    def _drop_plan(self) -> None:
        """Replaces the plan in force by a target of the past, which has expired.

        Otherwise its targets, by then far ahead, would be followed when the hold ends. A new
        episode would drop the plan as well, but also forget earlier overloads of the arms.
        """
        arms = self._device.latest().arms
        self._device.send(
            ActionChunk(np.array([arms.time]), arms.position[None].astype(np.float32))
        )

    def _await_permission(self, goal: _Goal, deadline: float) -> float:
        """Waits until no reason holds the arms, and returns the deadline of the rest of the way.

        A person may take any time; other reasons must end before the deadline.
        """
        while hold_reasons(state := self._look(goal)):
            if state.reasons & Reason.RELEASED:
                deadline = goal.deadline()
            elif time.monotonic() > deadline:
                why = "; ".join(MESSAGES[reason] for reason in REASONS if reason & state.reasons)
                raise RuntimeError(f"The arms did not reach {goal.name}: {why}.")
            time.sleep(_POLL_S)
        return deadline

    def _wait(self, until: float, goal: _Goal) -> None:
        while True:
            state = self._look(goal)
            if hold_reasons(state):
                raise _HeldError
            if time.monotonic() >= until:
                return
            time.sleep(_POLL_S)

    def _look(self, goal: _Goal) -> DeviceState:
        """Returns the newest state, after the checks for a fault and for `stop`."""
        state = self._device.latest()
        self._watch(state)
        if state.mode is Mode.FAULT:
            raise _FaultError(explain_fault(state, self._device))
        if goal.stop():
            raise _StoppedError
        return state
