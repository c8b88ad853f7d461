"""Emulated KUKA arms behind drake-iiwa-driver as their users see them."""

from dataclasses import dataclass
from typing import Any, ClassVar

from stringline.real_robot.drivers.grippers.gripper_choice import WSG_LCM
from stringline.real_robot.drivers.lcm.wsg import WsgGripper
from stringline.real_robot.emulators.fri.fri_client import ControllerReport, KukaEmulator
from stringline.real_robot.emulators.program.emulator_settings import (
    OF_THE_ARMS,
    EmulatorSettings,
    LcmSettings,
)


@dataclass(frozen=True)
class ProgramReport(ControllerReport):
    """Statistics of an arm and its driver program; `periods` are statuses, `in_time` commands.

    Attributes:
        ended: Reason for which the program has ended itself; empty while it runs.
        inhibited: Whether it ignores commands because the arm's motion has begun a second time.
    """

    ended: str
    inhibited: bool


class LcmEmulator(KukaEmulator):
    """Emulated KUKA arms behind drake-iiwa-driver; `ports` are `group:port` of LCM by arm.

    Args:
        gripper: Gripper beside each arm, in the group of the arms; None: the arms have none.
        **settings: Fields of `LcmSettings`; None stands for the default.
    """

    SETTINGS: ClassVar[type[EmulatorSettings]] = LcmSettings

    def __init__(self, *, gripper: WsgGripper | None = None, **settings: Any) -> None:
        given = {name: value for name, value in settings.items() if value is not None}
        if gripper is None:
            given["gripper"] = OF_THE_ARMS
        else:
            given |= {
                "gripper": WSG_LCM,
                "gripper_commands": gripper.command_channel,
                "gripper_states": gripper.status_channel,
            }
        super().__init__(**given)

    def report(self) -> dict[str, ProgramReport]:
        """Returns the statistics of each arm since it was switched on."""
        return {arm: ProgramReport(**entry) for arm, entry in self._reports().items()}
