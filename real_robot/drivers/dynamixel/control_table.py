"""Registers and units of the servos in ALOHA arms, and the servos of each arm with their settings.

The addresses are the same on XM430-W350, XM540-W270 and XL430-W250 (ROBOTIS e-manual). The follower
arm of ALOHA is a ViperX 300 6DOF (`vx300s`), the leader arm a WidowX 250 6DOF (`wx250s`).

Ids, drive modes and limits of leaders are those of Interbotix' configuration, which does not
contain the kinds of servos: stock arms have small servos at wrist_rotate and gripper, leaders of
the kit may have larger ones, and both are only read. A leader has no torque, so its operating mode
does not matter.
"""

import math
from dataclasses import dataclass
from enum import IntEnum, IntFlag

TICK_RAD = 2 * math.pi / 4096
CENTRE_TICK = 2048  # Angle 0.
CURRENT_UNIT_A = 0.00269
VELOCITY_UNIT_RAD_S = 0.229 * 2 * math.pi / 60
WATCHDOG_UNIT_S = 0.02
EEPROM_END = 64  # Registers below are locked while torque is on.
NO_SECONDARY_ID = 255
ANSWERS_ALL = 2  # Value of `STATUS_RETURN_LEVEL`: all instructions.
ANSWERS_READS = 1  # Pings and reads; 0: pings only.
TIME_BASED_PROFILE = 4  # Bit of `DRIVE_MODE`.
FACTORY_SHUTDOWN = 52  # Torque goes off at overload, electrical shock and overheating.
# In units of 2 us; the factory setting of 250 is half a millisecond for each of nine servos.
LONGEST_RETURN_DELAY = 10
FIRST_WITH_WATCHDOG = 38  # Version of the firmware.


@dataclass(frozen=True)
class Register:
    """A register of a servo, with its name in the vendor's manual and its size in bytes."""

    name: str
    address: int
    size: int = 1
    signed: bool = False

    def pack(self, value: int) -> bytes:
        """Returns the bytes of a value."""
        return value.to_bytes(self.size, "little", signed=self.signed)

    def unpack(self, data: bytes) -> int:
        """Returns the value of bytes."""
        return int.from_bytes(data[: self.size], "little", signed=self.signed)


MODEL_NUMBER = Register("Model Number", 0, 2)
FIRMWARE = Register("Firmware Version", 6)
ID = Register("ID", 7)
BAUD_RATE = Register("Baud Rate", 8)
RETURN_DELAY = Register("Return Delay Time", 9)
DRIVE_MODE = Register("Drive Mode", 10)
OPERATING_MODE = Register("Operating Mode", 11)
SECONDARY_ID = Register("Secondary (Shadow) ID", 12)
HOMING_OFFSET = Register("Homing Offset", 20, 4, signed=True)
CURRENT_LIMIT = Register("Current Limit", 38, 2)
PWM_LIMIT = Register("PWM Limit", 36, 2)
VELOCITY_LIMIT = Register("Velocity Limit", 44, 4)
MAX_POSITION = Register("Max Position Limit", 48, 4)
MIN_POSITION = Register("Min Position Limit", 52, 4)
STARTUP = Register("Startup Configuration", 60)
SHUTDOWN = Register("Shutdown", 63)
TORQUE_ENABLE = Register("Torque Enable", 64)
STATUS_RETURN_LEVEL = Register("Status Return Level", 68)
HARDWARE_ERROR = Register("Hardware Error Status", 70)
VELOCITY_I_GAIN = Register("Velocity I Gain", 76, 2)
VELOCITY_P_GAIN = Register("Velocity P Gain", 78, 2)
POSITION_D_GAIN = Register("Position D Gain", 80, 2)
POSITION_I_GAIN = Register("Position I Gain", 82, 2)
POSITION_P_GAIN = Register("Position P Gain", 84, 2)
FEEDFORWARD_2ND_GAIN = Register("Feedforward 2nd Gain", 88, 2)
FEEDFORWARD_1ST_GAIN = Register("Feedforward 1st Gain", 90, 2)
BUS_WATCHDOG = Register("Bus Watchdog", 98, 1, signed=True)
GOAL_PWM = Register("Goal PWM", 100, 2, signed=True)
GOAL_CURRENT = Register("Goal Current", 102, 2, signed=True)
GOAL_VELOCITY = Register("Goal Velocity", 104, 4, signed=True)
PROFILE_ACCELERATION = Register("Profile Acceleration", 108, 4)
PROFILE_VELOCITY = Register("Profile Velocity", 112, 4)
GOAL_POSITION = Register("Goal Position", 116, 4, signed=True)
PRESENT_CURRENT = Register("Present Current", 126, 2, signed=True)
PRESENT_VELOCITY = Register("Present Velocity", 128, 4, signed=True)
PRESENT_POSITION = Register("Present Position", 132, 4, signed=True)
VELOCITY_TRAJECTORY = Register("Velocity Trajectory", 136, 4, signed=True)
POSITION_TRAJECTORY = Register("Position Trajectory", 140, 4, signed=True)
INPUT_VOLTAGE = Register("Present Input Voltage", 144, 2)
TEMPERATURE = Register("Present Temperature", 146)
INDIRECT_ADDRESS = Register("Indirect Address 1", 168, 2)
INDIRECT_DATA = Register("Indirect Data 1", 224)
INDIRECT_COUNT = 28
# The last entry of the list lies right before its data, so one read returns both. Without power it
# becomes 251 again, and the data zeros.
RESTART_MARK = Register("Indirect Address 28", 222, 2)
MARKED = TEMPERATURE.address  # Value of a servo that has not restarted since it was brought up.


