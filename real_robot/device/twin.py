"""A twin beside the real arms: an emulated robot that gets the same plans, and how far the two come apart.

The twin has a device process and a safety filter of its own, with the same limits. What differs is
the world behind the wire: joints that come apart tell of friction, a load, a wrong offset or an
obstacle that the twin does not have.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.device.device_process import DeviceError, DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.device.dry_run import furthest
from stringline.real_robot.driver_interface.driver import RobotNotReadyError

log = logging.getLogger(__name__)


class ShadowedProcess(DeviceProcess):
    """The device process of the real arms, whose plans a twin gets too.

    What becomes of the twin does not touch the arms.
    """

    twin: DeviceProcess | None = None

    def begin(self) -> None:
        """Begins a new episode, on the twin as well."""
        super().begin()
        self._also(_begin)

    def send(self, chunk: ActionChunk, *arguments: Any, **more: Any) -> None:
        """Puts a chunk into the mailboxes of both.

        Raises:
            ValueError: It does not fit the body.
        """
        super().send(chunk, *arguments, **more)
        self._also(lambda twin: twin.send(chunk, *arguments, **more))

    def _also(self, do: Callable[[DeviceProcess], None]) -> None:
        if self.twin is None:
            return
        try:
            do(self.twin)
        except (DeviceError, RobotNotReadyError) as error:
            log.error("The arms go on without their twin: %s", error)
            self.twin = None


def _begin(twin: DeviceProcess) -> None:
    twin.told |= twin.latest().fault_reasons  # Nobody asks about those of a twin.
    twin.begin()


class Divergence:
    """How far two robots of one body are apart, over the cycles of the first.

    Args:
        embodiment: The body.

    Attributes:
        cycles: Compared so far.
        largest: (J,) largest distance, rad or opening.
        largest_time: Of the cycle with the largest of these, seconds on the clock of the states.
    """

    def __init__(self, embodiment: Embodiment) -> None:
        self._joints = [joint.name for joint in embodiment.joints]
        self.cycles = 0
        self.largest_time = 0.0
        self.largest: Vector = np.zeros(len(self._joints))
        self._squares: Vector = np.zeros(len(self._joints))
        self._until = -np.inf

    def note(self, arms: Sequence[DeviceState], twin: Sequence[DeviceState]) -> None:
        """Takes recent states of both, oldest first; what was compared before, or has no counterpart yet, is left out.

        The twin is taken where it was at the times of the arms, interpolated.
        """
        times = np.array([state.arms.time for state in twin])
        positions = np.array([state.arms.position for state in twin])
        for state in arms:
            now = state.arms.time
            if now <= self._until or not len(times) or not times[0] <= now <= times[-1]:
                continue
            beside = np.array([np.interp(now, times, joint) for joint in positions.T])
            apart = np.abs(state.arms.position - beside)
            if not self.cycles or apart.max() > self.largest.max():
                self.largest_time = now
            self.largest = np.maximum(self.largest, apart)
            self._squares = self._squares + apart**2
            self.cycles = self.cycles + 1
            self._until = now

    @property
    def typical(self) -> Vector:
        """(J,) root of the mean square distance."""
        return np.asarray(np.sqrt(self._squares / max(self.cycles, 1)))

    def summary(self, start: float) -> list[str]:
        """Returns lines that say how far the robots came apart.

        Args:
            start: Time of the beginning, on the clock of the states.
        """
        if not self.cycles:
            return ["The twin was never seen at the same time as the arms."]
        return [
            f"Arms and twin, over {self.cycles} cycles:",
            f"  typically apart by {furthest(self._joints, self.typical)}",
            (
                f"  at most by {furthest(self._joints, self.largest)}; the largest after "
                f"{self.largest_time - start:.1f} s"
            ),
        ]
