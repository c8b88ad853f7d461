"""One arm behind drake-iiwa-driver: where commands have to begin, what was sent, and whether the arm does it.

drake-iiwa-driver passes on whatever comes, and holds the last of it for ever. So here a command
must be near the one before, or it is never sent, whoever made it; and what the controller says it
was commanded must be among what was sent lately.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.driver_interface.interlocks import STRAYED_RAD, Bar
from stringline.real_robot.drivers.lcm.status import JOINTS, ArmReport

Vector = NDArray[np.float64]

# No LBR's axis is faster than 180 degrees/s.
_FASTEST_RAD_S = np.pi
_ROUNDING_RAD = 1e-9
# What was sent is commanded by the controller within that time. drake-iiwa-driver keeps a degree
# from the ends of the axes.
_FOLLOWED_WITHIN_S = 0.1
_FOLLOWED_RAD = 0.02


class LcmArm:
    """What is known of an arm, and what it was told.

    Args:
        name: Of the arm.
        period_s: Between two commands.

    Attributes:
        name: As given.
        report: The newest, or None before the first.
        sent: Commands so far.
    """

    def __init__(self, name: str, period_s: float) -> None:
        self.name = name
        self._period_s = period_s
        self.report: ArmReport | None = None
        self.sent = 0
        self._sent_lately: deque[Vector] = deque(
            maxlen=max(4, round(_FOLLOWED_WITHIN_S / period_s))
        )
        self._event = Bar.NONE
        self._begin_at(np.zeros(JOINTS))

    @property
    def anchor(self) -> Vector:
        """(7,) where commands have to go on from."""
        return self._last

    @property
    def in_motion(self) -> bool:
        """Whether its controller is in a motion that takes commands."""
        return self.report is not None and self.report.in_motion

    def take(self, report: ArmReport) -> None:
        """Takes what its program tells."""
        was_in_motion = self.in_motion
        self.report = report
        if not report.in_motion:
            if was_in_motion:
                self._notice(Bar.NO_MOTION)
            self.let_go()
        elif not was_in_motion:
            self.enter()
        elif not self._led:
            self.let_go()
        elif not self._does_as_told(report.commanded):
            self.let_go()
            self._notice(Bar.IGNORED)
        if self._strayed:
            self._notice(
                Bar.STRAYED
                # Its commands go on: what it was commanded lags behind them, and is no place to
                # begin.
            )

    @property
    def _strayed(self) -> bool:
        told = self.report
        if told is None or not told.in_motion:
            return False
        return bool(np.abs(told.measured - told.commanded).max() > STRAYED_RAD)

    def _does_as_told(self, commanded: Vector) -> bool:
        sent = np.array(self._sent_lately)
        low = sent.min(axis=0) - _FOLLOWED_RAD
        high = sent.max(axis=0) + _FOLLOWED_RAD
        return bool(((commanded >= low) & (commanded <= high)).all())

    def enter(self) -> None:
        """Begins anew, and says so."""
        self.let_go()
        self._notice(Bar.ENTERED)

    def let_go(self) -> None:
        """Begins anew where its controller has it: in a motion, that is what it was commanded last."""
        if self.report is not None:
            self._begin_at(self.report.commanded if self.report.in_motion else self.report.measured)

    def _begin_at(self, position: Vector) -> None:
        self._last = position
        self._led = False
        self._sent_lately.clear()
        self._sent_lately.append(position)

    def _notice(self, event: Bar) -> None:
        self._event = max(self._event, event)

    def take_bar(self) -> Bar:
        """Returns what keeps commands from the arm; what has only happened since the last time is told once."""
        event = self._event
        self._event = Bar.NONE
        return max(event, self.refusal)

    @property
    def refusal(self) -> Bar:
        """What keeps commands from it now."""
        if not self.in_motion:
            return Bar.NO_MOTION
        return Bar.STRAYED if self._strayed else Bar.NONE

    def offer(self, position: Vector) -> bool:
        """Takes the filter's command of this cycle; one that is far from the last is refused, and the last one stays.

        Args:
            position: (7,) rad.

        Returns:
            Whether it was taken.
        """
        if not self.in_motion:
            return False
        if (
            not np.abs(position - self._last).max()
            <= _FASTEST_RAD_S * self._period_s + _ROUNDING_RAD
        ):
            self._notice(Bar.FAR)
            return False
        self._last = position.copy()
        self._sent_lately.append(self._last)
        return True

    def note_sent(self) -> None:
        """Takes down that its row went out."""
        self._led = self.in_motion
        self.sent += 1
