"""Why an arm's own controller takes no commands, in a form that fits into a number and in words."""

from enum import IntEnum

FIRST_STOP = 16
# An arm in position control that is further from its command was moved by somebody else, or is
# another one.
STRAYED_RAD = 0.3
GLANCE_S = 3.0  # For so long it is waited, where arms are only read, that commands could be taken.


class Bar(IntEnum):
    """What keeps commands from an arm; `NONE` if nothing does. Of several the gravest is told."""

    NONE = 0
    # The arms hold until it is gone.
    QUALITY = 1
    ENTERED = 2
    FAR = 3
    MISSED = 4
    # From `FIRST_STOP` on: the controller has stopped its arm, or never let it go, or somebody
    # moved it: a person has to look.
    STRAYED = 16
    IDLE = 17
    MONITORING_WAIT = 18
    MONITORING_READY = 19
    COMMANDING_WAIT = 20
    COMMAND_MODE = 21
    OPERATION_MODE = 22
    DRIVES = 23
    SAFETY = 24
    # Of arms behind a driver program of others, which is all that can be heard of.
    UNSYNCHRONISED = 25
    NO_MOTION = 26
    IGNORED = 27
    CLOCK = 28
    RESTARTED = 29
    TWO_PROGRAMS = 30
    FOREIGN = 31
    PERIOD = 32


# Bars under which commands are followed all the same: those arms are brought to rest by them.
FOLLOWED = (Bar.QUALITY, Bar.STRAYED, Bar.OPERATION_MODE, Bar.CLOCK, Bar.TWO_PROGRAMS)

IN_WORDS = {
    Bar.NONE: "it takes commands",
    Bar.ENTERED: "it has just begun to take commands",
    Bar.QUALITY: "the connection is worse than GOOD",
    Bar.FAR: "a command was too far from the one before and was not sent",
    Bar.MISSED: (
        "messages or answers were lost; commands go on, from rest, where it took the last one"
    ),
    Bar.STRAYED: "the arm is far from where it was commanded to be",
    Bar.IDLE: "the session is IDLE",
    Bar.MONITORING_WAIT: "the session is MONITORING_WAIT: the connection is too poor for commands",
    Bar.MONITORING_READY: (
        "the session is MONITORING_READY: the controller's application has ended its motion, or "
        "not begun it"
    ),
    Bar.COMMANDING_WAIT: "the session is COMMANDING_WAIT: the motion is about to begin",
    Bar.COMMAND_MODE: "its application wants no joint positions",
    Bar.OPERATION_MODE: "its operation mode was changed, or is not allowed",
    Bar.DRIVES: "its drives are not active",
    Bar.SAFETY: "its safety controller has stopped it",
    Bar.UNSYNCHRONISED: "its driver program does not know the time yet",
    Bar.NO_MOTION: "its controller is in no motion that takes commands, or has told nothing yet",
    Bar.IGNORED: "its driver program does not do what it is told",
    Bar.CLOCK: "the time of its driver program has gone backwards",
    Bar.RESTARTED: "its driver program was started anew",
    Bar.TWO_PROGRAMS: "two driver programs speak for it",
    Bar.FOREIGN: "somebody else commands it, so nothing is sent to it",
    Bar.PERIOD: "its controller wants commands in another period than this program was told",
}


def describe_bar(code: int) -> str:
    """Returns a number of `ArmState.barred` in words."""
    try:
        return IN_WORDS[Bar(code)]
    except ValueError:
        return f"unknown state {code}"


def would_be_refused(arm: str, code: int) -> str:
    """Says that an arm that is only read could not be moved, and why."""
    return f"{arm} would be refused commands: {describe_bar(code)}."