class OperatingMode(IntEnum):
    """Quantity that a servo controls."""

    CURRENT = 0
    VELOCITY = 1
    POSITION = 3
    EXTENDED_POSITION = 4
    CURRENT_BASED_POSITION = 5
    PWM = 16


class HardwareError(IntFlag):
    """Bits of `HARDWARE_ERROR`; those in the mask `SHUTDOWN` also turn the torque off."""

    VOLTAGE = 0x01
    OVERHEATING = 0x04
    ENCODER = 0x08
    ELECTRICAL_SHOCK = 0x10
    OVERLOAD = 0x20


@dataclass(frozen=True)
class ServoModel:
    """A kind of servo.

    Attributes:
        number: Value of `MODEL_NUMBER`.
        torque_constant: Nm/A at the output: stall torque over stall current of the data sheet.
    """

    name: str
    number: int
    torque_constant: float


XM430 = ServoModel("XM430-W350", 1020, 1.783)
XM540 = ServoModel("XM540-W270", 1120, 2.409)
XL430 = ServoModel("XL430-W250", 1060, 1.071)
MODELS = {model.number: model for model in (XM430, XM540, XL430)}


def angle_of_ticks(ticks: float) -> float:
    """Returns the angle in rad of a position register's value."""
    return (ticks - CENTRE_TICK) * TICK_RAD


def ticks_of_angle(angle: float) -> int:
    """Returns the nearest position register value for an angle in rad."""
    return CENTRE_TICK + round(angle / TICK_RAD)


REVERSED = 1  # Drive mode bit 0.


@dataclass(frozen=True)
class Servo:
    """One servo of an arm.

    Attributes:
        joint: Name of its joint, without the arm.
        current_limit: Value of that register in units of 2.69 mA, or None for any value.
        master: The servo whose commands it follows by its secondary id, or None.
        alternatives: Other kinds that are accepted.
    """

    ident: int
    joint: str
    model: ServoModel
    drive_mode: int
    lower_tick: int = 0
    upper_tick: int = 4095
    operating_mode: OperatingMode = OperatingMode.POSITION
    current_limit: int | None = None
    master: int | None = None
    alternatives: tuple[ServoModel, ...] = ()

    @property
    def secondary_id(self) -> int:
        """Value of that register."""
        return NO_SECONDARY_ID if self.master is None else self.master


VIPERX = (
    Servo(1, "waist", XM540, 0),
    Servo(2, "shoulder", XM540, REVERSED, 841, 2867),
    Servo(3, "shoulder", XM540, 0, 841, 2867, master=2),
    Servo(4, "elbow", XM540, REVERSED, 898, 3094),
    Servo(5, "elbow", XM540, 0, 898, 3094, master=4),
    Servo(6, "forearm_roll", XM540, 0),
    Servo(7, "wrist_angle", XM540, REVERSED, 830, 3504),
    Servo(8, "wrist_rotate", XM430, 0),
    Servo(
        9,
        "gripper",
        XM430,
        0,
        operating_mode=OperatingMode.CURRENT_BASED_POSITION,
        current_limit=300,
    ),
)


WIDOWX = (
    Servo(1, "waist", XM430, 0),
    Servo(2, "shoulder", XM430, 0, 819, 3345),
    Servo(3, "shoulder", XM430, REVERSED, 819, 3345, master=2),
    Servo(4, "elbow", XM430, 0, 648, 3094),
    Servo(5, "elbow", XM430, REVERSED, 648, 3094, master=4),
    Servo(6, "forearm_roll", XM430, 0),
    Servo(7, "wrist_angle", XM430, REVERSED, 910, 3447),
    Servo(8, "wrist_rotate", XM430, 0, alternatives=(XL430,)),
    Servo(9, "gripper", XL430, 0, alternatives=(XM430,)),
)
