"""Robot backends by transport: the embodiment, driver and emulator of each kind of arms."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.driver_interface.driver import ArmDriver
from stringline.real_robot.driver_interface.gripper import stilled
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.drivers.fri.fri_driver import FriDriver
from stringline.real_robot.drivers.fri.output_gripper import IoGripper
from stringline.real_robot.drivers.fri.versions import DEFAULT_VERSION, version_of
from stringline.real_robot.drivers.grippers.gripper_choice import FRI_OUTPUT, gripper_settings
from stringline.real_robot.emulators.fri.emulated_outputs import GRIPPER_INPUT, GRIPPER_OUTPUT
from stringline.real_robot.emulators.fri.fri_client import FriEmulator
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.robots.lcm_backends import EMULATED_GRIPPERS, LcmBackend
from stringline.real_robot.safety.kuka_limits import (
    KUKA_EMBODIMENTS,
    kuka_embodiment,
    kuka_limits,
    ports_in_order,
)
from stringline.real_robot.safety.limits import SafetyLimits

# A twin shares a machine with a policy, so its deadlines are generous.
_TWIN_DRIVER: Mapping[str, Any] = {"bus_watchdog_s": 0.0, "answer_timeout_s": 0.1}
_LOCK_STEP_TIMEOUT_S = 1.0  # The world waits, so no answer is late.


class RobotBackend(Protocol):
    """The embodiment, driver and emulator of one kind of arms."""

    @property
    def embodiment(self) -> Embodiment:
        """The embodiment of the arms."""
        ...

    def limits(self, **settings: Any) -> SafetyLimits:
        """Builds the limits of the safety filter; `settings` are arguments of `SafetyLimits.of`."""
        ...

    def emulator(self, **settings: Any) -> Emulator:
        """Builds the emulator of a task; `settings` are fields of its `SETTINGS`."""
        ...

    def bare_emulator(self, **settings: Any) -> Emulator:
        """Builds an emulator without a task."""
        ...

    def driver(
        self,
        ports: Mapping[str, str],
        *,
        period_s: float,
        lock_step: bool,
        read_only: bool,
        still_grippers: bool = False,
    ) -> ArmDriver:
        """Builds the driver.

        Args:
            ports: Port by arm.
            period_s: Period of the device process.
            lock_step: Whether the emulated world waits for the driver.
            read_only: Whether the driver sends no command.
            still_grippers: Whether it sends no command to grippers that are not servos of an arm.
        """
        ...

    def twin_driver(self, ports: Mapping[str, str], *, period_s: float) -> ArmDriver:
        """Builds the driver of an emulated twin."""
        ...


class ServoBackend:
    """ALOHA's arms, on serial lines.

    Args:
        settings: Keyword arguments of `AlohaDriver`.
    """

    embodiment = ALOHA

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings

    def limits(self, **settings: Any) -> SafetyLimits:
        """Builds the limits of the safety filter."""
        return SafetyLimits.of(self.embodiment, **settings)

    def emulator(self, **settings: Any) -> Emulator:
        """Builds the emulator of a task."""
        return Emulator(**settings)

    def bare_emulator(self, **settings: Any) -> Emulator:
        """Builds an emulator without a task."""
        return Emulator(plant="first_order", **settings)

    def driver(
        self,
        ports: Mapping[str, str],
        *,
        period_s: float,
        lock_step: bool,
        read_only: bool,
        still_grippers: bool = False,
    ) -> ArmDriver:
        """Builds the driver; its grippers are servos, which need commands."""
        return AlohaDriver(ports, **self._settings, read_only=read_only)

    def twin_driver(self, ports: Mapping[str, str], *, period_s: float) -> ArmDriver:
        """Builds the driver of an emulated twin."""
        return AlohaDriver(ports, **_TWIN_DRIVER)


class FriBackend:
    """KUKA's arms, over FRI.

    Args:
        arms: `one` or `two`.
        settings: Keyword arguments of `FriDriver`, with `gripper` for the gripper of each arm.

    Attributes:
        arms: As given.
        embodiment: The embodiment of the arms.
        version: Version of FRI, the same for driver and emulator.

    Raises:
        ValueError: The number of arms, the version or a setting of the gripper is invalid.
    """

    def __init__(self, arms: str, settings: Mapping[str, Any]) -> None:
        self.arms = arms
        self.embodiment = kuka_embodiment(arms)
        # YAML reads 1.15 without quotes as a number.
        self.version = str(settings.get("version", DEFAULT_VERSION))
        self._settings = {
            key: value for key, value in settings.items() if key not in ("gripper", "version")
        }
        self._gripper = gripper_settings(settings.get("gripper"), self.embodiment.arms)
        if not version_of(self.version).has_io and isinstance(self._gripper, IoGripper):
            raise ValueError(
                f"FRI {self.version} has no inputs and outputs for a gripper. Set "
                "robot.driver.gripper.transport=null to leave the gripper as it is, or use FRI "
                "1.14 or later."
            )

    def limits(self, **settings: Any) -> SafetyLimits:
        """Builds the limits of the safety filter."""
        return kuka_limits(self.embodiment, **settings)

    def emulator(self, **settings: Any) -> Emulator:
        """Builds the emulator of a task."""
        return FriEmulator(version=self.version, **settings)

    def bare_emulator(self, **settings: Any) -> Emulator:
        """Builds an emulator without a task."""
        return FriEmulator(arms=self.arms, version=self.version, **settings)

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
        timeout_s = _LOCK_STEP_TIMEOUT_S if lock_step else None
        chosen = ports_in_order(self.embodiment, ports)
        grippers = {} if self._gripper is None else dict.fromkeys(chosen, self._gripper)
        return FriDriver(
            chosen,
            **self._settings,
            version=self.version,
            grippers=stilled(grippers, still=still_grippers),
            period_s=period_s,
            together=lock_step,
            read_only=read_only,
            answer_timeout_s=timeout_s,
        )

    def twin_driver(self, ports: Mapping[str, str], *, period_s: float) -> ArmDriver:
        """Builds the driver of an emulated twin with the emulator's default gripper."""
        chosen = ports_in_order(self.embodiment, ports)
        grippers = dict.fromkeys(chosen, IoGripper(GRIPPER_OUTPUT, feedback=GRIPPER_INPUT))
        if not version_of(self.version).has_io:
            grippers = {}
        return FriDriver(chosen, version=self.version, grippers=grippers, period_s=period_s)


