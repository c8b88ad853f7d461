"""Messages of one controller in order: what is broken, old or there twice is counted and left out."""

import math
from collections.abc import Callable

from stringline.real_robot.drivers.fri.enums import SessionState
from stringline.real_robot.drivers.fri.joint_values import JOINTS
from stringline.real_robot.drivers.fri.monitoring import Joints, Monitoring
from stringline.real_robot.drivers.fri.versions import FriVersion
from stringline.real_robot.drivers.fri.wire import FriDecodeError

_COMMANDING = (SessionState.COMMANDING_WAIT, SessionState.COMMANDING_ACTIVE)
# After such a silence whatever comes is new: the controller may have begun to count from the start,
# by another clock.
_FORGET_S = 0.5


class Inbox:
    """Decodes, checks and orders.

    Args:
        version: Of FRI.

    Attributes:
        broken: Datagrams that were no usable message.
        stale: Messages that were older than one before, or the same.
        complaint: What was wrong with the last broken one.
    """

    def __init__(self, version: FriVersion) -> None:
        self._version = version
        self.broken = self.stale = 0
        self.complaint = ""
        self._last: Monitoring | None = None
        self._last_at = -math.inf

    def take(self, data: bytes, now: float) -> Monitoring | None:
        """Returns the message of a datagram, unless it is of no use.

        Args:
            data: As it came in.
            now: Seconds.
        """
        try:
            message = Monitoring.of(self._version, data)
            _check(message)
        except FriDecodeError as error:
            self.broken = self.broken + 1
            self.complaint = str(error)
            return None
        if (
            self._last is not None
            and now - self._last_at < _FORGET_S
            and not _newer(message, self._last)
        ):
            self.stale += 1
            return None
        self._last = message
        self._last_at = now
        return message


def _newer(message: Monitoring, last: Monitoring) -> bool:
    """Says whether a message was sent after another: by the counter, or by the clock, when a session begins to count anew."""
    ahead = (message.sequence - last.sequence) % (1 << 32)
    later = message.time is not None and last.time is not None and message.time > last.time
    return 0 < ahead < 1 << 31 or later


def seven_joints(message: Monitoring) -> str:
    """The arm is an LBR."""
    return (
        ""
        if message.joints == JOINTS
        else f"The arm has {message.joints} joints; expected are {JOINTS}."
    )


def finite_numbers(message: Monitoring) -> str:
    """What commands are made from are numbers."""
    rows = {"measured position": message.measured, "external torque": message.external_torque}
    if message.session in _COMMANDING:
        rows["position of the interpolator"] = message.ipo
    wrong = (
        f"The {name} is {row}; expected are {JOINTS} finite numbers."
        for name, row in rows.items()
        if not usable(row)
    )
    return next(wrong, "")


def wants_answers(message: Monitoring) -> str:
    """It says how often it wants an answer."""
    return "" if message.receive_multiplier >= 1 else "A receive multiplier of 0."


CHECKS: tuple[Callable[[Monitoring], str], ...] = (seven_joints, finite_numbers, wants_answers)


def _check(message: Monitoring) -> None:
    for check in CHECKS:
        if complaint := check(message):
            raise FriDecodeError(complaint)


def usable(values: Joints) -> bool:
    """Says whether these are finite numbers for all joints."""
    return len(values) == JOINTS and all(map(math.isfinite, values))
