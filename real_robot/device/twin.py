"""A twin of the real arms: an emulated robot with the same plans, and its distance from the arms.

The twin has its own device process and safety filter, with the same limits. Differences between
the two show friction, a load, a wrong offset or an obstacle that the emulated world lacks.
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


class TwinnedDeviceProcess(DeviceProcess):
    """The device process of the real arms, which sends all plans to a twin as well.

    Errors of the twin do not affect the arms.

    Attributes:
        twin: Device process of the twin; None without one, and after its first error.
    """

    twin: DeviceProcess | None = None

    def begin(self) -> None:
        """Begins a new episode, also of the twin."""
        super().begin()
        self._also(_begin)

    def send(self, chunk: ActionChunk, *arguments: Any, **more: Any) -> None:
        """Puts a chunk into the mailboxes of both; see `DeviceProcess.send`."""
        super().send(chunk, *arguments, **more)
        self._also(lambda twin: twin.send(chunk, *arguments, **more))

    def _also(self, do: Callable[[DeviceProcess], None]) -> None:
        if self.twin is None:
            return
        try:
            do(self.twin)
        except (DeviceError, RobotNotReadyError) as error:
            log.error("The run continues without the twin: %s", error)
            self.twin = None


def _begin(twin: DeviceProcess) -> None:
    """Begins an episode of a twin, whose faults need no operator."""
    twin.acknowledged |= twin.latest().fault_reasons
    twin.begin()


class Divergence:
    """Statistics of the distance between the arms and their twin, over the cycles of the arms.

    Attributes:
        largest: (J,) largest distance, rad or opening.
        largest_time: Time of the largest distance of all joints, on the clock of the states.
    """

    def __init__(self, embodiment: Embodiment) -> None:
        self._joints = [joint.name for joint in embodiment.joints]
        self.cycles = 0
        self.largest_time = 0.0
        self.largest: Vector = np.zeros(len(self._joints))
        self._squares: Vector = np.zeros(len(self._joints))
        self._until = -np.inf

    def note(self, arms: Sequence[DeviceState], twin: Sequence[DeviceState]) -> None:
        """Compares recent states of both, oldest first, each cycle of the arms once.

        The positions of the twin are interpolated at the times of the arms.
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
        """Returns lines with the distances; `start` is the time of the start of the run."""
        if not self.cycles:
            return ["No states of the arms and of the twin have the same time."]
        return [
            f"Arms and twin, over {self.cycles} cycles:",
            f"  root mean square distance: {furthest(self._joints, self.typical)}",
            f"  largest distance: {furthest(self._joints, self.largest)}, after "
            f"{self.largest_time - start:.1f} s",
        ]
