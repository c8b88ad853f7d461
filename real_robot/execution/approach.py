"""Slow motions to a given pose, before an episode and at its end, through the safety filter."""

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

_POLL_S = 0.02
_WAYPOINT_S = 0.02
_STEPS = 25
_ARRIVED = 0.1  # rad or opening; gravity and a gripper's play keep real arms within less.
_SETTLE_S = 5.0


class _StoppedError(Exception):
    """The caller stopped the motion."""


def least_jerk(share: Vector) -> Vector:
    """Returns the share of the way (T, 1) at shares (T,) of the time, between two rests.

    The motion has the least jerk; Flash and Hogan (1985), "The coordination of arm movements".
    """
    return np.asarray((10 * share**3 - 15 * share**4 + 6 * share**5)[:, None])


class Approach:
    """Moves arms to poses.

    Args:
        device: Connected and armed device process, in real time.
        watch: Receives each state on the way.
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
        self, pose: Vector, seconds: float, name: str, stop: Callable[[], bool] = lambda: False
    ) -> bool:
        """Begins a new episode of the device, moves the arms and waits for their arrival.

        Args:
            pose: (J,).
            seconds: Duration; the safety filter may extend it.
            name: Name of the pose in messages.
            stop: Called all the way; the arms brake as soon as it returns True, as they do at
                Ctrl-C and at an error.

        Returns:
            Whether the arms have arrived; False if they were stopped.

        Raises:
            RuntimeError: The safety filter reports a fault, or the arms do not arrive.
        """
        with braked_on_error(self._device):
            try:
                self._move(pose, seconds, name, stop)
            except _StoppedError:
                brake(self._device)
                return False
        return True

    def _move(self, pose: Vector, seconds: float, name: str, stop: Callable[[], bool]) -> None:
        self._device.begin()
        state = self._device.latest()
        share = np.linspace(0.0, 1.0, max(round(seconds / _WAYPOINT_S), 1) + 1)
        way = state.arms.position + least_jerk(share) * (pose - state.arms.position)
        due: Vector = state.arms.time + _WAYPOINT_S * np.arange(len(way), dtype=np.float64)
        for first in range(0, len(way), _STEPS):
            # Twice as long as the wait below, so that a target is always due.
            part = slice(first, first + 2 * _STEPS)
            self._device.send(ActionChunk(due[part], way[part].astype(np.float32)))
            self._wait(float(due[min(first + _STEPS, len(way) - 1)]), name, stop)
        self._settle(pose, time.monotonic() + seconds + _SETTLE_S, name, stop)

    def _settle(self, pose: Vector, deadline: float, name: str, stop: Callable[[], bool]) -> None:
        """Keeps the pose due until the arms have come near it."""
        while True:
            state = self._device.latest()
            off = np.abs(state.arms.position - pose)
            if off.max() <= _ARRIVED:
                return
            if time.monotonic() > deadline:
                joint = self._embodiment.joints[int(off.argmax())].name
                raise RuntimeError(
                    f"The arms did not reach {name}: {joint} is {off.max():.2f} away. Is "
                    "something in the way?"
                )
            due = state.arms.time + _WAYPOINT_S * np.arange(2 * _STEPS, dtype=np.float64)
            self._device.send(ActionChunk(due, np.tile(pose, (len(due), 1)).astype(np.float32)))
            self._wait(time.monotonic() + _STEPS * _WAYPOINT_S, name, stop)

    def _wait(self, until: float, name: str, stop: Callable[[], bool]) -> None:
        while True:
            state = self._device.latest()
            self._watch(state)
            if state.mode is Mode.FAULT:
                raise RuntimeError(
                    f"On the way to {name}: " + " ".join(explain_fault(state, self._device))
                )
            if stop():
                raise _StoppedError
            if time.monotonic() >= until:
                return
            time.sleep(_POLL_S)
