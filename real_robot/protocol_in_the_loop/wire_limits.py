"""Checks every goal that arrives at emulated arms against the limits, in real time."""

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.device.timing_monitor import TimingMonitor
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.emulators.fri.axis_check import FriLine, axis_check
from stringline.real_robot.emulators.lcm.command_check import LcmLine, lcm_check
from stringline.real_robot.emulators.program.arm_check import ArmCheck
from stringline.real_robot.emulators.program.captured import JOINTS, CapturedGoals, servo_check
from stringline.real_robot.emulators.program.emulator_settings import USUAL_PREFIX
from stringline.real_robot.robots.backends import RobotBackend, ServoBackend
from stringline.real_robot.robots.kuka_backends import FriBackend, LcmBackend
from stringline.real_robot.safety.limits import SafetyLimits

Vector = NDArray[np.float64]

# Times of arrival differ from those at which the goals were sent, which decide whether a goal
# continues a motion: see `RestAfterGap`.
_IN_TIME_PERIODS = 1.2
_GAP_PERIODS = 3.0


class WireLine(Protocol):
    """The captured goals of one arm."""

    @property
    def check(self) -> ArmCheck:
        """Result of the check."""
        ...

    def begins_at(self, start: int) -> None:
        """Sets the number of the command that begins an episode at the arm's measured pose."""
        ...

    def take(self, sent: int) -> None:
        """Checks new goals; `sent` is the number of commands known to have been sent."""
        ...


class WireCheck:
    """Checks captured goals beside the records of the device process.

    Args:
        watch: Monitor of the device process, from before its first episode.
        lines: Captured goals by arm, in the order of the device process.
    """

    def __init__(self, watch: TimingMonitor, lines: Mapping[str, WireLine]) -> None:
        self._watch = watch
        self._lines = list(lines.values())
        self.arms = {arm: line.check for arm, line in lines.items()}

    @property
    def violations(self) -> int:
        """Number of goals outside a limit."""
        return sum(check.violations for check in self.arms.values())

    @property
    def goals(self) -> int:
        """Number of checked goals."""
        return sum(check.goals for check in self.arms.values())

    def look(self) -> None:
        """Checks new goals."""
        self._watch.update()
        while self._watch.starts:
            starts = self._watch.starts.pop(next(iter(self._watch.starts)))
            for line, start in zip(self._lines, starts, strict=True):
                line.begins_at(start)
        for line, sent in zip(self._lines, self._watch.commands, strict=False):
            line.take(sent)


def wire_lines(
    backend: RobotBackend, folder: Path, limits: SafetyLimits, period_s: float
) -> dict[str, WireLine]:
    """Returns the captured goals of each arm.

    Raises:
        ValueError: The backend is unknown.
    """
    embodiment = backend.embodiment
    files = {arm: folder / f"{arm}.bin" for arm in embodiment.arms}
    if isinstance(backend, FriBackend):
        version = version_of(backend.version)
        return {
            arm: FriLine(file, version, axis_check(embodiment, arm, limits, period_s))
            for arm, file in files.items()
        }
    if isinstance(backend, ServoBackend):
        return {
            arm: ServoLine(file, servo_check(arm, limits, period_s), period_s)
            for arm, file in files.items()
        }
    if isinstance(backend, LcmBackend):
        file = folder / f"{USUAL_PREFIX}.bin"
        return {
            arm: LcmLine(file, place, lcm_check(embodiment, arm, limits, period_s))
            for place, arm in enumerate(embodiment.arms)
        }
    raise ValueError("Goals can be checked for arms on serial lines, over FRI and over LCM only.")


class ServoLine:
    """The captured goals of an arm on a serial line.

    An episode begins at the measured pose of the arms, so its first goal need not continue the last
    one of the episode before. The device process records which goal that is; all others count.
    Servos hold their last goal, so after a gap in the goals the next step is one from rest. A pause
    of the computer between the decision on a goal and its arrival is also seen as a gap, which the
    device process notices only at its next goal. So the step from rest may be the one after the
    gap or, if that one continues the motion, the next.

    Args:
        file: File of captured bytes, see the emulator's `--capture`.
        period_s: Time between two goals, seconds.
    """

    def __init__(self, file: Path, check: ArmCheck, period_s: float) -> None:
        self._captured = CapturedGoals(file)
        self.check = check
        self._period_s = period_s
        self._taken = 0
        self._starts: deque[int] = deque()
        self._waiting = np.zeros((0, JOINTS))
        self._times = np.zeros(0)
        self._last_s = np.nan
        self._late = False
        self._gap = False

    def begins_at(self, start: int) -> None:
        """Sets the number of the command that begins an episode."""
        self._starts.append(start + 1)  # The goal with which torque is turned on is not a command.

    def take(self, sent: int) -> None:
        """Checks new goals up to those that may begin an episode not known yet."""
        goals, times = self._captured.fresh()
        self._waiting = np.concatenate([self._waiting, goals])
        self._times = np.concatenate([self._times, times])
        while (ready := min(sent + 1 - self._taken, len(self._waiting))) > 0:
            begins = False
            while self._starts and self._starts[0] <= self._taken:
                begins = self._starts.popleft() == self._taken or begins
            end = min(ready, self._starts[0] - self._taken) if self._starts else ready
            self._check(self._waiting[:end], self._times[:end], begins=begins)
            self._waiting = self._waiting[end:]
            self._times = self._times[end:]
            self._taken += end

    def _check(self, goals: Vector, times: Vector, *, begins: bool) -> None:
        """Checks goals (T, 7) that arrived at these times (T,), in parts between gaps."""
        periods = np.diff(times, prepend=self._last_s) / self._period_s
        late = periods > _IN_TIME_PERIODS
        # A goal that arrived late hides a part of the gap behind it.
        uncertain = late | np.concatenate([[self._late], late[:-1]])
        self._last_s = float(times[-1])
        self._late = bool(late[-1])
        parts = [0, *(np.flatnonzero(uncertain[1:]) + 1).tolist(), len(goals)]
        for first, end in pairwise(parts):
            if self._gap and not self.check.fits_rest:
                self.check.halt()
            elif uncertain[first]:
                self.check.may_halt()
            self._gap = bool(periods[first] > _GAP_PERIODS)
            # The measured pose at which an episode begins is not among the goals.
            self.check.take(goals[first:end], begins=begins and first == 0, departed=True)
