"""Emulated KUKA arms as their users see them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from stringline.real_robot.drivers.grippers.gripper_choice import WSG_LCM, gripper_settings
from stringline.real_robot.drivers.lcm.wsg import WsgGripper
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.emulators.program.emulator_settings import EmulatorSettings, FriSettings
from stringline.real_robot.ipc.array_messages import Json


@dataclass(frozen=True)
class ControllerReport:
    """Statistics of a controller since it was switched on.

    Attributes:
        periods: Messages sent.
        in_time: Number of these that were answered before the next.
        stops: Reasons for which it has stopped its arm, oldest first.
        state: Name of the session's state.
    """

    periods: int
    in_time: int
    stops: tuple[str, ...]
    state: str

    @staticmethod
    def values_in(entry: Mapping[str, Json]) -> dict[str, Any]:
        """Returns these values of an entry of a report."""
        return {
            "periods": int(str(entry["periods"])),
            "in_time": int(str(entry["in_time"])),
            "stops": _texts(entry["stops"]),
            "state": str(entry["state"]),
        }


@dataclass(frozen=True)
class GripperReport:
    """Statistics of a gripper with a connection of its own.

    Attributes:
        heard: Messages that reached it on its channel of commands.
        wrong: Errors in some of them.
    """

    heard: int
    wrong: tuple[str, ...]


class KukaEmulator(Emulator):
    """Emulated KUKA arms, over FRI or behind a driver program."""

    def reboot(self, *, patient: bool = False) -> None:
        """Switches all controllers off and on.

        In lock-step sessions come up by themselves again, until the next episode.

        Args:
            patient: In lock-step over FRI, whether controllers advance only by `nudge`.
        """
        self._request({"operation": "reboot", "patient": patient})

    def _reports(self, kind: str) -> dict[str, dict[str, Json]]:
        found = self._request({"operation": "report"})[0][kind]
        assert isinstance(found, dict)
        return {arm: entry for arm, entry in found.items() if isinstance(entry, dict)}


class FriEmulator(KukaEmulator):
    """Emulated KUKA controllers with FRI; `ports` are `address:number` that a driver opens, by arm.

    Args:
        gripper: Settings of the driver's grippers; only grippers with a connection of their own
            make a difference here.
        **settings: Fields of `FriSettings`; None stands for the default.
    """

    SETTINGS: ClassVar[type[EmulatorSettings]] = FriSettings

    def __init__(self, *, gripper: Mapping[str, Any] | None = None, **settings: Any) -> None:
        given = {name: value for name, value in settings.items() if value is not None}
        found = gripper_settings(gripper, ())
        if isinstance(found, WsgGripper):
            given |= {
                "gripper": WSG_LCM,
                "gripper_address": found.address,
                "gripper_interface": found.interface,
                "gripper_commands": found.command_channel,
                "gripper_states": found.status_channel,
            }
        super().__init__(**given)

    def nudge(self, arm: str) -> None:
        """Makes a controller send its next message, answered or not.

        Only in lock-step, before the first episode.
        """
        self._request({"operation": "nudge", "arm": arm})

    def report(self) -> dict[str, ControllerReport]:
        """Returns the statistics of each controller since it was switched on, by arm."""
        return {
            arm: ControllerReport(**ControllerReport.values_in(entry))
            for arm, entry in self._reports("report").items()
        }

    def gripper_report(self) -> dict[str, GripperReport]:
        """Returns the statistics of each gripper with a connection of its own, by arm."""
        return {
            arm: GripperReport(int(str(entry["heard"])), _texts(entry["wrong"]))
            for arm, entry in self._reports("grippers").items()
        }


def _texts(found: Json) -> tuple[str, ...]:
    return tuple(map(str, found)) if isinstance(found, list) else ()
