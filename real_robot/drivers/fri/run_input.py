"""Hold-to-run by an input of a controller, which comes with each of its messages."""

import time
from collections.abc import Callable, Sequence
from ctypes import c_double

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.drivers.fri.enums import IoDirection, IoType
from stringline.real_robot.drivers.fri.io_value import IoValue


class RunInput:
    """Permits motion while an input is 1, and withdraws the permission as soon as it is 0.

    An input that is 1 from the first message on does not count until it has been 0: a stuck pedal
    or a bridged contact would otherwise start the arms. Without messages the permission expires.

    Args:
        name: Name of the input in the controller's project.
        permission: Memory of the time of the last permission; 0: none.
    """

    def __init__(
        self, name: str, permission: c_double, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._permission = permission
        self._clock = clock
        self._was_released = False

    def hear(self, inputs: Sequence[IoValue]) -> None:
        """Takes the inputs of a message that has just arrived."""
        held = any(_is_bit(one) and one.name == self._name and one.value == 1 for one in inputs)
        self._was_released = self._was_released or not held
        self._permission.value = self._clock() if held and self._was_released else 0.0

    def problem(self, inputs: Sequence[IoValue]) -> str:
        """Returns why a controller with these inputs and outputs cannot permit motion, or ""."""
        bits = [one.name for one in inputs if _is_bit(one)]
        if self._name in bits:
            return ""
        return str(unknown_name("input (BOOLEAN or DIGITAL) of the controller", self._name, bits))


def _is_bit(one: IoValue) -> bool:
    return one.direction is IoDirection.INPUT and one.kind is not IoType.ANALOG
