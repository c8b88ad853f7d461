"""The messages of one drake-iiwa-driver, in order; unusable, old and foreign ones are counted."""

from stringline.real_robot.driver_interface.interlocks import Interlock
from stringline.real_robot.drivers.lcm.drake_types import IIWA_STATUS_TELEMETRY
from stringline.real_robot.drivers.lcm.lcm_link import LcmMessage
from stringline.real_robot.drivers.lcm.lcm_schema import LcmDecodeError
from stringline.real_robot.drivers.lcm.reassembly import Source
from stringline.real_robot.drivers.lcm.status import UNKNOWN_TIME, IiwaStatus

_PERIODS_KEPT = 8
_REGULAR = 1.2  # Largest ratio of two differences.


class Times:
    """The newest times of a clock, and its period."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._periods: list[int] = []

    def note(self, time: int, *, skipped: bool) -> None:
        """Takes a time, microseconds; a repeated one does not count.

        If others before it may be missing (`skipped`), the time since the last one counts only if
        it is not longer than usual.
        """
        if time == self._last:
            return
        passed = None if self._last is None else time - self._last
        self._last = time
        usual = self.period_us
        if passed is None or passed <= 0:
            return
        if not (skipped and usual and passed > 1.5 * usual):
            self._periods = [*self._periods[-_PERIODS_KEPT + 1 :], passed]

    @property
    def period_us(self) -> int:
        """Shortest difference but one of two times, microseconds; 0 until there are enough.

        On a busy computer a program misses steps, so that many differences are longer; a clock that
        is set makes one of them shorter.
        """
        return sorted(self._periods)[1] if len(self._periods) == _PERIODS_KEPT else 0

    @property
    def regular(self) -> bool:
        """Whether the last differences agree; those of a busy computer do not."""
        return max(self._periods, default=0) <= _REGULAR * min(self._periods, default=0)


class StatusInbox:
    """Decodes, checks and orders the messages of one program, by LCM's counter and its time.

    Args:
        arms: Number of arms of the program.

    Attributes:
        broken: Number of unusable messages.
        stale: Number of messages that were older than one before, or duplicates.
        frozen: Number of new messages with the time of the one before.
        complaint: Error of the last unusable one.
        event: The gravest event of the program; the caller resets it.
        ready_at: First known time of its clock, microseconds, or None.
        shift_us: Clock of its host minus that of its first controller, as the program estimates it,
            microseconds; None until it is known.
        step_us: Time of the last step by the clock of the first controller, microseconds; None
            until it is known. Unlike the time of a status, it does not follow the host's clock.
        skipped: Whether messages of the program may be missing before the last status.
    """

    def __init__(self, arms: int) -> None:
        self._arms = arms
        self.broken = 0
        self.stale = 0
        self.frozen = 0
        self.complaint = ""
        self.event = Interlock.NONE
        self._source: Source | None = None
        self._sequence = 0
        self._forget()

    def _forget(self) -> None:
        self.ready_at: int | None = None
        self.shift_us: int | None = None
        self.step_us: int | None = None
        self.skipped = self._gap = self._gap_of_clocks = True
        self._newest: int | None = None
        self._utime = UNKNOWN_TIME
        self._published = Times()
        self._stepped = Times()

    @property
    def period_us(self) -> int:
        """Period of the first arm's controller, microseconds, by its clock if known; 0: unknown."""
        return self._times.period_us

    @property
    def regular(self) -> bool:
        """Whether its steps come in even periods."""
        return self._times.regular

    @property
    def _times(self) -> Times:
        return self._stepped if self._stepped.period_us else self._published

    def take_telemetry(self, message: LcmMessage) -> None:
        """Takes a message about clocks."""
        if message.source != self._source:
            return
        self._note_order(message.sequence)
        skipped = self._gap_of_clocks
        self._gap_of_clocks = False
        try:
            found = IIWA_STATUS_TELEMETRY.decode(message.payload)
        except LcmDecodeError as error:
            self.broken += 1
            self.complaint = str(error)
            return
        time, shift_us = found["iiwa_utime"], found["estimated_dt_host_minus_iiwa"]
        assert isinstance(time, int)
        assert isinstance(shift_us, int)
        self._stepped.note(time, skipped=skipped)
        self.step_us = time
        self.shift_us = shift_us

    def _note_order(self, sequence: int) -> None:
        """Notes the number of a message, to see whether others before it are missing."""
        follows = self._newest is not None and (sequence - self._newest) % (1 << 32) == 1
        self._gap |= not follows
        self._gap_of_clocks |= not follows
        self._newest = sequence

    def take(self, message: LcmMessage, *, lost: bool) -> IiwaStatus | None:
        """Returns the status in a message, or None if it is not usable.

        If the program was `lost`, silent for so long that it may have been restarted, another
        source is accepted.
        """
        try:
            status = IiwaStatus.of(message.payload, self._arms)
        except LcmDecodeError as error:
            self.broken += 1
            self.complaint = str(error)
            return None
        if message.source != self._source:
            if self._source is not None and not lost:
                self._notice(Interlock.TWO_PROGRAMS)
                return None
            self._begin(message.source)
        elif not lost and self._is_old(message):
            self.stale += 1
            return None
        elif not lost and self._is_back(status):
            self._notice(Interlock.CLOCK)
            return None
        elif self._is_back(status):
            self._forget()  # The clock was set back, and counts from here.
        return self._accept(status, message.sequence)

    def _is_old(self, message: LcmMessage) -> bool:
        return not 0 < (message.sequence - self._sequence) % (1 << 32) < 1 << 31

    def _is_back(self, status: IiwaStatus) -> bool:
        return status.utime < self._utime

    def _begin(self, source: Source) -> None:
        if self._source is not None:
            self._notice(Interlock.RESTARTED)
        self._source = source
        self._forget()

    def _accept(self, status: IiwaStatus, sequence: int) -> IiwaStatus | None:
        self._note_order(sequence)
        self.skipped = self._gap
        self._gap = False
        self._sequence = sequence
        if status.utime == self._utime != UNKNOWN_TIME:
            self.frozen += 1
            # With several arms each one's step is published, with the time of the first.
            if self._arms > 1:
                return status
            self._gap = True  # For its caller it is missing.
            return None
        self._utime = status.utime
        if status.utime != UNKNOWN_TIME:
            self._published.note(status.utime, skipped=self.skipped)
            self.ready_at = status.utime if self.ready_at is None else self.ready_at
        return status

    def _notice(self, event: Interlock) -> None:
        self.event = max(self.event, event)
