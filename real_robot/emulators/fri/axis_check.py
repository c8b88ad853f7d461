"""Checks the commands that moved an arm over FRI, from the capture of its emulated controller."""

from pathlib import Path

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.drivers.fri.fri_command import Command
from stringline.real_robot.drivers.fri.playback import CHANGE_SHARE, SPEED_SHARE
from stringline.real_robot.drivers.fri.versions import FriVersion
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS
from stringline.real_robot.emulators.program.arm_check import ArmCheck
from stringline.real_robot.emulators.program.capture_file import Captured, CapturedRecords
from stringline.real_robot.safety.limits import SafetyLimits


class FriLine:
    """Checks the commands that moved an arm, in a file that grows.

    Its controller expects an answer to each message. Each time that it releases its arm, a path
    begins, at rest. Where it lacked an answer the arm stood still, and the next step is one from
    rest.

    Args:
        file: File that the emulator captures; see its `--capture`.
        check: Limits of the arm's joints.
    """

    def __init__(self, file: Path, version: FriVersion, check: ArmCheck) -> None:
        self._records = CapturedRecords(file)
        self._version = version
        self.check = check
        self._period = 0
        self._run: list[tuple[float, ...]] = []
        self._begins = True

    def begins_at(self, start: int) -> None:
        """Does nothing: the first command of an episode continues the last of the one before."""

    def take(self, sent: int) -> None:
        """Checks the commands that were added."""
        for one in self._records.fresh():
            if not one.active:
                self._check_run()
                self._begins = True
            elif one.taken:
                self._step(one)
        self._check_run()

    def _step(self, one: Captured) -> None:
        if not self._begins and one.period != self._period + 1:
            self._check_run()
            self.check.halt()
        self._run.append(Command.of(self._version, one.data).position)
        self._period = one.period
        if self._begins:
            self._check_run()

    def _check_run(self) -> None:
        if self._run:
            self.check.take(np.array(self._run), begins=self._begins)
            self._run = []
            self._begins = False


def axis_check(embodiment: Embodiment, arm: str, limits: SafetyLimits, period_s: float) -> ArmCheck:
    """Returns the limits of an arm's seven joints, without a tolerance for rounding.

    Arms but the first have a clock of their own, by which the path of their commands is played: see
    `playback`.
    """
    hinges = embodiment.hinges[arm]
    assert len(hinges) == JOINTS
    step = limits.velocity[hinges] * period_s
    change = limits.acceleration[hinges] * period_s**2
    if arm != embodiment.arms[0]:
        change = CHANGE_SHARE * change + SPEED_SHARE * step
    return ArmCheck(limits.lower[hinges], limits.upper[hinges], step, change)
