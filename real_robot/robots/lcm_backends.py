"""KUKA's arms behind drake-iiwa-driver: their emulator and their driver as a configuration names them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stringline.real_robot.driver_interface.driver import ArmDriver
from stringline.real_robot.driver_interface.gripper import GripperSettings
from stringline.real_robot.driver_interface.still_gripper import stilled
from stringline.real_robot.drivers.grippers.gripper_choice import WSG_LCM, gripper_settings
from stringline.real_robot.drivers.lcm.lcm_driver import LcmDriver
from stringline.real_robot.drivers.lcm.wsg import COMMAND_CHANNEL, STATUS_CHANNEL, WsgGripper
from stringline.real_robot.emulators.lcm.lcm_client import LcmEmulator, gripper_arguments
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.safety.kuka_limits import kuka_body, kuka_limits, ports_in_order
from stringline.real_robot.safety.limits import SafetyLimits

_PATIENCE_S = 1.0  # In lock-step, where the world waits.
_USUAL = WsgGripper()
# Settings of a driver whose arms, however many, have emulated grippers.
EMULATED: Mapping[str, Any] = {
    "gripper": {
        "transport": WSG_LCM,
        WSG_LCM: {
            "command_channel": COMMAND_CHANNEL + "_{arm}",
            "status_channel": STATUS_CHANNEL + "_{arm}",
        },
    }
}


class LcmArms:
    """KUKA's arms, over LCM.

    Args:
        arms: `one` or `two`.
        settings: Of the driver; `gripper`, if it is there, is the same for each arm, and in the
            arms' group of LCM unless it names another.

    Raises:
        ValueError: There are no such arms, or no such gripper.
    """

    def __init__(self, arms: str, settings: Mapping[str, Any]) -> None:
        self._arms = arms
        self.body = kuka_body(arms)
        self._settings = {key: value for key, value in settings.items() if key != "gripper"}
        self._network: dict[str, Any] = {
            key: settings[key] for key in ("interface", "ttl") if key in settings
        }
        gripper = settings.get("gripper")
        found = gripper_settings(gripper, self.body.arms, (WSG_LCM,))
        self._gripper = found if isinstance(found, WsgGripper) else None
        self._gripper_given: frozenset[str] = (
            frozenset() if gripper is None else frozenset(gripper.get(WSG_LCM) or {})
        )

    def limits(self, **settings: Any) -> SafetyLimits:
        """Returns what the safety filter holds them to."""
        return kuka_limits(self.body, **settings)

    def emulator(
        self,
        *,
        lock_step: bool,
        cameras: Sequence[str],
        image_size: int,
        settings: Mapping[str, Any],
    ) -> Emulator:
        """Returns their emulator, not started.

        Its grippers are in its own group, under the channels that the driver knows.
        """
        chosen = {"lock_step": lock_step, "cameras": cameras, "image_size": image_size, **settings}
        return LcmEmulator.of_task(gripper=self._gripper, **chosen)

    def bare_emulator(self, arguments: Sequence[str]) -> Emulator:
        """Returns their emulator without a task, not started, with grippers as in a task."""
        return LcmEmulator(["--arms", self._arms, *gripper_arguments(self._gripper), *arguments])

    def driver(
        self,
        ports: Mapping[str, str],
        *,
        period_s: float,
        lock_step: bool,
        read_only: bool,
        still_grippers: bool = False,
    ) -> ArmDriver:
        """Returns their driver, not connected.

        In lock-step nothing is ever late, so it waits for as long as it takes.

        Raises:
            ValueError: There is no port for an arm, or one for an arm that there is not.
        """
        chosen = ports_in_order(self.body, ports)
        return LcmDriver(
            chosen,
            **self._settings,
            grippers=stilled(self._grippers(chosen), still=still_grippers),
            period_s=period_s,
            together=lock_step,
            read_only=read_only,
            answer_timeout_s=_PATIENCE_S if lock_step else None,
        )

    def twin_driver(self, ports: Mapping[str, str], *, period_s: float) -> ArmDriver:
        """Returns the driver of an emulated twin, whose program speaks on the usual channels of a group of its own."""
        chosen = ports_in_order(self.body, ports)
        here: dict[str, Any] = {"interface": _USUAL.interface, "ttl": _USUAL.ttl}
        grippers = (
            {}
            if self._gripper is None
            else {arm: replace(self._gripper, address=chosen[arm], **here) for arm in chosen}
        )
        return LcmDriver(chosen, grippers=grippers, period_s=period_s)

    def _grippers(self, ports: Mapping[str, str]) -> dict[str, GripperSettings]:
        if self._gripper is None:
            return {}
        found: dict[str, GripperSettings] = {}
        for arm, port in ports.items():
            usual: dict[str, Any] = {"address": port, **self._network}
            found[arm] = replace(
                self._gripper,
                **{name: usual[name] for name in usual if name not in self._gripper_given},
            )
        return found
