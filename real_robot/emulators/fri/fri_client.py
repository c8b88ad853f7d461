"""Emulated KUKA arms as their users see them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from stringline.real_robot.drivers.grippers.gripper_choice import WSG_LCM, gripper_settings
from stringline.real_robot.drivers.lcm.wsg import WsgGripper
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.emulators.program.emulator_settings import EmulatorSettings, FriSettings


@dataclass(frozen=True)
class ControllerReport:
    """Statistics of a controller since it was switched on.

    Attributes:
        periods: Messages sent.
        in_time: Number of these that were answered before the next.
        stops: Reasons for which it has stopped its arm, oldest first.
    """

    periods: int
    in_time: int
    stops: tuple[str, ...]
    state: str


class KukaEmulator(Emulator):
    """Emulated KUKA arms, over FRI or behind a driver program."""

    def reboot(self, *, patient: bool = False) -> None:
        """Switches all controllers off and on.

        In lock-step sessions come up by themselves again, until the next episode; over FRI, if
        `patient`, controllers advance only by `nudge`.
        """
        self._request({"operation": "reboot", "patient": patient})

    def _reports(self) -> dict[str, dict[str, Any]]:
        """Returns the fields of the report of each arm since it was switched on."""
        found: Any = self._request({"operation": "report"})[0]["report"]
        return {arm: {**entry, "stops": tuple(entry["stops"])} for arm, entry in found.items()}


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
        return {arm: ControllerReport(**entry) for arm, entry in self._reports().items()}
