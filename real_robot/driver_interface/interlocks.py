"""Interlocks: the reasons for which an arm's own controller accepts no commands.

A `ControllerInput` is an input of a robot's controller that permits motion, as of an enabling
pedal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Self

from stringline.datasets.contract.argument_checks import unknown_name

SETTINGS = ("input", "arm")


@dataclass(frozen=True)
class ControllerInput:
    """An input of a controller: the arms move only while it is 1.

    Attributes:
        input: Name of the input in the controller's project; it is a bit.
        arm: Arm whose controller has it; if None, the first one.
    """

    input: str
    arm: str | None = None

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Reads settings.

        Raises:
            ValueError: A setting is unknown, or the name of the input is missing.
        """
        for name in plain:
            if name not in SETTINGS:
                raise unknown_name("setting of an input of a controller", str(name), SETTINGS)
        if not plain.get("input"):
            raise ValueError("An input of a controller needs its name, such as input: Run.Pedal.")
        arm = plain.get("arm")
        return cls(str(plain["input"]), None if arm is None else str(arm))


FIRST_STOP = 16
# An arm in position control that is farther from its command was moved by hand, or is another arm.
TRACKING_ERROR_RAD = 0.3
# Arms that are only read are given that time until they could accept commands.
READ_ONLY_WAIT_S = 3.0


class Interlock(IntEnum):
    """Reason for which an arm accepts no commands. Of several, the greatest number is reported."""

    NONE = 0
    # The arms hold until it is gone, then continue by themselves.
    QUALITY = 1
    ENTERED = 2
    FAR = 3
    MISSED = 4
    # From `FIRST_STOP` on: the controller has stopped its arm or never released it, or the arm was
    # moved by hand. A person has to check it.
    TRACKING_ERROR = 16
    IDLE = 17
    MONITORING_WAIT = 18
    MONITORING_READY = 19
    COMMANDING_WAIT = 20
    COMMAND_MODE = 21
    OPERATION_MODE = 22
    DRIVES = 23
    SAFETY = 24
    # Of arms behind a third-party driver program, which is the only source of information.
    UNSYNCHRONISED = 25
    NO_MOTION = 26
    IGNORED = 27
    CLOCK = 28
    RESTARTED = 29
    TWO_PROGRAMS = 30
    FOREIGN = 31
    PERIOD = 32
    UNTIMELY = 33


# Interlocks under which an arm still follows commands: those bring it to rest.
FOLLOWED = (
    Interlock.QUALITY,
    Interlock.TRACKING_ERROR,
    Interlock.OPERATION_MODE,
    Interlock.CLOCK,
    Interlock.TWO_PROGRAMS,
)

# Interlocks that a computer without time to spare may cause.
UNTIMELY = (
    Interlock.QUALITY,
    Interlock.MISSED,
    Interlock.IDLE,
    Interlock.MONITORING_WAIT,
    Interlock.MONITORING_READY,
    Interlock.COMMANDING_WAIT,
    Interlock.IGNORED,
    Interlock.PERIOD,
    Interlock.UNTIMELY,
)

MESSAGES = {
    Interlock.NONE: "it accepts commands",
    Interlock.ENTERED: "it has just begun to accept commands",
    Interlock.QUALITY: "the connection is worse than GOOD",
    Interlock.FAR: "a command was too far from the one before and was not sent",
    Interlock.MISSED: (
        "messages or answers were lost; commands continue, from rest, at the last accepted one"
    ),
    Interlock.TRACKING_ERROR: "the arm is far from its commanded position",
    Interlock.IDLE: "the session is IDLE",
    Interlock.MONITORING_WAIT: (
        "the session is MONITORING_WAIT: the connection is too poor for commands"
    ),
    Interlock.MONITORING_READY: (
        "the session is MONITORING_READY: the controller's application has ended its motion, or "
        "has not begun it"
    ),
    Interlock.COMMANDING_WAIT: "the session is COMMANDING_WAIT: the motion is about to begin",
    Interlock.COMMAND_MODE: "its application does not accept joint positions",
    Interlock.OPERATION_MODE: "its operation mode was changed, or is not allowed",
    Interlock.DRIVES: "its drives are not active",
    Interlock.SAFETY: "its safety controller has stopped it",
    Interlock.UNSYNCHRONISED: "the clock of its driver program is not synchronised yet",
    Interlock.NO_MOTION: (
        "its controller is not in a motion that accepts commands, or has published nothing yet"
    ),
    Interlock.IGNORED: "its driver program does not follow commands",
    Interlock.CLOCK: "the time of its driver program has gone backwards",
    Interlock.RESTARTED: "its driver program was restarted",
    Interlock.TWO_PROGRAMS: "two driver programs publish its status",
    Interlock.FOREIGN: "another program commands it, so nothing is sent to it",
    Interlock.UNTIMELY: "commands do not reach its driver program in time",
    Interlock.PERIOD: "its controller expects commands in another period than is configured here",
}


def describe_interlock(code: int) -> str:
    """Returns the message for a number of `ArmState.interlock`."""
    try:
        return MESSAGES[Interlock(code)]
    except ValueError:
        return f"unknown state {code}"


def describe_refusal(arm: str, code: int) -> str:
    """Returns a sentence about an arm that is only read and could not be moved."""
    return f"{arm} would be refused commands: {describe_interlock(code)}."
