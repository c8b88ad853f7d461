"""What a controller's last message allows: the one place that says when commands may move an arm."""

from collections.abc import Collection

from stringline.real_robot.drivers.bars import Bar
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


def bar_of(message: Monitoring, operation_modes: Collection[OperationMode]) -> Bar:
    """Returns what keeps commands from the arm, the gravest first.

    Args:
        message: The controller's last.
        operation_modes: In which the arm may be moved.
    """
    if message.safety is not SafetyState.NORMAL:
        return Bar.SAFETY
    if message.operation not in operation_modes:
        return Bar.OPERATION_MODE
    if message.session in _SESSIONS:
        return _SESSIONS[message.session]
    # Outside of a motion the brakes are on, so drives are looked at last.
    if not message.drives or any(drive is not DriveState.ACTIVE for drive in message.drives):
        return Bar.DRIVES
    if message.command_mode is not CommandMode.POSITION or message.overlay is not Overlay.JOINT:
        return Bar.COMMAND_MODE
    return Bar.QUALITY if message.quality < Quality.GOOD else Bar.NONE
