"""Robot backends of KUKA arms: over FRI, and behind drake-iiwa-driver over LCM."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from stringline.real_robot.driver_interface.driver import ArmDriver
from stringline.real_robot.driver_interface.gripper import GripperSettings, stilled
from stringline.real_robot.drivers.fri.fri_driver import FriDriver
from stringline.real_robot.drivers.fri.output_gripper import IoGripper
from stringline.real_robot.drivers.fri.versions import DEFAULT_VERSION, version_of
from stringline.real_robot.drivers.grippers.gripper_choice import (
    FRI_OUTPUT,
    WSG_LCM,
    gripper_settings,
)
from stringline.real_robot.drivers.lcm.lcm_driver import LcmDriver
from stringline.real_robot.drivers.lcm.wsg import COMMAND_CHANNEL, STATUS_CHANNEL, WsgGripper
from stringline.real_robot.emulators.fri.emulated_outputs import GRIPPER_INPUT, GRIPPER_OUTPUT
from stringline.real_robot.emulators.fri.fri_client import FriEmulator
from stringline.real_robot.emulators.lcm.lcm_client import LcmEmulator
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.safety.kuka_limits import kuka_embodiment, kuka_limits, ports_in_order
from stringline.real_robot.safety.limits import SafetyLimits

LOCK_STEP_TIMEOUT_S = 1.0  # The world waits, so no answer is late.
_NETWORK = ("interface", "ttl")
# Keyword arguments of a driver for any number of arms with emulated grippers, by transport.
EMULATED_GRIPPERS: Mapping[str, Mapping[str, Any]] = {
    "fri": {
        "gripper": {
            "transport": FRI_OUTPUT,
            FRI_OUTPUT: {"output": GRIPPER_OUTPUT, "feedback": GRIPPER_INPUT},
        }
    },
    "lcm": {
        "gripper": {
            "transport": WSG_LCM,
            WSG_LCM: {
                "command_channel": COMMAND_CHANNEL + "_{arm}",
                "status_channel": STATUS_CHANNEL + "_{arm}",
            },
        }
    },
}


class KukaBackend(ABC):
    """KUKA's arms.

    Args:
        arms: `one` or `two`.
        settings: Keyword arguments of the driver without those of the gripper.

    Attributes:
        emulated: Settings of the emulator that the caller of `emulator` does not give.
    """

    def __init__(self, arms: str, settings: Mapping[str, Any]) -> None:
        self.emulated: Mapping[str, Any] = {}
        self._arms = arms
        self.embodiment = kuka_embodiment(arms)
        self._settings = settings

    @abstractmethod
    def emulator(self, **settings: Any) -> Emulator:
        """Builds the emulator of a task."""

    @abstractmethod
    def _connection(self, ports: Mapping[str, str], **settings: Any) -> ArmDriver: ...

    @abstractmethod
    def _grippers(self, ports: Mapping[str, str], *, twin: bool) -> Mapping[str, GripperSettings]:
        """Returns the gripper of each arm, or of its emulated twin."""

    def limits(self, **settings: Any) -> SafetyLimits:
        """Builds the limits of the safety filter."""
        return kuka_limits(self.embodiment, **settings)

    def bare_emulator(self, **settings: Any) -> Emulator:
        """Builds an emulator without a task."""
        return self.emulator(arms=self._arms, **settings)

    def driver(
        self,
        ports: Mapping[str, str],
        *,
        period_s: float,
        lock_step: bool,
        read_only: bool,
        still_grippers: bool = False,
    ) -> ArmDriver:
        """Builds the driver; in lock-step it waits longer for answers."""
        chosen = ports_in_order(self.embodiment, ports)
        return self._connection(
            chosen,
            **self._settings,
            grippers=stilled(self._grippers(chosen, twin=False), still=still_grippers),
            period_s=period_s,
            together=lock_step,
            read_only=read_only,
            answer_timeout_s=LOCK_STEP_TIMEOUT_S if lock_step else None,
        )

    def twin_driver(self, ports: Mapping[str, str], *, period_s: float) -> ArmDriver:
        """Builds the driver of an emulated twin."""
        chosen = ports_in_order(self.embodiment, ports)
        grippers = self._grippers(chosen, twin=True)
        return self._connection(chosen, grippers=grippers, period_s=period_s)


class FriBackend(KukaBackend):
    """KUKA's arms, over FRI.

    Args:
        arms: `one` or `two`.
        settings: Keyword arguments of `FriDriver`, with `gripper` for the gripper of each arm.

    Attributes:
        version: Version of FRI, the same for driver and emulator.

    Raises:
        ValueError: The number of arms, the version or a setting of the gripper is invalid.
    """

    def __init__(self, arms: str, settings: Mapping[str, Any]) -> None:
        super().__init__(arms, _without(("gripper", "version"), settings))
        # YAML reads 1.15 without quotes as a number.
        self.version = str(settings.get("version", DEFAULT_VERSION))
        self._gripper = gripper_settings(settings.get("gripper"), self.embodiment.arms)
        if not version_of(self.version).has_io and isinstance(self._gripper, IoGripper):
            raise ValueError(
                f"FRI {self.version} has no inputs and outputs for a gripper. Set "
                "robot.driver.gripper.transport=null to leave the gripper as it is, or use FRI "
                "1.14 or later."
            )

    def emulator(self, **settings: Any) -> Emulator:
        """Builds the emulator of a task."""
        return FriEmulator(version=self.version, **{**self.emulated, **settings})

    def _connection(self, ports: Mapping[str, str], **settings: Any) -> ArmDriver:
        return FriDriver(ports, version=self.version, **settings)

    def _grippers(self, ports: Mapping[str, str], *, twin: bool) -> Mapping[str, GripperSettings]:
        """Returns the gripper of each arm; a twin has the emulator's default one."""
        gripper = self._gripper
        if twin:
            has_io = version_of(self.version).has_io
            gripper = IoGripper(GRIPPER_OUTPUT, feedback=GRIPPER_INPUT) if has_io else None
        return {} if gripper is None else dict.fromkeys(ports, gripper)


