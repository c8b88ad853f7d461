"""What the safety filter reports: modes, reasons, and the following error.

Reasons are flags, and messages for the operator. The following error is the distance of commands to
their targets while motion is limited.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.driver_interface.driver import (
    NOT_ALONE,
    NOT_FOLLOWING,
    RESTARTED,
    STARTED_ANEW,
    TORQUE_LOST,
    WATCHDOG_EXPIRED,
    Errors,
)
from stringline.real_robot.driver_interface.interlocks import FIRST_STOP, describe_interlock


class Mode(IntEnum):
    """Reaction of the filter."""

    RUN = 0
    HOLD = 1  # The arms brake within the limits, and move on when the reason has ended.
    FAULT = 2  # A hold until an operator resets it.


class Reason(IntFlag):
    """Reasons that acted in a cycle."""

    POSITION = 1 << 0
    MOTION = 1 << 1
    TRACKING = 1 << 2
    TABLE = 1 << 3
    OTHER_ARM = 1 << 4
    STARVED = 1 << 5
    BAD_TARGET = 1 << 6
    BAD_CHUNK = 1 << 7
    OLD_PLAN = 1 << 8
    SERVO_SILENT = 1 << 9
    SERVO_ERROR = 1 << 10
    EFFORT = 1 << 11
    LINK_LOST = 1 << 12
    OLD_STATE = 1 << 13
    HOT = 1 << 14
    BOX = 1 << 15
    OLD_IMAGES = 1 << 16
    SUPERVISOR = 1 << 17
    CONTROLLER_REFUSES = 1 << 18
    STOPPED = 1 << 19
    CAMERA = 1 << 20
    GAP = 1 << 21
    DEVICE_SILENT = 1 << 22
    CARTESIAN_SPEED = 1 << 23
    SAME_ARM = 1 << 24
    OBSTACLE = 1 << 25
    EXTERNAL_STOP = 1 << 26
    RELEASED = 1 << 27
    BAD_STATE = 1 << 28
    UNSENT = 1 << 29


REASONS = tuple(Reason)
# Reasons that a computer without time to spare may cause.
OF_TIMING = (
    Reason.GAP
    | Reason.UNSENT
    | Reason.SUPERVISOR
    | Reason.CAMERA
    | Reason.OLD_STATE
    | Reason.SERVO_SILENT
    | Reason.LINK_LOST
    | Reason.DEVICE_SILENT
)
MESSAGES = {
    Reason.POSITION: "a target beyond a joint limit was moved inside",
    Reason.MOTION: (
        "a target was too fast and is followed within the limits of velocity and acceleration"
    ),
    Reason.CARTESIAN_SPEED: (
        "a target would move the gripper, the elbow or a link faster than the limit of speed, and "
        "is followed more slowly"
    ),
    Reason.TRACKING: "an arm is far behind its target, as at an obstacle",
    Reason.TABLE: "a target would move an arm into the table",
    Reason.OTHER_ARM: "a target would move the arms too close to each other",
    Reason.SAME_ARM: "a target would move an arm into itself",
    Reason.OBSTACLE: "a target would move an arm into an obstacle of the cell",
    Reason.STARVED: "no action was due",
    Reason.BAD_TARGET: "a target was not finite or had the wrong shape",
    Reason.BAD_CHUNK: (
        "a chunk was rejected: not finite, of the wrong shape, out of order in time, or of "
        "another episode"
    ),
    Reason.OLD_PLAN: "the observation of the plan in force is too old",
    Reason.SERVO_SILENT: "a servo does not answer",
    Reason.SERVO_ERROR: "a servo reports an error",
    Reason.EFFORT: "a joint was overloaded for too long",
    Reason.LINK_LOST: "the port of an arm is lost",
    Reason.OLD_STATE: "the measured state of the arms is too old",
    Reason.HOT: "a servo is too hot",
    Reason.BOX: "a target would move an arm out of its box",
    Reason.OLD_IMAGES: "a chunk was rejected because its images were too old",
    Reason.SUPERVISOR: "the supervisor sends no heartbeat",
    Reason.CONTROLLER_REFUSES: "a controller accepts no commands at present",
    Reason.STOPPED: "a controller has stopped its arm, or does not release it",
    Reason.CAMERA: "a camera delivers no new images",
    Reason.DEVICE_SILENT: (
        "the device process does not respond, so the arms hold their last targets and obey no key; "
        "use the emergency stop if they move"
    ),
    Reason.EXTERNAL_STOP: "the external stop was actuated, or its line is lost",
    Reason.RELEASED: "the key, pedal or input of hold-to-run is not held",
    Reason.BAD_STATE: (
        "a measured value or the age of an input is not a number, or a time lies ahead of the clock"
    ),
    Reason.UNSENT: "a command was not sent, not in time, or lost, so its arm stood still",
    Reason.GAP: "no commands were sent for a while, as after a suspension",
}
_BITS = {
    0x01: "input voltage",
    TORQUE_LOST: "torque is off",
    0x04: "overheating",
    0x08: "encoder",
    0x10: "electrical shock",
    0x20: "overload",
    WATCHDOG_EXPIRED: "bus watchdog expired",
    NOT_FOLLOWING: "it does not follow its target",
    STARTED_ANEW: "its driver program was restarted, and gets no targets until a reset",
    NOT_ALONE: "it is silent, and another program answers in its place",
    RESTARTED: "it has restarted, as when its power fails, and gets no targets until a reset",
}


def describe_servo_error(error: int) -> str:
    """Returns the names of the bits of `ArmState.servo_error`."""
    return (
        ", ".join(name for bit, name in _BITS.items() if error & bit) or f"unknown bits {error:#x}"
    )


def old_cameras(bits: int, names: Sequence[str]) -> list[str]:
    """Returns the names of the cameras whose bits are set."""
    return [name for place, name in enumerate(names) if bits >> place & 1]


def describe(
    reasons: Reason,
    *,
    servos: Sequence[str],
    arms: Sequence[str],
    servo_error: Errors,
    servo_misses: NDArray[np.int32],
    lost: NDArray[np.bool_],
    interlock: NDArray[np.uint8] | None = None,
    silent_cameras: Sequence[str] = (),
) -> list[str]:
    """Returns one sentence per reason; its servos, arms and cameras follow from `ArmState`."""
    codes = [] if interlock is None else list(zip(arms, interlock, strict=False))
    locked = [(name, int(code)) for name, code in codes if code]
    errors = zip(servos, servo_error, strict=True)
    about = {
        Reason.SERVO_SILENT: [
            name for name, misses in zip(servos, servo_misses, strict=True) if misses
        ],
        Reason.SERVO_ERROR: [
            f"{name}: {describe_servo_error(int(error))}" for name, error in errors if error
        ],
        Reason.LINK_LOST: [name for name, gone in zip(arms, lost, strict=True) if gone],
        Reason.CAMERA: list(silent_cameras),
        Reason.CONTROLLER_REFUSES: [
            f"{name}: {describe_interlock(code)}" for name, code in locked if code < FIRST_STOP
        ],
        Reason.STOPPED: [
            f"{name}: {describe_interlock(code)}" for name, code in locked if code >= FIRST_STOP
        ],
    }
    found = []
    for reason in REASONS:
        if reason & reasons:
            named = about.get(reason)
            found.append(MESSAGES[reason] + (f" ({'; '.join(named)})" if named else "") + ".")
    return found


@dataclass(frozen=True)
class FollowingError:
    """The following error over the cycles in which `Reason.MOTION` acted.

    The error of a cycle is that of the revolute joint with the largest one.

    Attributes:
        total_rad: Sum over these cycles, rad.
        largest_rad: Largest error, rad.
    """

    total_rad: float = 0.0
    largest_rad: float = 0.0

    def __add__(self, other: Self) -> Self:
        """Returns the error over the cycles of both."""
        largest = max(self.largest_rad, other.largest_rad)
        return type(self)(self.total_rad + other.total_rad, largest)


NO_FOLLOWING_ERROR = FollowingError()
