"""The gripper in the emulated controllers' project: an analogue output, or a valve with one bit or two; what measures it."""

import math
from collections.abc import Sequence

from stringline.real_robot.drivers.fri.enums import IoDirection, IoType
from stringline.real_robot.drivers.fri.io_value import IoValue
from stringline.real_robot.emulators.fri.io_names import (
    GRIPPER_CLOSE,
    GRIPPER_INPUT,
    GRIPPER_IS_OPEN,
    GRIPPER_OPEN,
    GRIPPER_OUTPUT,
)

_AS_GOOD_AS_OPEN = 0.95
# What a valve's bits, to open and to close, were set to: nothing yet by a client, so that they are
# as the gripper is; neither.
UNTOLD = ()
NEUTRAL = (0.0, 0.0)


def opening_of(outputs: Sequence[IoValue], before: float) -> float:
    """Returns where outputs send the gripper, from 0 to 1.

    Args:
        outputs: That a client has written.
        before: Where it was sent before. It stays there if nobody says otherwise, or if a valve is
            told both or neither.
    """
    told = {one.name: one.value for one in outputs if math.isfinite(one.value)}
    if GRIPPER_OUTPUT in told:
        return min(max(told[GRIPPER_OUTPUT], 0.0), 1.0)
    if GRIPPER_OPEN not in told:
        return before
    opens = bool(told[GRIPPER_OPEN])
    closes = bool(told.get(GRIPPER_CLOSE, not opens))  # With one bit alone a spring closes.
    return before if opens == closes else float(opens)


def bits_of(outputs: Sequence[IoValue], before: tuple[float, ...]) -> tuple[float, ...]:
    """Returns what the valve's bits are set to: as before if nobody says otherwise.

    Args:
        outputs: That a client has written.
        before: What they were set to.
    """
    told = {one.name: float(bool(one.value)) for one in outputs if math.isfinite(one.value)}
    if GRIPPER_OUTPUT in told:
        return UNTOLD
    if GRIPPER_OPEN not in told:
        return before
    return told[GRIPPER_OPEN], told.get(GRIPPER_CLOSE, 1.0 - told[GRIPPER_OPEN])


def told_of(measured: float, wanted: float, bits: tuple[float, ...]) -> tuple[IoValue, ...]:
    """Returns what a controller tells of all inputs and outputs that are registered for FRI: these, in every message.

    Args:
        measured: Opening of the gripper.
        wanted: Where outputs send it.
        bits: What the valve's are set to.
    """
    is_open = float(measured >= _AS_GOOD_AS_OPEN)
    as_wanted = float(wanted >= 0.5)
    opens, closes = bits or (as_wanted, 1.0 - as_wanted)
    return (
        IoValue(GRIPPER_INPUT, IoType.ANALOG, IoDirection.INPUT, measured),
        IoValue(GRIPPER_IS_OPEN, IoType.BOOLEAN, IoDirection.INPUT, is_open),
        IoValue(GRIPPER_OUTPUT, IoType.ANALOG, IoDirection.OUTPUT, wanted),
        IoValue(GRIPPER_OPEN, IoType.BOOLEAN, IoDirection.OUTPUT, opens),
        IoValue(GRIPPER_CLOSE, IoType.BOOLEAN, IoDirection.OUTPUT, closes),
    )
