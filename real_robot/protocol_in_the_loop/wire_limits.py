"""Every goal that arrives at emulated arms, held against the limits while a device process runs by the clock."""

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from stringline.real_robot.device.timing_monitor import LoopWatch
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.emulators.fri.axis_check import FriLine, axis_check
from stringline.real_robot.emulators.lcm.channel_names import USUAL
from stringline.real_robot.emulators.lcm.command_check import LcmLine, lcm_check
from stringline.real_robot.emulators.program.arm_check import ArmCheck
from stringline.real_robot.emulators.program.captured import JOINTS, CapturedGoals, servo_check
from stringline.real_robot.robots.backends import ArmKind, FriArms, ServoArms
from stringline.real_robot.robots.lcm_backends import LcmArms
from stringline.real_robot.safety.limits import SafetyLimits


class WireLine(Protocol):
    """What the emulator captures of an arm."""

    @property
    def check(self) -> ArmCheck:
        """What was found."""
        ...

    def begins_at(self, start: int) -> None:
        """Says which command begins an episode: where the arm was measured to be."""
        ...

    def take(self, sent: int) -> None:
        """Looks at what has come in; so many commands are known to have been sent."""
        ...


class WireCheck:
    """Reads what the emulator captures beside what the device process says it sent.

    Args:
        watch: Of the device process, from before its first episode.
        lines: By arm, in the order of the device process.

    Attributes:
        arms: What was found, by arm.
    """

    def __init__(self, watch: LoopWatch, lines: Mapping[str, WireLine]) -> None:
        self._watch = watch
        self._lines = list(lines.values())
        self.arms = {arm: line.check for arm, line in lines.items()}

    @property
    def violations(self) -> int:
        """Goals outside a limit, of all arms."""
        return sum(check.violations for check in self.arms.values())

    @property
    def goals(self) -> int:
        """Goals looked at, of all arms."""
        return sum(check.goals for check in self.arms.values())

    def look(self) -> None:
        """Takes in what is new."""
        self._watch.look()
        while self._watch.starts:
            starts = self._watch.starts.pop(next(iter(self._watch.starts)))
            for line, start in zip(self._lines, starts, strict=True):
                line.begins_at(start)
        for line, sent in zip(self._lines, self._watch.commands, strict=False):
            line.take(sent)


def wire_lines(
    kind: ArmKind, folder: Path, limits: SafetyLimits, period_s: float
) -> dict[str, WireLine]:
    """Returns what is captured of each arm.

    Args:
        kind: Of the arms.
        folder: Where their emulator captures.
        limits: What goals are held against.
        period_s: Between two goals.

    Raises:
        ValueError: Nobody knows what such arms capture.
    """
    files = {arm: folder / f"{arm}.bin" for arm in kind.body.arms}
    if isinstance(kind, FriArms):
        version = version_of(kind.version)
        return {
            arm: FriLine(file, version, axis_check(kind.body, arm, limits, period_s))
            for arm, file in files.items()
        }
    if isinstance(kind, ServoArms):
        return {
            arm: ServoLine(file, servo_check(arm, limits, period_s)) for arm, file in files.items()
        }
    if isinstance(kind, LcmArms):
        body = kind.body
        file = folder / f"{USUAL}.bin"
        return {
            arm: LcmLine(file, place, lcm_check(body, arm, limits, period_s))
            for place, arm in enumerate(body.arms)
        }
    raise ValueError(
        "By the clock arms on serial lines, over FRI and over LCM are watched on the wire; these "
        "are none."
    )


class ServoLine:
    """Goals of an arm on a serial line.

    An episode begins where the arms are measured to be, so its first goal need not go on from the
    last one of the episode before; which goal that is, is known from the device process. All others
    count.

    Args:
        file: What the emulator captures, see its `--capture`.
        check: Of the arm.
    """

    def __init__(self, file: Path, check: ArmCheck) -> None:
        self._captured = CapturedGoals(file)
        self.check = check
        self._taken = 0
        self._starts: deque[int] = deque()
        self._waiting = np.zeros((0, JOINTS))

    def begins_at(self, start: int) -> None:
        """Says which command begins an episode."""
        self._starts.append(start + 1)  # The goal with which torque was turned on is no command.

    def take(self, sent: int) -> None:
        """Looks at goals, but not beyond those of which it is known whether an episode begins with them."""
        self._waiting = np.concatenate([self._waiting, self._captured.fresh()])
        while (ready := min(sent + 1 - self._taken, len(self._waiting))) > 0:
            begins = False
            while self._starts and self._starts[0] <= self._taken:
                begins = self._starts.popleft() == self._taken or begins
            end = min(ready, self._starts[0] - self._taken) if self._starts else ready
            # Where the arms were measured, from where an episode begins, is not on the wire.
            self.check.take(self._waiting[:end], begins=begins, departed=True)
            self._waiting = self._waiting[end:]
            self._taken = self._taken + end
