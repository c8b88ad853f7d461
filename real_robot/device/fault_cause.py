"""The cause of a fault at the time of the fault. Much of it is reported in a single cycle only."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.ipc.mailbox import Record

_FIELDS = ("servo_error", "servo_misses", "lost", "interlock")


def cause_layout(servos: int, arms: int) -> np.dtype[np.void]:
    """Layout of a cause."""
    return np.dtype(
        [
            ("servo_error", "<u2", (servos,)),
            ("servo_misses", "<i4", (servos,)),
            ("lost", "?", (arms,)),
            ("interlock", "u1", (arms,)),
            ("old_cameras", "<i8"),
        ]
    )


@dataclass(frozen=True, eq=False)
class Cause:
    """The worst of each quantity over the cycles in which a reason of the fault was new.

    Quantities are those of `ArmState` and `DeviceState`.
    """

    servo_error: NDArray[Any]
    servo_misses: NDArray[np.int32]
    lost: NDArray[np.bool_]
    interlock: NDArray[np.uint8]
    old_cameras: int = 0

    @classmethod
    def of(cls, arms: ArmState, old_cameras: int) -> Self:
        """Returns the problems of one cycle."""
        return cls(arms.servo_error, arms.servo_misses, arms.lost, arms.interlock, old_cameras)

    @classmethod
    def read(cls, record: Record) -> Self:
        """Reads a record."""
        return cls(
            **{field: record[field].copy() for field in _FIELDS},
            old_cameras=int(record["old_cameras"]),
        )

    def write(self, record: Record) -> None:
        """Writes a record."""
        for field in _FIELDS:
            if len(values := getattr(self, field)):
                record[field] = values
        record["old_cameras"] = self.old_cameras

    def joined(self, other: Self) -> Self:
        """Returns the problems of both causes."""
        return type(self)(
            self.servo_error | other.servo_error,
            np.maximum(self.servo_misses, other.servo_misses),
            self.lost | other.lost,
            np.maximum(self.interlock, other.interlock),
            self.old_cameras | other.old_cameras,
        )
