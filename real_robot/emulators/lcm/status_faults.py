"""Faults of the next statuses of a driver program, by script."""

import math
from collections import Counter

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.drivers.fri.monitoring import Joints
from stringline.real_robot.drivers.lcm.drake_types import IIWA_STATUS

STATUS_FAULTS = ("freeze", "backwards", "nan", "joints", "push", "zeros")
_BACKWARDS_US = 1_000_000
_PUSH_RAD = 0.5


class StatusFaults:
    """Changes the next statuses.

    Their time stands still or goes backwards; a joint is not a number, is missing, or was pushed;
    the commanded positions are all zero.
    """

    def __init__(self) -> None:
        self._left: Counter[str] = Counter()
        self._utime = 0

    def plan(self, kind: str, count: int) -> None:
        """Makes the next `count` statuses wrong.

        Raises:
            ValueError: The fault is unknown.
        """
        if kind not in STATUS_FAULTS:
            raise unknown_name("fault of a status", kind, STATUS_FAULTS)
        self._left[kind] += max(count, 1)

    def encode(self, status: dict[str, int | Joints]) -> bytes:
        """Returns the message that is published instead of a status."""
        utime = status["utime"]
        measured = status["joint_position_measured"]
        commanded = status["joint_position_commanded"]
        assert isinstance(utime, int)
        assert isinstance(measured, tuple)
        assert isinstance(commanded, tuple)
        if self._takes("freeze"):
            utime = self._utime
        self._utime = utime
        if self._takes("backwards"):
            utime -= _BACKWARDS_US
        if self._takes("nan"):
            measured = (math.nan, *measured[1:])
        if self._takes("push"):
            measured = (measured[0] + _PUSH_RAD, *measured[1:])
        if self._takes("zeros"):
            commanded = (0.0,) * len(commanded)
        rows = {
            **status,
            "utime": utime,
            "joint_position_measured": measured,
            "joint_position_commanded": commanded,
        }
        if self._takes("joints"):
            rows = {name: row[:-1] if isinstance(row, tuple) else row for name, row in rows.items()}
        return IIWA_STATUS.encode(rows)

    def _takes(self, kind: str) -> bool:
        if not self._left[kind]:
            return False
        self._left[kind] -= 1
        return True
