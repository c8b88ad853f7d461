"""Emulated KUKA arms as their users see them."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from stringline.real_robot.drivers.fri.versions import DEFAULT_VERSION
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

    @classmethod
    def of_task(cls, task: str, *, version: str = DEFAULT_VERSION, **settings: Any) -> Self:
        """Returns the emulator of a MuJoCo world, not started yet.

        Args:
            task: Name in the catalogue.
            version: Of FRI.
            settings: Further ones, as of every emulator.
        """
        emulator = super().of_task(task, **settings)
        emulator._arguments += ["--version", version]
        return emulator

    def reboot(self, *, patient: bool = False) -> None:
        """Switches all controllers off and on; in lock-step sessions come up by themselves again, until the next episode.

        Args:
            patient: In lock-step, whether controllers go on only when they are told to, by `nudge`.
        """
        self._ask({"operation": "reboot", "patient": patient})

    def nudge(self, arm: str) -> None:
        """In lock-step, before the first episode: makes a controller send its next message, answered or not."""
        self._ask({"operation": "nudge", "arm": arm})

    def report(self) -> dict[str, ControllerReport]:
        """Returns how each controller fared since it was switched on, by arm."""
        found = self._ask({"operation": "report"})[0]["report"]
        assert isinstance(found, dict)
        return {arm: _report(entry) for arm, entry in found.items() if isinstance(entry, dict)}


def _report(entry: dict[str, Json]) -> ControllerReport:
    stops = entry["stops"]
    reasons = tuple(str(why) for why in stops) if isinstance(stops, list) else ()
    return ControllerReport(int(str(entry["periods"])), int(str(entry["in_time"])), reasons, str(entry["state"]))
