"""Inputs and outputs of the controller in FRI's messages, by the names in its project."""

from dataclasses import dataclass
from typing import Any, Self

from stringline.real_robot.drivers.fri.enums import IoDirection, IoType


@dataclass(frozen=True)
class IoValue:
    """One input or output.

    Attributes:
        name: Name in the controller's project.
        direction: As the controller sees it: clients write outputs.
        value: A number, or 0 and 1.
    """

    name: str
    kind: IoType
    direction: IoDirection
    value: float

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """Returns a decoded `FriIOValue`; an absent value is 0."""
        found = values.get("analogValue" if values["type"] is IoType.ANALOG else "digitalValue", 0)
        return cls(values["name"], values["type"], values["direction"], float(found))

    def to_values(self) -> dict[str, Any]:
        """Returns the fields to encode."""
        analog = self.kind is IoType.ANALOG
        value = {"analogValue": self.value} if analog else {"digitalValue": int(self.value)}
        return {"name": self.name, "type": self.kind, "direction": self.direction, **value}