KUKA_BACKENDS: Mapping[str, Callable[[str, Mapping[str, Any]], RobotBackend]] = {
    "fri": FriBackend,
    "lcm": LcmBackend,
}


def robot_backend(transport: str | None, arms: str, driver: Mapping[str, Any]) -> RobotBackend:
    """Builds the backend of a robot.

    Args:
        transport: Transport of KUKA arms, `fri` or `lcm`; None: ALOHA's serial lines.
        arms: Number of KUKA arms, `one` or `two`.
        driver: Keyword arguments of the driver.

    Raises:
        ValueError: The transport is unknown; names the nearest.
    """
    if transport is None:
        return ServoBackend(driver)
    if transport not in KUKA_BACKENDS:
        raise unknown_name("transport of KUKA arms", str(transport), KUKA_BACKENDS)
    return KUKA_BACKENDS[transport](arms, driver)


def emulated_backend(embodiment: str, transport: str | None = None) -> RobotBackend:
    """Builds the backend of emulated arms, with deadlines that a busy machine keeps.

    Args:
        embodiment: Name of the embodiment.
        transport: Transport of KUKA arms, `fri` or `lcm`; None: FRI.

    Raises:
        ValueError: There is no emulator of the embodiment, or the transport is unknown.
    """
    if embodiment == ALOHA.name:
        return ServoBackend({"bus_watchdog_s": 0.0, "answer_timeout_s": _LOCK_STEP_TIMEOUT_S})
    if transport not in (None, *KUKA_BACKENDS):
        raise unknown_name("transport of KUKA arms", str(transport), KUKA_BACKENDS)
    for arms, one in KUKA_EMBODIMENTS.items():
        if one.name == embodiment and transport == "lcm":
            return LcmBackend(arms, EMULATED_GRIPPERS)
        if one.name == embodiment:
            outputs = {"output": GRIPPER_OUTPUT, "feedback": GRIPPER_INPUT}
            return FriBackend(arms, {"gripper": {"transport": FRI_OUTPUT, FRI_OUTPUT: outputs}})
    known = [ALOHA.name, *(one.name for one in KUKA_EMBODIMENTS.values())]
    raise unknown_name("emulated embodiment", embodiment, known)
