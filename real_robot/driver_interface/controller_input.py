"""An input of a robot's controller that permits motion, as of an enabling pedal."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from stringline.datasets.contract.argument_checks import unknown_name

SETTINGS = ("input", "arm")


@dataclass(frozen=True)
class ControllerInput:
    """An input of a controller: the arms move only while it is 1.

    Attributes:
        input: Name of the input in the controller's project; it is a bit.
        arm: Arm whose controller has it; None: the first one.
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
