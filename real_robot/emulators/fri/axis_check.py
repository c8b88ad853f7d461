"""The commands that moved an arm over FRI, out of the datagrams that its emulated controller captured, held against limits."""

from pathlib import Path

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.drivers.fri.fri_command import Command
from stringline.real_robot.drivers.fri.joint_values import JOINTS
from stringline.real_robot.drivers.fri.playback import CHANGE_SHARE, SPEED_SHARE
from stringline.real_robot.drivers.fri.versions import FriVersion
from stringline.real_robot.emulators.fri.captured_datagrams import Captured, captured_in
from stringline.real_robot.emulators.program.arm_check import ArmCheck
from stringline.real_robot.safety.limits import SafetyLimits


class FriLine:
    """The commands that moved an arm, out of a file that grows, held against limits.

    Its controller wants an answer to each message. Each time that it lets its arm go, a path
    begins, at rest. Where it lacked an answer the arm stood still, and the next step is one from
    rest.

    Args:
        file: What the emulator captures, see its `--capture`.
        version: Of FRI.
        check: Of the arm's joints.
    """

    def __init__(self, file: Path, version: FriVersion, check: ArmCheck) -> None:
        self._file = file
        self._version = version
        self.check = check
        self._at = 0
        self._period = 0
        self._run: list[tuple[float, ...]] = []
        self._begins = True

    def begins_at(self, start: int) -> None:
        """Has no use for where episodes begin: the first command of one goes on from the last of the one before."""

    def take(self, sent: int) -> None:
        """Looks at what has come in."""
        with self._file.open("rb") as stream:
            stream.seek(self._at)
            data = stream.read()
        for one in captured_in(data):
            self._at += len(one.to_bytes())
            if not one.active:
                self._look()
                self._begins = True
            elif one.taken:
                self._step(one)
        self._look()

    def _step(self, one: Captured) -> None:
        if not self._begins and one.period != self._period + 1:
            self._look()
            self.check.halt()
        self._run.append(Command.of(self._version, one.data).position)
        self._period = one.period
        if self._begins:
            self._look()

    def _look(self) -> None:
        if self._run:
            self.check.take(np.array(self._run), begins=self._begins)
            self._run = []
            self._begins = False


def axis_check(body: Embodiment, arm: str, limits: SafetyLimits, period_s: float) -> ArmCheck:
    """Returns the check of an arm's seven joints: numbers are sent as they are, so nothing is rounded.

    Arms but the first have a beat of their own, in which the path of their commands is played: see
    `playback`.
    """
    hinges = body.hinges[arm]
    assert len(hinges) == JOINTS
    step = limits.velocity[hinges] * period_s
    change = limits.acceleration[hinges] * period_s**2
    if arm != body.arms[0]:
        change = CHANGE_SHARE * change + SPEED_SHARE * step
    return ArmCheck(limits.lower[hinges], limits.upper[hinges], step, change)
