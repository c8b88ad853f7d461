"""Checks the commands that moved an arm over LCM, from the capture of its driver program."""

from pathlib import Path

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS
from stringline.real_robot.drivers.lcm.drake_types import IIWA_COMMAND
from stringline.real_robot.drivers.lcm.lcm_schema import LcmDecodeError
from stringline.real_robot.emulators.program.arm_check import ArmCheck
from stringline.real_robot.emulators.program.capture_file import CapturedRecords
from stringline.real_robot.safety.limits import SafetyLimits

_MAY_BE_LATE = 1  # Periods.


def command_row(payload: bytes) -> tuple[float, ...]:
    """Returns the positions of all arms in an encoded command, or () if it cannot be decoded."""
    try:
        found = IIWA_COMMAND.decode(payload)["joint_position"]
    except LcmDecodeError:
        return ()
    assert isinstance(found, tuple)
    return found


class LcmLine:
    """Checks the commands of one arm, in a file that grows.

    Each time that the program releases its arms, a path begins, at rest. Where the program lacked
    commands for its periods the arms stood still, and the next step is one from rest. A command may
    arrive just after the period that it was sent for, so one missing command may be late.

    Args:
        file: File that the emulator captures; see its `--capture`.
        place: Index of the arm in the program.
        check: Limits of the arm's joints.
    """

    def __init__(self, file: Path, place: int, check: ArmCheck) -> None:
        self._records = CapturedRecords(file)
        self._own = slice(JOINTS * place, JOINTS * (place + 1))
        self.check = check
        self._begins = True
        self._period = 0
        self._data = b""

    def begins_at(self, start: int) -> None:
        """Does nothing: the first command of an episode continues the last of the one before."""

    def take(self, sent: int) -> None:
        """Checks the commands that were added."""
        for one in self._records.fresh():
            row = command_row(one.data)
            if not one.active or not row:
                self._begins = True
                continue
            if one.period == self._period and one.data == self._data:
                continue  # It was sent twice, as if it had been lost.
            missing = one.period - self._period - 1
            if missing > _MAY_BE_LATE:
                self.check.halt()
            elif missing > 0:
                self.check.may_halt()
            self.check.take(np.array(row[self._own])[None], begins=self._begins)
            self._begins = False
            self._period = one.period
            self._data = one.data


def lcm_check(embodiment: Embodiment, arm: str, limits: SafetyLimits, period_s: float) -> ArmCheck:
    """Returns the limits of an arm's seven joints, without a tolerance for rounding."""
    hinges = embodiment.hinges[arm]
    step = limits.velocity[hinges] * period_s
    change = limits.acceleration[hinges] * period_s**2
    return ArmCheck(limits.lower[hinges], limits.upper[hinges], step, change)
