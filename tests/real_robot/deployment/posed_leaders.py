"""Leaders that a person brings to poses."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stringline import ALOHA, ArmState
from stringline.real_robot.device.device_process import DeviceProcess


class PosedLeaders:
    """Leaders at the home pose, with servos and arms as the followers.

    Attributes:
        old_s: Age of their answers, seconds.
    """

    def __init__(self, device: DeviceProcess) -> None:
        self._device = device
        self.servos = device.servos
        self.arms = device.arms
        self.old_s = 0.0

    def pose(self, now: float) -> NDArray[np.float64]:
        """Returns the pose (J,) at a time."""
        return ALOHA.home.copy()

    def read(self, clock: Callable[[], float]) -> ArmState:
        now = clock()
        return replace(self._device.latest().arms, time=now - self.old_s, position=self.pose(now))
