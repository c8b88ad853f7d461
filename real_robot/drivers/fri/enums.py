"""States of a controller, with the names and numbers of FRI."""

from enum import IntEnum


class SessionState(IntEnum):
    """State of the session between controller and client."""

    IDLE = 0
    MONITORING_WAIT = 1  # The connection is not good enough for commands.
    MONITORING_READY = 2  # The application has not begun a motion with an overlay.
    COMMANDING_WAIT = 3  # The client repeats the position that the controller commands.
    COMMANDING_ACTIVE = 4  # The client's commands move the arm.


class Quality(IntEnum):
    """Quality of the connection, by the controller's own measure of answers in time."""

    POOR = 0
    FAIR = 1
    GOOD = 2
    EXCELLENT = 3


class SafetyState(IntEnum):
    """State of the safety controller."""

    NORMAL = 0
    STOP0_OR_1 = 1
    STOP1_ON_PATH = 2
    STOP2 = 3


class OperationMode(IntEnum):
    """Operation mode, selected by the key on the hand-held panel."""

    T1 = 0  # At most 250 mm/s.
    T2 = 1
    AUT = 2


class DriveState(IntEnum):
    """State of one joint's drive."""

    OFF = 0
    TRANSITIONING = 1
    ACTIVE = 2


class ControlMode(IntEnum):
    """The controller's way to follow positions."""

    POSITION = 0
    CARTESIAN_IMPEDANCE = 1
    JOINT_IMPEDANCE = 2
    NONE = 3


class CommandMode(IntEnum):
    """Quantity that the client may command."""

    NONE = 0
    POSITION = 1
    WRENCH = 2
    TORQUE = 3
    CARTESIAN_POSE = 4  # From 2.5 on.


class Overlay(IntEnum):
    """Space of the overlay of commands."""

    NONE = 0
    JOINT = 1
    CARTESIAN = 2


class IoType(IntEnum):
    """Type of an input or output of the controller."""

    BOOLEAN = 0
    DIGITAL = 1
    ANALOG = 2


class IoDirection(IntEnum):
    """Direction of an input or output, as the controller sees it."""

    INPUT = 0
    OUTPUT = 1


class Redundancy(IntEnum):
    """Parameter for the elbow of a Cartesian pose."""

    E1 = 0
    NONE = 4
