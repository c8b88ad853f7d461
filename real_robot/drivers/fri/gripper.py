"""A gripper at the controller's own outputs: an opening from 0 to 1 as an analogue value, or open and closed as a bit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stringline.real_robot.drivers.fri.enums import IoDirection, IoType
from stringline.real_robot.drivers.fri.io_value import IoValue


@dataclass(frozen=True)
class IoGripper:
    """A gripper by the names of an output and an input of the controller.

    Attributes:
        output: Takes the wanted opening: 0 closed, 1 open; a bit is set from half open on.
        kind: Of the output and the input.
        feedback: Tells the opening; None: what was commanded counts as measured.
    """

    output: str
    kind: IoType = IoType.ANALOG
    feedback: str | None = None

    def command(self, opening: float) -> IoValue:
        """Returns what is to be written for an opening."""
        value = opening if self.kind is IoType.ANALOG else float(opening >= 0.5)
        return IoValue(self.output, self.kind, IoDirection.OUTPUT, value)

    def measured(self, inputs: Sequence[IoValue], otherwise: float) -> float:
        """Returns the opening that the inputs tell, or the other one if they say nothing, or no number."""
        told = (one.value for one in inputs if one.name == self.feedback and math.isfinite(one.value))
        return next((min(max(value, 0.0), 1.0) for value in told), otherwise)