class LcmBackend(KukaBackend):
    """KUKA's arms, over LCM.

    Args:
        arms: `one` or `two`.
        settings: Keyword arguments of `LcmDriver`, with `gripper` for the gripper of each arm,
            which is in the arms' group of LCM by default.
    """

    def __init__(self, arms: str, settings: Mapping[str, Any]) -> None:
        super().__init__(arms, _without(("gripper",), settings))
        gripper = settings.get("gripper")
        found = gripper_settings(gripper, self.embodiment.arms, (WSG_LCM,))
        self._gripper = found if isinstance(found, WsgGripper) else None
        self._given: Collection[str] = () if gripper is None else gripper.get(WSG_LCM) or ()
        self._network = {key: settings[key] for key in _NETWORK if key in settings}

    def emulator(self, **settings: Any) -> Emulator:
        """Builds the emulator of a task; its grippers have the driver's channels."""
        return LcmEmulator(gripper=self._gripper, **{**self.emulated, **settings})

    def _connection(self, ports: Mapping[str, str], **settings: Any) -> ArmDriver:
        return LcmDriver(ports, **settings)

    def _grippers(self, ports: Mapping[str, str], *, twin: bool) -> Mapping[str, GripperSettings]:
        """Returns grippers in the groups of their arms, except for the given settings.

        The grippers of a twin are in its own group, with the same channels.
        """
        if self._gripper is None:
            return {}
        given = () if twin else self._given
        network = {key: getattr(WsgGripper, key) for key in _NETWORK} if twin else self._network
        return {
            arm: replace(self._gripper, **_without(given, {"address": port, **network}))
            for arm, port in ports.items()
        }


def _without(names: Collection[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}
