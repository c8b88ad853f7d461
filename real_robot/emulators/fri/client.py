"""Emulated KUKA arms as their users see them."""

from dataclasses import dataclass
from typing import ClassVar

from stringline.real_robot.emulators.client import Emulator
from stringline.real_robot.emulators.messages import Json


@dataclass(frozen=True)
class ControllerReport:
    """How a controller fared.

    Attributes:
        periods: Messages sent.
        in_time: Of these, how many were answered before the next.
        stops: Why it has stopped its arm, oldest first.
        state: Name of the session's state.
    """

    periods: int
    in_time: int
    stops: tuple[str, ...]
    state: str


class FriEmulator(Emulator):
    """The program `emulators.fri`; `ports` are those that a driver opens, `address:number` by arm."""

    PROGRAM: ClassVar[str] = "stringline.real_robot.emulators.fri"

    def reboot(self) -> None:
        """Switches all controllers off and on; in lock-step sessions come up by themselves again, until the next episode."""
        self._ask({"operation": "reboot"})

    def report(self) -> dict[str, ControllerReport]:
        """Returns how each controller fared since it was switched on, by arm."""
        found = self._ask({"operation": "report"})[0]["report"]
        assert isinstance(found, dict)
        return {arm: _report(entry) for arm, entry in found.items() if isinstance(entry, dict)}


def _report(entry: dict[str, Json]) -> ControllerReport:
    stops = entry["stops"]
    reasons = tuple(str(why) for why in stops) if isinstance(stops, list) else ()
    return ControllerReport(int(str(entry["periods"])), int(str(entry["in_time"])), reasons, str(entry["state"]))
