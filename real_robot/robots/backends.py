"""The kinds of arms that a configuration can name: which body they are, who emulates them, and which driver moves them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.driver_interface.driver import ArmDriver
from stringline.real_robot.driver_interface.still_gripper import stilled
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.drivers.fri.fri_driver import FriDriver
from stringline.real_robot.drivers.fri.output_gripper import IoGripper
from stringline.real_robot.drivers.fri.versions import DEFAULT_VERSION, version_of
from stringline.real_robot.drivers.grippers.gripper_choice import FRI_OUTPUT, gripper_settings
from stringline.real_robot.emulators.fri.fri_client import FriEmulator
from stringline.real_robot.emulators.fri.io_names import GRIPPER_INPUT, GRIPPER_OUTPUT
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.robots.lcm_backends import EMULATED, LcmArms
from stringline.real_robot.safety.kuka_limits import (
    KUKA_BODIES,
    kuka_body,
    kuka_limits,
    ports_in_order,
)
from stringline.real_robot.safety.limits import SafetyLimits

# A twin is no robot: it shares a machine with a policy, and its servos are patient.
_TWIN_DRIVER: Mapping[str, Any] = {"bus_watchdog_s": 0.0, "answer_timeout_s": 0.1}
_PATIENCE_S = 1.0  # In lock-step, where the world waits.


class ArmKind(Protocol):
    """Arms of one kind."""

    @property
    def body(self) -> Embodiment:
        """What they are."""
        ...

    def limits(self, **settings: Any) -> SafetyLimits:
        """Returns what the safety filter holds them to; `settings` are of `SafetyLimits.of`."""
        ...

    def emulator(
        self,
        *,
        lock_step: bool,
        cameras: Sequence[str],
        image_size: int,
        settings: Mapping[str, Any],
    ) -> Emulator:
        """Returns their emulator, not started; `settings` are its own."""
        ...

    def bare_emulator(self, arguments: Sequence[str]) -> Emulator:
        """Returns their emulator without a task, not started: nothing but arms.

        `arguments` are of its command line.
        """
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
        """Returns their driver, not connected; grippers that are no servos of an arm may be left as they are."""
        ...

    def twin_driver(self, ports: Mapping[str, str], *, period_s: float) -> ArmDriver:
        """Returns the driver of an emulated twin."""
        ...


class ServoArms:
    """ALOHA's arms, on serial lines.

    Args:
        settings: Of the driver.
    """

    body = ALOHA

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings

    def limits(self, **settings: Any) -> SafetyLimits:
        """Returns what the safety filter holds them to."""
        return SafetyLimits.of(self.body, **settings)

    def emulator(
        self,
        *,
        lock_step: bool,
        cameras: Sequence[str],
        image_size: int,
        settings: Mapping[str, Any],
    ) -> Emulator:
        """Returns their emulator, not started."""
        return Emulator.of_task(
            lock_step=lock_step, cameras=cameras, image_size=image_size, **settings
        )

    def bare_emulator(self, arguments: Sequence[str]) -> Emulator:
        """Returns their emulator without a task, not started."""
        return Emulator(["--plant", "first_order", *arguments])

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

        Its grippers are servos, which have to be told where to be.
        """
        return AlohaDriver(ports, **self._settings, read_only=read_only)

    def twin_driver(self, ports: Mapping[str, str], *, period_s: float) -> ArmDriver:
        """Returns the driver of an emulated twin."""
        return AlohaDriver(ports, **_TWIN_DRIVER)


class FriArms:
    """KUKA's arms, over FRI.

    Args:
        arms: `one` or `two`.
        settings: Of the driver; `gripper`, if it is there, is the same for each arm.

    Attributes:
        arms: As given.
        body: What they are.
        version: Of FRI, the same for driver and emulator.

    Raises:
        ValueError: There are no such arms, or no such version, or it has no gripper.
    """

    def __init__(self, arms: str, settings: Mapping[str, Any]) -> None:
        self.arms = arms
        self.body = kuka_body(arms)
        # YAML reads 1.15 without quotes as a number.
        self.version = str(settings.get("version", DEFAULT_VERSION))
        self._settings = {
            key: value for key, value in settings.items() if key not in ("gripper", "version")
        }
        self._gripper = gripper_settings(settings.get("gripper"), self.body.arms)
        if not version_of(self.version).has_io and isinstance(self._gripper, IoGripper):
            raise ValueError(
                f"FRI {self.version} has no inputs and outputs for a gripper: "
                f"robot.driver.gripper.transport=null, and it "
                "stays as it is; or a later version, from 1.14 on."
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
        """Returns their emulator, not started."""
        chosen = {"lock_step": lock_step, "cameras": cameras, "image_size": image_size, **settings}
        return FriEmulator.of_task(version=self.version, **chosen)

    def bare_emulator(self, arguments: Sequence[str]) -> Emulator:
        """Returns their emulator without a task, not started."""
        return FriEmulator(["--arms", self.arms, "--version", self.version, *arguments])

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
        timeout_s = _PATIENCE_S if lock_step else None
        chosen = ports_in_order(self.body, ports)
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
        """Returns the driver of an emulated twin, whose controllers are set as the emulator has them."""
        chosen = ports_in_order(self.body, ports)
        grippers = dict.fromkeys(chosen, IoGripper(GRIPPER_OUTPUT, feedback=GRIPPER_INPUT))
        if not version_of(self.version).has_io:
            grippers = {}
        return FriDriver(chosen, version=self.version, grippers=grippers, period_s=period_s)


KUKA_ARMS: Mapping[str, Callable[[str, Mapping[str, Any]], ArmKind]] = {
    "fri": FriArms,
    "lcm": LcmArms,
}


def arm_kind(robot: Mapping[str, Any]) -> ArmKind:
    """Returns the kind that a configuration of `configs/robot` names.

    Raises:
        ValueError: It names one that there is not.
    """
    transport = robot.get("transport")
    if transport is None:
        return ServoArms(robot["driver"])
    if transport not in KUKA_ARMS:
        raise unknown_name("transport of KUKA arms", str(transport), KUKA_ARMS)
    return KUKA_ARMS[transport](str(robot["arms"]), robot["driver"])


def emulated_arms(body: str, transport: str | None = None) -> ArmKind:
    """Returns the emulated arms of a body, set so that they are patient: on a busy machine a late answer must not matter.

    Args:
        body: Its name, as in contracts.
        transport: Of KUKA arms, `fri` or `lcm`; None: as is usual for the body.

    Raises:
        ValueError: There is no emulator of it.
    """
    if body == ALOHA.name:
        return ServoArms({"bus_watchdog_s": 0.0, "answer_timeout_s": _PATIENCE_S})
    if transport not in (None, *KUKA_ARMS):
        raise unknown_name("transport of KUKA arms", str(transport), KUKA_ARMS)
    for arms, one in KUKA_BODIES.items():
        if one.name == body and transport == "lcm":
            return LcmArms(arms, EMULATED)
        if one.name == body:
            outputs = {"output": GRIPPER_OUTPUT, "feedback": GRIPPER_INPUT}
            return FriArms(arms, {"gripper": {"transport": FRI_OUTPUT, FRI_OUTPUT: outputs}})
    raise unknown_name(
        "emulated body", body, [ALOHA.name, *(one.name for one in KUKA_BODIES.values())]
    )
