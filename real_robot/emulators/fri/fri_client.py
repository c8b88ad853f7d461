"""Emulated KUKA arms as their users see them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from stringline.real_robot.drivers.fri.versions import DEFAULT_VERSION
from stringline.real_robot.emulators.grippers.gripper_arguments import gripper_arguments
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.ipc.array_messages import Json


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


@dataclass(frozen=True)
class GripperReport:
    """How a gripper with a wire of its own fared.

    Attributes:
        heard: Messages that reached it on its channel of commands.
        wrong: What was wrong with some of them.
    """

    heard: int
    wrong: tuple[str, ...]


class FriEmulator(Emulator):
    """The program `emulators.fri`; `ports` are those that a driver opens, `address:number` by arm."""

    PROGRAM: ClassVar[str] = "stringline.real_robot.emulators.fri"

    @classmethod
    def of_task(
        cls,
        task: str,
        *,
        version: str = DEFAULT_VERSION,
        gripper: Mapping[str, Any] | None = None,
        good: float | None = None,
        most_missed: int | None = None,
        **settings: Any,
    ) -> Self:
        """Returns the emulator of a MuJoCo world, not started yet.

        Args:
            task: Name in the catalogue.
            version: Of FRI.
            gripper: Settings of the driver's grippers; only one with a wire of its own makes a
                difference here.
            good: Share of answers in time from which commands are taken; None: as of the program.
                On a busy machine only a controller that asks for less stays connected.
            most_missed: Answers in a row that may be missing; None: as of the program.
            settings: Further ones, as of every emulator.
        """
        emulator = super().of_task(task, **settings)
        emulator._arguments += ["--version", version, *gripper_arguments(gripper)]
        for name, value in (("--good", good), ("--most-missed", most_missed)):
            emulator._arguments += [] if value is None else [name, str(value)]
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
        return {arm: _report(entry) for arm, entry in self._reports("report").items()}

    def gripper_report(self) -> dict[str, GripperReport]:
        """Returns how each gripper with a wire of its own fared since it was switched on, by arm."""
        reports = self._reports("grippers")
        return {
            arm: GripperReport(int(str(entry["heard"])), _texts(entry["wrong"]))
            for arm, entry in reports.items()
        }

    def _reports(self, kind: str) -> dict[str, dict[str, Json]]:
        found = self._ask({"operation": "report"})[0][kind]
        assert isinstance(found, dict)
        return {arm: entry for arm, entry in found.items() if isinstance(entry, dict)}


def _report(entry: dict[str, Json]) -> ControllerReport:
    counts = int(str(entry["periods"])), int(str(entry["in_time"]))
    return ControllerReport(*counts, _texts(entry["stops"]), str(entry["state"]))


def _texts(found: Json) -> tuple[str, ...]:
    return tuple(map(str, found)) if isinstance(found, list) else ()
