"""The supervision of the Cartesian speed of an emulated arm in the operation mode T1."""

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.iiwa14 import FLANGE_Z, GRIPPER_Z

T1_SPEED = 0.25  # m/s
_ROUNDING = 1e-9


def t1_speed(*, unlimited: bool) -> float:
    """Returns the largest speed in T1, m/s."""
    return np.inf if unlimited else T1_SPEED


class T1Supervision:
    """Measures the speed of flange and gripper (TCP) from one commanded position to the next.

    A real controller measures the arm, whose speed may briefly exceed that of its commands.

    Args:
        arm: Name of the arm, of seven hinges.
        largest: Largest speed, m/s; infinite: any.
    """

    def __init__(self, embodiment: Embodiment, arm: str, largest: float) -> None:
        self._embodiment = embodiment
        self._arm = arm
        self.largest = largest

    def excess(self, before: Vector, after: Vector, seconds: float) -> float:
        """Returns the speed between two positions (7,) if it is too large, or 0, m/s."""
        if not np.isfinite(self.largest):
            return 0.0
        q = np.tile(self._embodiment.home, (2, 1))
        q[:, self._embodiment.hinges[self._arm]] = (before, after)
        T_base_gripper = self._embodiment.forward_kinematics(q)[self._arm]
        gripper = T_base_gripper[:, :3, 3]
        flange = gripper - (GRIPPER_Z - FLANGE_Z) * T_base_gripper[:, :3, 0]
        moved = np.diff(np.stack([gripper, flange], axis=1), axis=0)
        speed = float(np.linalg.norm(moved, axis=-1).max()) / seconds
        return speed if speed > self.largest + _ROUNDING else 0.0
