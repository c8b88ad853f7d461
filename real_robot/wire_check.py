"""Every goal that arrives at emulated arms, held against the limits while a device process runs by the clock."""

from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stringline.real_robot.emulators.captured import JOINTS, ArmCheck, CapturedGoals
from stringline.real_robot.limits import SafetyLimits
from stringline.real_robot.loop_watch import LoopWatch


class WireCheck:
    """Reads what the emulator captures beside what the device process says it sent.

    An episode begins where the arms are measured to be, so its first goal need not go on from the last one of the episode
    before; which goal that is, is known from the device process. All others count.

    Args:
        watch: Of the device process, from before its first episode.
        folder: Where the emulator captures.
        arms: Names, in the order of the device process.
        limits: What goals are held against.
        period_s: Between two goals.

    Attributes:
        arms: What was found, by arm.
    """

    def __init__(self, watch: LoopWatch, folder: Path, arms: Sequence[str], *, limits: SafetyLimits, period_s: float) -> None:
        self._watch = watch
        self.arms = {arm: ArmCheck(arm, limits, period_s) for arm in arms}
        self._lines = [_Line(CapturedGoals(folder / f"{arm}.bin"), check) for arm, check in self.arms.items()]

    @property
    def violations(self) -> int:
        """Goals outside a limit, of both arms."""
        return sum(check.violations for check in self.arms.values())

    @property
    def goals(self) -> int:
        """Goals looked at, of both arms."""
        return sum(check.goals for check in self.arms.values())

    def look(self) -> None:
        """Takes in what is new."""
        self._watch.look()
        while self._watch.starts:
            starts = self._watch.starts.pop(next(iter(self._watch.starts)))
            for line, start in zip(self._lines, starts, strict=True):
                line.starts.append(start + 1)  # The goal with which torque was turned on is no command.
        for line, sent in zip(self._lines, self._watch.commands, strict=False):
            line.take(sent + 1)


class _Line:
    """Goals of an arm that are not looked at yet."""

    def __init__(self, captured: CapturedGoals, check: ArmCheck) -> None:
        self.starts: deque[int] = deque()
        self._captured, self._check, self._taken = captured, check, 0
        self._waiting = np.zeros((0, JOINTS))

    def take(self, known: int) -> None:
        """Looks at goals, but not beyond those of which it is known whether an episode begins with them."""
        self._waiting = np.concatenate([self._waiting, self._captured.fresh()])
        while (ready := min(known - self._taken, len(self._waiting))) > 0:
            begins = False
            while self.starts and self.starts[0] <= self._taken:
                begins = self.starts.popleft() == self._taken or begins
            end = min(ready, self.starts[0] - self._taken) if self.starts else ready
            self._check.take(self._waiting[:end], begins=begins)
            self._waiting, self._taken = self._waiting[end:], self._taken + end
