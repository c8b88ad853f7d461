"""Checks the commands that moved an arm over LCM, from the capture of its driver program."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS
from stringline.real_robot.drivers.lcm.drake_types import IIWA_COMMAND
from stringline.real_robot.drivers.lcm.lcm_schema import LcmDecodeError
from stringline.real_robot.emulators.program.arm_check import ArmCheck
from stringline.real_robot.safety.limits import SafetyLimits

_HEAD = struct.Struct("<IBH")


class CapturedCommand(NamedTuple):
    """A command that reached a program.

    Attributes:
        period: Number of the period of its first arm's controller.
        passed_on: Whether it moved an arm.
        data: The encoded command.
    """

    period: int
    passed_on: bool
    data: bytes

    def to_bytes(self) -> bytes:
        """Returns the record."""
        return _HEAD.pack(self.period, self.passed_on, len(self.data)) + self.data

    def row(self) -> tuple[float, ...]:
        """Returns the positions of all arms, or () if it cannot be decoded."""
        try:
            found = IIWA_COMMAND.decode(self.data)["joint_position"]
        except LcmDecodeError:
            return ()
        assert isinstance(found, tuple)
        return found


def commands_in(data: bytes) -> Iterator[CapturedCommand]:
    """Yields the complete records."""
    at = 0
    while at + _HEAD.size <= len(data):
        period, passed_on, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size + size
        if at > len(data):
            return
        yield CapturedCommand(period, bool(passed_on), data[at - size : at])


class LcmLine:
    """Checks the commands of one arm, in a file that grows.

    Each time that the program releases its arms, a path begins, at rest. During a silence of the
    program no command is sent, and later ones continue as if that time had not passed.

    Args:
        file: File that the emulator captures; see its `--capture`.
        place: Index of the arm in the program.
        check: Limits of the arm's joints.
    """

    def __init__(self, file: Path, place: int, check: ArmCheck) -> None:
        self._file = file
        self._own = slice(JOINTS * place, JOINTS * (place + 1))
        self.check = check
        self._at = 0
        self._begins = True

    def begins_at(self, start: int) -> None:
        """Does nothing: the first command of an episode continues the last of the one before."""

    def take(self, sent: int) -> None:
        """Checks the commands that were added."""
        with self._file.open("rb") as stream:
            stream.seek(self._at)
            data = stream.read()
        for one in commands_in(data):
            self._at += len(one.to_bytes())
            row = one.row()
            if not one.passed_on or not row:
                self._begins = True
                continue
            self.check.take(np.array(row[self._own])[None], begins=self._begins)
            self._begins = False


def lcm_check(embodiment: Embodiment, arm: str, limits: SafetyLimits, period_s: float) -> ArmCheck:
    """Returns the limits of an arm's seven joints, without a tolerance for rounding."""
    hinges = embodiment.hinges[arm]
    step = limits.velocity[hinges] * period_s
    change = limits.acceleration[hinges] * period_s**2
    return ArmCheck(limits.lower[hinges], limits.upper[hinges], step, change)
