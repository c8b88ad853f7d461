"""What a controller's last message allows: the one place that says when commands may move an arm."""

from collections.abc import Callable, Collection

from stringline.real_robot.driver_interface.interlocks import Bar
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
    SessionState.IDLE: Bar.IDLE,
    SessionState.MONITORING_WAIT: Bar.MONITORING_WAIT,
    SessionState.MONITORING_READY: Bar.MONITORING_READY,
    SessionState.COMMANDING_WAIT: Bar.COMMANDING_WAIT,
}


Modes = Collection[OperationMode]


def safety(message: Monitoring, modes: Modes) -> Bar:
    """The safety controller lets the arm move."""
    return Bar.NONE if message.safety is SafetyState.NORMAL else Bar.SAFETY


def operation_mode(message: Monitoring, modes: Modes) -> Bar:
    """The key stands where the arm may be moved."""
    return Bar.NONE if message.operation in modes else Bar.OPERATION_MODE


def session(message: Monitoring, modes: Modes) -> Bar:
    """The controller follows commands."""
    return _SESSIONS.get(message.session, Bar.NONE)


def drives(message: Monitoring, modes: Modes) -> Bar:
    """All drives are on. Outside of a motion the brakes are, so the session is looked at before."""
    active = message.drives and all(drive is DriveState.ACTIVE for drive in message.drives)
    return Bar.NONE if active else Bar.DRIVES


def command_mode(message: Monitoring, modes: Modes) -> Bar:
    """The application wants joint positions, laid over its own motion."""
    wanted = message.command_mode is CommandMode.POSITION and message.overlay is Overlay.JOINT
    return Bar.NONE if wanted else Bar.COMMAND_MODE


def quality(message: Monitoring, modes: Modes) -> Bar:
    """Enough answers come in time."""
    return Bar.QUALITY if message.quality < Quality.GOOD else Bar.NONE


# The gravest first.
RULES: tuple[Callable[[Monitoring, Modes], Bar], ...] = (
    safety,
    operation_mode,
    session,
    drives,
    command_mode,
    quality,
)


def bar_of(message: Monitoring, operation_modes: Modes) -> Bar:
    """Returns what keeps commands from the arm, the gravest first.

    Args:
        message: The controller's last.
        operation_modes: In which the arm may be moved.
    """
    return next((bar for rule in RULES if (bar := rule(message, operation_modes))), Bar.NONE)
