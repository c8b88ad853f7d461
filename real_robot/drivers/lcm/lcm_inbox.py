"""Messages of one drake-iiwa-driver in order: what is broken, old or of others is counted and left out."""

from stringline.real_robot.driver_interface.interlocks import Bar
from stringline.real_robot.drivers.lcm.drake_types import IIWA_STATUS_TELEMETRY
from stringline.real_robot.drivers.lcm.lcm_link import LcmMessage
from stringline.real_robot.drivers.lcm.lcm_schema import LcmDecodeError
from stringline.real_robot.drivers.lcm.reassembly import Source
from stringline.real_robot.drivers.lcm.status import UNKNOWN_TIME, IiwaStatus

_PERIODS_KEPT = 5


class Times:
    """The newest times of a clock that somebody tells, and so its period."""

    def __init__(self) -> None:
        self._times: list[int] = []

    def note(self, time: int) -> None:
        """Takes a time, microseconds; one that is told again does not count."""
        if not self._times or time != self._times[-1]:
            self._times = [*self._times[-_PERIODS_KEPT:], time]

    @property
    def period_us(self) -> int:
        """Median of what is between two times, microseconds; 0 until there are enough of them."""
        if len(self._times) <= _PERIODS_KEPT:
            return 0
        return sorted(
            later - time for time, later in zip(self._times, self._times[1:], strict=False)
        )[_PERIODS_KEPT // 2]


class StatusInbox:
    """Decodes, checks and orders what one program tells; LCM's own counter, and the program's time, say what is new.

    Args:
        arms: Of the program.

    Attributes:
        broken: Messages that could not be used.
        stale: Those that were older than one before, or the same.
        frozen: Those that were new and bore the time of the one before.
        complaint: What was wrong with the last broken one.
        event: What has happened to the program since somebody took this back.
        ready_at: Its time when it first knew the time, microseconds, or None.
    """

    def __init__(self, arms: int) -> None:
        self._arms = arms
        self.broken = self.stale = self.frozen = 0
        self.complaint = ""
        self.event = Bar.NONE
        self._source: Source | None = None
        self._sequence = 0
        self._forget()

    def _forget(self) -> None:
        self.ready_at: int | None = None
        self._utime = UNKNOWN_TIME
        self._told = Times()
        self._stepped = Times()

    @property
    def period_us(self) -> int:
        """Microseconds between two steps of the first arm's controller, by its own clock if that is told; 0 while unknown."""
        return self._stepped.period_us or self._told.period_us

    def take_telemetry(self, message: LcmMessage) -> None:
        """Takes what the program tells about clocks."""
        if message.source != self._source:
            return
        try:
            time = IIWA_STATUS_TELEMETRY.decode(message.payload)["iiwa_utime"]
        except LcmDecodeError as error:
            self.broken = self.broken + 1
            self.complaint = str(error)
            return
        assert isinstance(time, int)
        self._stepped.note(time)

    def take(self, message: LcmMessage, *, lost: bool) -> IiwaStatus | None:
        """Returns the status of a message, unless it is of no use.

        Args:
            message: As it came in.
            lost: Whether nothing was heard for so long that whoever speaks is listened to: the
                program may have been started anew.
        """
        try:
            status = IiwaStatus.of(message.payload, self._arms)
        except LcmDecodeError as error:
            self.broken = self.broken + 1
            self.complaint = str(error)
            return None
        if message.source != self._source:
            if self._source is not None and not lost:
                self._notice(Bar.TWO_PROGRAMS)
                return None
            self._begin(message.source)
        elif not lost and self._is_old(message):
            self.stale += 1
            return None
        elif not lost and self._is_back(status):
            self._notice(Bar.CLOCK)
            return None
        elif self._is_back(status):
            self._forget()  # The clock has been set back: from here on it is that.
        return self._accept(status, message.sequence)

    def _is_old(self, message: LcmMessage) -> bool:
        return not 0 < (message.sequence - self._sequence) % (1 << 32) < 1 << 31

    def _is_back(self, status: IiwaStatus) -> bool:
        return status.utime < self._utime

    def _begin(self, source: Source) -> None:
        if self._source is not None:
            self._notice(Bar.RESTARTED)
        self._source = source
        self._forget()

    def _accept(self, status: IiwaStatus, sequence: int) -> IiwaStatus | None:
        self._sequence = sequence
        if status.utime == self._utime != UNKNOWN_TIME:
            self.frozen += 1
            # With several arms each one's step is told, with the time of the first.
            return status if self._arms > 1 else None
        self._utime = status.utime
        if status.utime != UNKNOWN_TIME:
            self._told.note(status.utime)
            self.ready_at = status.utime if self.ready_at is None else self.ready_at
        return status

    def _notice(self, event: Bar) -> None:
        self.event = max(self.event, event)
