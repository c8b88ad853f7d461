"""Why the safety filter did what it did, in a form that fits into a number and in words."""

from collections.abc import Sequence
from enum import IntEnum, IntFlag

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.driver_interface.driver import (
    NOT_ALONE,
    NOT_FOLLOWING,
    STARTED_ANEW,
    TORQUE_LOST,
    WATCHDOG_EXPIRED,
    Errors,
)
from stringline.real_robot.driver_interface.interlocks import FIRST_STOP, describe_bar


class Mode(IntEnum):
    """What the filter does with targets."""

    RUN = 0
    HOLD = 1  # The arms brake within the limits and stay; motion goes on when the reason is gone.
    FAULT = 2  # As hold, until an operator resets it.


class Reason(IntFlag):
    """What acted in a cycle."""

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
    BARRED = 1 << 18
    STOPPED = 1 << 19
    CAMERA = 1 << 20


REASONS = tuple(Reason)
IN_WORDS = {
    Reason.POSITION: "a target beyond a joint limit was moved inside",
    Reason.MOTION: (
        "a target was too fast and is approached within the limits of speed and acceleration"
    ),
    Reason.TRACKING: "an arm lags far behind its target, as against an obstacle",
    Reason.TABLE: "a target would press an arm into the table",
    Reason.OTHER_ARM: "a target would bring the arms too near to each other",
    Reason.STARVED: "no action was due",
    Reason.BAD_TARGET: "a target was not finite or had the wrong shape",
    Reason.BAD_CHUNK: (
        "a chunk was rejected: not finite, of the wrong shape, out of order in time, or of "
        "another episode"
    ),
    Reason.OLD_PLAN: "the plan in force answers an observation of long ago",
    Reason.SERVO_SILENT: "a servo does not answer",
    Reason.SERVO_ERROR: "a servo reports an error",
    Reason.EFFORT: "a joint has worked too hard for too long",
    Reason.LINK_LOST: "the port of an arm is gone",
    Reason.OLD_STATE: "what is known of the arms is too old",
    Reason.HOT: "a servo is too warm",
    Reason.BOX: "a target would bring an arm out of its box",
    Reason.OLD_IMAGES: "a chunk was refused that was planned from old images",
    Reason.SUPERVISOR: "the supervisor is silent",
    Reason.BARRED: "a controller takes no commands for now",
    Reason.STOPPED: "a controller has stopped its arm, or does not let it go",
    Reason.CAMERA: "a camera shows nothing new",
}
_BITS = {
    0x01: "input voltage",
    TORQUE_LOST: "torque is off",
    0x04: "overheating",
    0x08: "encoder",
    0x10: "electrical shock",
    0x20: "overload",
    WATCHDOG_EXPIRED: "bus watchdog expired",
    NOT_FOLLOWING: "it does not go where it is sent",
    STARTED_ANEW: "its driver program was started anew, and is sent nowhere until a reset",
    NOT_ALONE: "it is silent, and somebody else speaks in its place",
}


def describe_servo_error(error: int) -> str:
    """Returns the bits of `ArmState.servo_error` in words."""
    return (
        ", ".join(name for bit, name in _BITS.items() if error & bit) or f"unknown bits {error:#x}"
    )


def old_cameras(bits: int, names: Sequence[str]) -> list[str]:
    """Returns the names of the cameras that show nothing new, bit by bit."""
    return [name for place, name in enumerate(names) if bits >> place & 1]


def describe(
    reasons: Reason,
    *,
    servos: Sequence[str],
    arms: Sequence[str],
    servo_error: Errors,
    servo_misses: NDArray[np.int32],
    lost: NDArray[np.bool_],
    barred: NDArray[np.uint8] | None = None,
    silent_cameras: Sequence[str] = (),
) -> list[str]:
    """Returns one sentence per reason, with the servos, arms and cameras that it is about.

    Args:
        reasons: Of one cycle, or of a fault.
        servos: Names of all servos.
        arms: Names of all arms.
        servo_error: As in the state.
        servo_misses: As in the state.
        lost: As in the state.
        barred: As in the state.
        silent_cameras: Names of those that show nothing new.
    """
    codes = (
        []
        if barred is None
        else [(name, int(code)) for name, code in zip(arms, barred, strict=False) if code]
    )
    about = {
        Reason.SERVO_SILENT: [
            name for name, misses in zip(servos, servo_misses, strict=True) if misses
        ],
        Reason.SERVO_ERROR: [
            f"{name}: {describe_servo_error(int(error))}"
            for name, error in zip(servos, servo_error, strict=True)
            if error
        ],
        Reason.LINK_LOST: [name for name, gone in zip(arms, lost, strict=True) if gone],
        Reason.CAMERA: list(silent_cameras),
        Reason.BARRED: [
            f"{name}: {describe_bar(code)}" for name, code in codes if code < FIRST_STOP
        ],
        Reason.STOPPED: [
            f"{name}: {describe_bar(code)}" for name, code in codes if code >= FIRST_STOP
        ],
    }
    found = []
    for reason in REASONS:
        if reason & reasons:
            named = about.get(reason)
            found.append(IN_WORDS[reason] + (f" ({'; '.join(named)})" if named else "") + ".")
    return found
