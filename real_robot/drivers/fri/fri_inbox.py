"""The messages of one controller, in order; unusable, old and duplicate ones are only counted."""

import math
from collections.abc import Callable

from stringline.real_robot.drivers.fri.enums import SessionState
from stringline.real_robot.drivers.fri.monitoring import Joints, Monitoring
from stringline.real_robot.drivers.fri.protobuf_wire import FriDecodeError
from stringline.real_robot.drivers.fri.versions import VERSIONS, FriVersion
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS

_COMMANDING = (SessionState.COMMANDING_WAIT, SessionState.COMMANDING_ACTIVE)
# After such a silence any message is new: counter and clock of the controller may have been reset.
_FORGET_S = 0.5


class Inbox:
    """Decodes, checks and orders messages.

    Attributes:
        stale: Number of messages that were older than one before, or duplicates.
        complaint: Error of the last unusable one.
        unusable: Its datagram.
    """

    def __init__(self, version: FriVersion) -> None:
        self._version = version
        self.broken = 0
        self.stale = 0
        self.complaint = ""
        self.unusable = b""
        self._last: Monitoring | None = None
        self._last_at = -math.inf

    def take(self, data: bytes, now: float) -> Monitoring | None:
        """Returns the message of a datagram that arrived at `now` seconds, or None."""
        try:
            message = Monitoring.of(self._version, data)
            _check(message)
        except FriDecodeError as error:
            self.broken += 1
            self.complaint = str(error)
            self.unusable = data
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
    """Returns whether a message is later: by its counter, or, if that was reset, by its clock."""
    ahead = (message.sequence - last.sequence) % (1 << 32)
    later = message.time is not None and last.time is not None and message.time > last.time
    return 0 < ahead < 1 << 31 or later


def versions_of(data: bytes) -> list[str]:
    """Returns the names of the versions of which a datagram is a usable message."""
    return [name for name, version in VERSIONS.items() if _is_of(version, data)]


def _is_of(version: FriVersion, data: bytes) -> bool:
    try:
        _check(Monitoring.of(version, data))
    except FriDecodeError:
        return False
    return True


def seven_joints(message: Monitoring) -> str:
    """The arm is an LBR."""
    if message.joints == JOINTS:
        return ""
    return f"The arm has {message.joints} joints; expected are {JOINTS}."


def finite_numbers(message: Monitoring) -> str:
    """The values on which commands are based are finite."""
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
    """It expects answers."""
    return "" if message.receive_multiplier >= 1 else "A receive multiplier of 0."


CHECKS: tuple[Callable[[Monitoring], str], ...] = (seven_joints, finite_numbers, wants_answers)


def _check(message: Monitoring) -> None:
    for check in CHECKS:
        if complaint := check(message):
            raise FriDecodeError(complaint)


def usable(values: Joints) -> bool:
    """Returns whether these are finite numbers for all joints."""
    return len(values) == JOINTS and all(map(math.isfinite, values))
