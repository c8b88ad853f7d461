"""Slow moves to a given pose, before an episode and at its end; the safety filter sees them like any plan."""

import time
from collections.abc import Callable

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.device.braking import brake, braked_on_error
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.execution.lock_step import explain_fault
from stringline.real_robot.safety.reasons import Mode

_LOOK_S = 0.02
_WAYPOINT_S = 0.02
_STEPS = 25
_ARRIVED = 0.1  # rad or opening; less than gravity and a gripper's play may keep real arms from.
_SETTLE_S = 5.0


class _StoppedError(Exception):
    """Somebody said stop."""


class Approach:
    """Moves arms to poses.

    Args:
        device: Connected and armed, by the clock.
        embodiment: The body.
        watch: Gets each state on the way.
    """

    def __init__(
        self,
        device: DeviceProcess,
        embodiment: Embodiment,
        *,
        watch: Callable[[DeviceState], None] = lambda _: None,
    ) -> None:
        self._device = device
        self._embodiment = embodiment
        self._watch = watch

    def to(
        self, pose: Vector, seconds: float, what: str, stop: Callable[[], bool] = lambda: False
    ) -> bool:
        """Begins a new episode of the device, moves the arms and waits until they are there.

        Args:
            pose: (J,).
            seconds: How long the way takes; the safety filter may make it longer.
            what: Words for the pose.
            stop: Asked all the way; the arms brake as soon as it says so, as they do at Ctrl-C and
                at an error.

        Returns:
            Whether they are there; not, if they were stopped.

        Raises:
            RuntimeError: The safety filter reports a fault, or the arms do not arrive.
        """
        with braked_on_error(self._device):
            try:
                self._move(pose, seconds, what, stop)
            except _StoppedError:
                brake(self._device)
                return False
        return True

    def _move(self, pose: Vector, seconds: float, what: str, stop: Callable[[], bool]) -> None:
        self._device.begin()
        state = self._device.latest()
        share = np.linspace(0.0, 1.0, max(round(seconds / _WAYPOINT_S), 1) + 1)
        smooth = (10 * share**3 - 15 * share**4 + 6 * share**5)[
            :, None
        ]  # Least jerk between two poses at rest.
        way = state.arms.position + smooth * (pose - state.arms.position)
        due: Vector = state.arms.time + _WAYPOINT_S * np.arange(len(way), dtype=np.float64)
        for first in range(0, len(way), _STEPS):
            # Twice as far as is waited for, so that there always is a target.
            part = slice(first, first + 2 * _STEPS)
            self._device.send(ActionChunk(due[part], way[part].astype(np.float32)))
            self._wait(float(due[min(first + _STEPS, len(way) - 1)]), what, stop)
        self._settle(pose, time.monotonic() + seconds + _SETTLE_S, what, stop)

    def _settle(self, pose: Vector, deadline: float, what: str, stop: Callable[[], bool]) -> None:
        """Keeps the pose due until the arms have come near it."""
        while True:
            state = self._device.latest()
            off = np.abs(state.arms.position - pose)
            if off.max() <= _ARRIVED:
                return
            if time.monotonic() > deadline:
                joint = self._embodiment.joints[int(off.argmax())].name
                raise RuntimeError(
                    f"The arms did not reach {what}: {joint} is {off.max():.2f} away. Is "
                    f"something in the way?"
                )
            due = state.arms.time + _WAYPOINT_S * np.arange(2 * _STEPS, dtype=np.float64)
            self._device.send(ActionChunk(due, np.tile(pose, (len(due), 1)).astype(np.float32)))
            self._wait(time.monotonic() + _STEPS * _WAYPOINT_S, what, stop)

    def _wait(self, until: float, what: str, stop: Callable[[], bool]) -> None:
        while True:
            state = self._device.latest()
            self._watch(state)
            if state.mode is Mode.FAULT:
                raise RuntimeError(
                    f"On the way to {what}: " + " ".join(explain_fault(state, self._device))
                )
            if stop():
                raise _StoppedError
            if time.monotonic() >= until:
                return
            time.sleep(_LOOK_S)
