"""The servos of the ViperX 300 6DOF, follower arm of ALOHA, and their settings (`vx300s`)."""

from dataclasses import dataclass

from stringline.real_robot.drivers.dynamixel.control_table import (
    NO_SECONDARY_ID,
    XM430,
    XM540,
    OperatingMode,
    ServoModel,
)

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
