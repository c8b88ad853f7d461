"""What drake-iiwa-driver tells about its arms in one message, checked: seven joints for each arm, and numbers."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.drivers.lcm.drake_types import IIWA_STATUS
from stringline.real_robot.drivers.lcm.lcm_schema import LcmDecodeError

Vector = NDArray[np.float64]

JOINTS = 7  # Of an LBR.
UNKNOWN_TIME = -1
# Rows of an arm, in this order.
_ROWS = (
    "joint_position_measured",
    "joint_velocity_estimated",
    "joint_position_commanded",
    "joint_position_ipo",
    "joint_torque_measured",
    "joint_torque_external",
)
_MAY_BE_NO_NUMBERS = ("joint_position_ipo",)  # NaN while the controller takes no commands.


@dataclass(frozen=True, eq=False)
class ArmReport:
    """The part of a message that is about one arm.

    Attributes:
        measured: (7,) rad.
        velocity: (7,) rad/s, low-pass filtered.
        commanded: (7,) rad; what the controller was commanded last.
        ipo: (7,) rad; what the controller commands by itself; NaN while it takes no commands.
        torque: (7,) Nm, measured.
        external: (7,) Nm that the arm's model does not explain.
    """

    measured: Vector
    velocity: Vector
    commanded: Vector
    ipo: Vector
    torque: Vector
    external: Vector

    @property
    def spoken(self) -> bool:
        """Whether the arm's controller was ever heard by its program; until then there are zeros everywhere."""
        return bool(self.measured.any() or self.torque.any() or self.ipo.any())

    @property
    def in_motion(self) -> bool:
        """Whether the controller is in a motion that takes commands, and tells what it was commanded."""
        return bool(self.spoken and self.tells_command and np.isfinite(self.ipo).all())

    @property
    def tells_command(self) -> bool:
        """Whether it is known what it was commanded: zeros, unless the arm is there, tell nothing."""
        return bool(self.commanded.any() or not self.measured.any())


@dataclass(frozen=True, eq=False)
class IiwaStatus:
    """One message.

    Attributes:
        utime: Microseconds, of the first arm's controller by the program's clock; -1 until that is
            known.
        arms: In the program's order.
    """

    utime: int
    arms: tuple[ArmReport, ...]

    @classmethod
    def of(cls, payload: bytes, arms: int) -> Self:
        """Reads a message about so many arms.

        Raises:
            LcmDecodeError: It is none, is about another number of joints, or holds what is no
                number.
        """
        told = IIWA_STATUS.decode(payload)
        utime = told["utime"]
        joints = told["num_joints"]
        if joints != JOINTS * arms:
            raise LcmDecodeError(f"A status of {joints} joints; expected are {JOINTS * arms}.")
        rows = {
            name: np.array(told[name], dtype=np.float64).reshape(arms, JOINTS) for name in _ROWS
        }
        for name, values in rows.items():
            if name not in _MAY_BE_NO_NUMBERS and not np.isfinite(values).all():
                raise LcmDecodeError(f"{name} is {values.tolist()}; expected are finite numbers.")
        assert isinstance(utime, int)
        return cls(
            utime, tuple(ArmReport(*(rows[name][arm] for name in _ROWS)) for arm in range(arms))
        )
