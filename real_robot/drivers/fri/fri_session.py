"""The rules for when commands may move an arm, by its controller's last message."""

from collections.abc import Callable, Collection

from stringline.real_robot.driver_interface.interlocks import Interlock
from stringline.real_robot.drivers.fri.enums import (
    CommandMode,
    DriveState,
    OperationMode,
    Overlay,
    Quality,
    SafetyState,
    SessionState,
)
from stringline.real_robot.drivers.fri.monitoring import Monitoring

_SESSIONS = {
    SessionState.IDLE: Interlock.IDLE,
    SessionState.MONITORING_WAIT: Interlock.MONITORING_WAIT,
    SessionState.MONITORING_READY: Interlock.MONITORING_READY,
    SessionState.COMMANDING_WAIT: Interlock.COMMANDING_WAIT,
}
Modes = Collection[OperationMode]


def safety(message: Monitoring, modes: Modes) -> Interlock:
    """The safety controller allows motion."""
    return Interlock.NONE if message.safety is SafetyState.NORMAL else Interlock.SAFETY


def operation_mode(message: Monitoring, modes: Modes) -> Interlock:
    """The operation mode is one in which the arm may be moved."""
    return Interlock.NONE if message.operation in modes else Interlock.OPERATION_MODE


def session(message: Monitoring, modes: Modes) -> Interlock:
    """The controller follows commands."""
    return _SESSIONS.get(message.session, Interlock.NONE)


def drives(message: Monitoring, modes: Modes) -> Interlock:
    """All drives are on. Outside a motion the brakes are, so the session is checked before."""
    active = message.drives and all(drive is DriveState.ACTIVE for drive in message.drives)
    return Interlock.NONE if active else Interlock.DRIVES


def command_mode(message: Monitoring, modes: Modes) -> Interlock:
    """The application accepts joint positions, as an overlay on its own motion."""
    accepts = message.command_mode is CommandMode.POSITION and message.overlay is Overlay.JOINT
    return Interlock.NONE if accepts else Interlock.COMMAND_MODE


def quality(message: Monitoring, modes: Modes) -> Interlock:
    """Enough answers arrive in time."""
    return Interlock.QUALITY if message.quality < Quality.GOOD else Interlock.NONE


# The gravest first.
RULES: tuple[Callable[[Monitoring, Modes], Interlock], ...] = (
    safety,
    operation_mode,
    session,
    drives,
    command_mode,
    quality,
)


def interlock_of(message: Monitoring, operation_modes: Modes) -> Interlock:
    """Returns the gravest interlock by a controller's last message."""
    return next((one for rule in RULES if (one := rule(message, operation_modes))), Interlock.NONE)
