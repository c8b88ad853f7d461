"""Robot backend of KUKA arms behind drake-iiwa-driver, over LCM."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stringline.real_robot.driver_interface.driver import ArmDriver
from stringline.real_robot.driver_interface.gripper import GripperSettings, stilled
from stringline.real_robot.drivers.grippers.gripper_choice import WSG_LCM, gripper_settings
from stringline.real_robot.drivers.lcm.lcm_driver import LcmDriver
from stringline.real_robot.drivers.lcm.wsg import COMMAND_CHANNEL, STATUS_CHANNEL, WsgGripper
from stringline.real_robot.emulators.lcm.lcm_client import LcmEmulator
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.safety.kuka_limits import kuka_embodiment, kuka_limits, ports_in_order
from stringline.real_robot.safety.limits import SafetyLimits

_LOCK_STEP_TIMEOUT_S = 1.0  # The world waits, so no answer is late.
_DEFAULT_GRIPPER = WsgGripper()
# Keyword arguments of a driver for any number of arms with emulated grippers.
EMULATED_GRIPPERS: Mapping[str, Any] = {
    "gripper": {
        "transport": WSG_LCM,
        WSG_LCM: {
            "command_channel": COMMAND_CHANNEL + "_{arm}",
            "status_channel": STATUS_CHANNEL + "_{arm}",
        },
    }
}


class LcmBackend:
    """KUKA's arms, over LCM.

    Args:
        arms: `one` or `two`.
        settings: Keyword arguments of `LcmDriver`, with `gripper` for the gripper of each arm,
            which is in the arms' group of LCM by default.

    Attributes:
        embodiment: The embodiment of the arms.

    Raises:
        ValueError: The number of arms or a setting of the gripper is invalid.
    """

    def __init__(self, arms: str, settings: Mapping[str, Any]) -> None:
        self._arms = arms
        self.embodiment = kuka_embodiment(arms)
        self._settings = {key: value for key, value in settings.items() if key != "gripper"}
        self._network: dict[str, Any] = {
            key: settings[key] for key in ("interface", "ttl") if key in settings
        }
        gripper = settings.get("gripper")
        found = gripper_settings(gripper, self.embodiment.arms, (WSG_LCM,))
        self._gripper = found if isinstance(found, WsgGripper) else None
        self._gripper_given: frozenset[str] = (
            frozenset() if gripper is None else frozenset(gripper.get(WSG_LCM) or {})
        )

    def limits(self, **settings: Any) -> SafetyLimits:
        """Builds the limits of the safety filter."""
        return kuka_limits(self.embodiment, **settings)

    def emulator(self, **settings: Any) -> Emulator:
        """Builds the emulator of a task; its grippers have the driver's channels."""
        return LcmEmulator(gripper=self._gripper, **settings)

    def bare_emulator(self, **settings: Any) -> Emulator:
        """Builds an emulator without a task, with the grippers of a task."""
        return LcmEmulator(arms=self._arms, gripper=self._gripper, **settings)

    def driver(
        self,
        ports: Mapping[str, str],
        *,
        period_s: float,
        lock_step: bool,
        read_only: bool,
        still_grippers: bool = False,
    ) -> ArmDriver:
        """Builds the driver; in lock-step it waits longer for answers.

        Raises:
            ValueError: The ports are not those of the arms.
        """
        chosen = ports_in_order(self.embodiment, ports)
        return LcmDriver(
            chosen,
            **self._settings,
            grippers=stilled(self._grippers(chosen), still=still_grippers),
            period_s=period_s,
            together=lock_step,
            read_only=read_only,
            answer_timeout_s=_LOCK_STEP_TIMEOUT_S if lock_step else None,
        )

    def twin_driver(self, ports: Mapping[str, str], *, period_s: float) -> ArmDriver:
        """Builds the driver of an emulated twin, which has its own group with default channels."""
        chosen = ports_in_order(self.embodiment, ports)
        here: dict[str, Any] = {
            "interface": _DEFAULT_GRIPPER.interface,
            "ttl": _DEFAULT_GRIPPER.ttl,
        }
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
            defaults: dict[str, Any] = {"address": port, **self._network}
            missing = {name: defaults[name] for name in defaults if name not in self._gripper_given}
            found[arm] = replace(self._gripper, **missing)
        return found
