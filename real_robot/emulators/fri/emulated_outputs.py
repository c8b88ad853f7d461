"""The gripper at an emulated controller: an analogue output, or a valve with one bit or two."""

import math
from collections.abc import Sequence

from stringline.real_robot.drivers.fri.enums import IoDirection, IoType
from stringline.real_robot.drivers.fri.io_value import IoValue

# Names of inputs and outputs in the emulated controllers' project.
GRIPPER_OUTPUT = "Gripper.Opening"
GRIPPER_INPUT = "Gripper.MeasuredOpening"
# The same gripper with a valve, and a bit for each direction.
GRIPPER_OPEN = "Gripper.Open"
GRIPPER_CLOSE = "Gripper.Close"
GRIPPER_IS_OPEN = "Gripper.IsOpen"
# A pedal of hold-to-run.
RUN_PEDAL = "Run.Pedal"

_AS_GOOD_AS_OPEN = 0.95
# States of a valve's bits, to open and to close: not set by a client yet, so that they follow the
# gripper; and neither.
UNSET = ()
NEUTRAL = (0.0, 0.0)


def opening_of(outputs: Sequence[IoValue], before: float) -> float:
    """Returns the target opening, 0 to 1, by the outputs that a client has written.

    It stays at `before` without an output, or if a valve gets both bits or neither.
    """
    given = {one.name: one.value for one in outputs if math.isfinite(one.value)}
    if GRIPPER_OUTPUT in given:
        return min(max(given[GRIPPER_OUTPUT], 0.0), 1.0)
    if GRIPPER_OPEN not in given:
        return before
    opens = bool(given[GRIPPER_OPEN])
    closes = bool(given.get(GRIPPER_CLOSE, not opens))  # With one bit alone a spring closes.
    return before if opens == closes else float(opens)


def bits_of(outputs: Sequence[IoValue], before: tuple[float, ...]) -> tuple[float, ...]:
    """Returns the valve's bits after a client has written outputs."""
    given = {one.name: float(bool(one.value)) for one in outputs if math.isfinite(one.value)}
    if GRIPPER_OUTPUT in given:
        return UNSET
    if GRIPPER_OPEN not in given:
        return before
    return given[GRIPPER_OPEN], given.get(GRIPPER_CLOSE, 1.0 - given[GRIPPER_OPEN])


def inputs_of(
    measured: float, wanted: float, bits: tuple[float, ...], pedal: float = 0.0
) -> tuple[IoValue, ...]:
    """Returns the inputs and outputs in each message, by the measured and the wanted opening."""
    is_open = float(measured >= _AS_GOOD_AS_OPEN)
    as_wanted = float(wanted >= 0.5)
    opens, closes = bits or (as_wanted, 1.0 - as_wanted)
    return (
        IoValue(GRIPPER_INPUT, IoType.ANALOG, IoDirection.INPUT, measured),
        IoValue(GRIPPER_IS_OPEN, IoType.BOOLEAN, IoDirection.INPUT, is_open),
        IoValue(RUN_PEDAL, IoType.BOOLEAN, IoDirection.INPUT, pedal),
        IoValue(GRIPPER_OUTPUT, IoType.ANALOG, IoDirection.OUTPUT, wanted),
        IoValue(GRIPPER_OPEN, IoType.BOOLEAN, IoDirection.OUTPUT, opens),
        IoValue(GRIPPER_CLOSE, IoType.BOOLEAN, IoDirection.OUTPUT, closes),
    )
