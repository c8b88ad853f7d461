"""Emulated KUKA arms behind drake-iiwa-driver as their users see them."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from stringline.real_robot.drivers.grippers.gripper_choice import WSG_LCM
from stringline.real_robot.drivers.lcm.wsg import WsgGripper
from stringline.real_robot.emulators.grippers.gripper_arguments import OF_THE_ARMS
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.ipc.array_messages import Json


@dataclass(frozen=True)
class ProgramReport:
    """How an arm and its driver program fared.

    Attributes:
        periods: Statuses published by the clock.
        in_time: Of these, how many were followed by a command before the next.
        stops: Why the controller has stopped its arm, oldest first.
        state: Name of the state of its session.
        ended: Why the program has ended itself; empty while it runs.
        inhibited: Whether it ignores commands, since the arm's motion has begun a second time.
    """

    periods: int
    in_time: int
    stops: tuple[str, ...]
    state: str
    ended: str
    inhibited: bool


class LcmEmulator(Emulator):
    """The program `emulators.lcm`; `ports` are `group:port` of LCM by arm."""

    PROGRAM: ClassVar[str] = "stringline.real_robot.emulators.lcm"

    @classmethod
    def of_task(
        cls,
        task: str,
        *,
        gripper: WsgGripper | None = None,
        clock_samples: int | None = None,
        **settings: Any,
    ) -> Self:
        """Returns the emulator of a MuJoCo world, not started yet.

        Args:
            task: Name in the catalogue.
            gripper: Beside each arm, in the group of the arms.
            clock_samples: Messages until the driver program knows the time; None: as of the
                program.
            settings: Of every emulator.
        """
        made = super().of_task(task, **settings)
        made._arguments += gripper_arguments(gripper)
        made._arguments += [] if clock_samples is None else ["--clock-samples", str(clock_samples)]
        return made

    def reboot(self) -> None:
        """Switches everything off and on; in lock-step programs come up by themselves again, until the next episode."""
        self._ask({"operation": "reboot"})

    def report(self) -> dict[str, ProgramReport]:
        """Returns how each arm fared since it was switched on."""
        found = self._ask({"operation": "report"})[0]["report"]
        assert isinstance(found, dict)
        return {arm: _report(entry) for arm, entry in found.items() if isinstance(entry, dict)}


def gripper_arguments(gripper: WsgGripper | None) -> list[str]:
    """Returns how the program is told of the grippers beside its arms, None for none."""
    if gripper is None:
        return ["--gripper", OF_THE_ARMS]
    channels = [
        "--gripper-commands",
        gripper.command_channel,
        "--gripper-states",
        gripper.status_channel,
    ]
    return ["--gripper", WSG_LCM, *channels]


def _report(entry: dict[str, Json]) -> ProgramReport:
    stops = entry["stops"]
    reasons = tuple(str(why) for why in stops) if isinstance(stops, list) else ()
    return ProgramReport(
        periods=int(str(entry["periods"])),
        in_time=int(str(entry["in_time"])),
        stops=reasons,
        state=str(entry["state"]),
        ended=str(entry["ended"]),
        inhibited=bool(entry["inhibited"]),
    )
