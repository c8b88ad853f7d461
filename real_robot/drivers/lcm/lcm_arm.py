"""One arm behind drake-iiwa-driver: the position of commands, and whether the arm follows them.

drake-iiwa-driver passes every command on, and holds the last for ever. So a command must be near
the one before, or it is never sent; and the position that the controller reports as commanded must
be among those sent lately.

LCM acknowledges nothing. But each status tells the position that the controller commands, and so
which command was the last that took effect: a command that should be reported and is not was lost,
or is still on its way.
"""

from collections import deque

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.driver_interface.interlocks import STRAYED_RAD, Interlock
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS, KukaArm
from stringline.real_robot.drivers.lcm.status import ArmReport

# The controller commands a sent position within that time. drake-iiwa-driver keeps a degree from
# the ends of the axes.
_FOLLOWED_WITHIN_S = 0.1
_FOLLOWED_RAD = 0.02
# A controller reports a command at most that many steps later.
_MOST_BEHIND = 2
_KEPT = 8
# Reported positions are those of the commands but for rounding.
_SAME_RAD = 1e-9


class LcmArm(KukaArm):
    """An arm of a driver program.

    Attributes:
        report: The newest, or None before the first.
    """

    def __init__(self, name: str, period_s: float) -> None:
        super().__init__(name, period_s)
        self.report: ArmReport | None = None
        self._sent_lately: deque[Vector] = deque(
            maxlen=max(4, round(_FOLLOWED_WITHIN_S / period_s))
        )
        self._reported = ReportedCommands(self._last)
        self._begin_at(self._last)

    @property
    def motion(self) -> tuple[Vector, Vector, Vector]:
        """(7,) position in rad, velocity in rad/s and external torque in Nm, as measured last."""
        report = self.report
        if report is None:
            return np.zeros(JOINTS), np.zeros(JOINTS), np.zeros(JOINTS)
        return report.measured, report.velocity, report.external

    @property
    def in_motion(self) -> bool:
        """Whether its controller is in a motion that accepts commands."""
        return self.report is not None and self.report.in_motion

    def take(self, report: ArmReport) -> None:
        """Takes a report of its program."""
        was_in_motion = self.in_motion
        self.report = report
        if not report.in_motion:
            if was_in_motion:
                self._notice(Interlock.NO_MOTION)
            self.let_go()
        elif not was_in_motion:
            self.enter()
        elif not self._led:
            self.let_go()
        elif not self._follows(report.commanded):
            self.let_go()
            self._notice(Interlock.IGNORED)
        if self._strayed:
            # Its commands continue: the commanded position lags behind them, and must not become
            # their beginning.
            self._notice(Interlock.STRAYED)

    @property
    def _strayed(self) -> bool:
        report = self.report
        if report is None or not report.in_motion:
            return False
        return bool(np.abs(report.measured - report.commanded).max() > STRAYED_RAD)

    def _follows(self, commanded: Vector) -> bool:
        sent = np.array(self._sent_lately)
        low = sent.min(axis=0) - _FOLLOWED_RAD
        high = sent.max(axis=0) + _FOLLOWED_RAD
        return bool(((commanded >= low) & (commanded <= high)).all())

    def enter(self) -> None:
        """Begins again, which is an event."""
        self.let_go()
        self._notice(Interlock.ENTERED)

    def let_go(self) -> None:
        """Begins again: in a motion at the commanded position, or else at the measured one."""
        if self.report is not None:
            self._begin_at(self.report.commanded if self.report.in_motion else self.report.measured)

    def _begin_at(self, position: Vector) -> None:
        self._last = position
        self._led = False
        self._reported.begin(position)
        self._sent_lately.clear()
        self._sent_lately.append(position)

    def take_interlock(self) -> Interlock:
        """Returns the interlock of the arm; events since the last call are reported once."""
        return max(self._take_event(), self.refusal)

    @property
    def refusal(self) -> Interlock:
        """The interlock that lasts."""
        if not self.in_motion:
            return Interlock.NO_MOTION
        return Interlock.STRAYED if self._strayed else Interlock.NONE

    def offer(self, position: Vector) -> bool:
        """Takes the filter's command of this cycle, (7,) rad; returns whether it was accepted.

        A command far from the last one is refused, and the last one stays.
        """
        if not self.in_motion or not self._is_near(position):
            return False
        self._last = position.copy()
        self._sent_lately.append(self._last)
        self._reported.note(self._last)
        return True

    def lacks_commands(self, steps: int) -> bool:
        """Returns whether its controller has not got a command that it should have got by now.

        `steps` is the number of its steps since the status before.
        """
        if self.report is None or not self._led:
            return False
        return self._reported.missing(self.report.commanded, steps)

    def notice(self, event: Interlock) -> None:
        """Keeps an event of its program for `take_interlock`."""
        self._notice(event)

    def note_sent(self) -> None:
        """Notes that its command was sent."""
        self._led = self.in_motion
        self.sent += 1


class ReportedCommands:
    """The last commands to one arm. Positions are (7,) rad.

    Args:
        position: Position at which commands begin.
    """

    def __init__(self, position: Vector) -> None:
        self._usual = _MOST_BEHIND
        self.begin(position)

    def begin(self, position: Vector) -> None:
        """Forgets earlier commands: they begin at a position at which the arm stands."""
        self._sent = deque([position], maxlen=_KEPT)
        self._steps = 0

    def note(self, position: Vector) -> None:
        """Notes a command that was sent."""
        self._sent.append(position)
        self._steps = 0

    def missing(self, reported: Vector, steps: int = 1) -> bool:
        """Returns whether a command that should be reported by now is not.

        How many steps later a controller reports a command is learnt from the motion. At rest all
        commands are alike, and nothing can be missing.

        Args:
            reported: Position that the controller commands, by the status of a step.
            steps: Steps of the controller since the status before.
        """
        self._steps += steps
        away = [float(np.abs(one - reported).max()) for one in self._sent]
        nearest = [at for at, one in enumerate(away) if one <= min(away) + _SAME_RAD]
        behind = len(away) - 1 - nearest[-1]
        if len(nearest) == 1 and self._steps == 1:
            self._usual = min(self._usual, max(behind, 1))
        for _ in range(nearest[-1]):
            self._sent.popleft()
        # Without a command in the last steps, the controller has caught up by as many.
        return behind > max(self._usual - (self._steps - 1), 0)
