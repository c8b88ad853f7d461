"""The kinds of arms that a configuration can name: which body they are, who emulates them, and which driver moves them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.datasets.names import unknown_name
from stringline.real_robot.drivers.driver import ArmDriver
from stringline.real_robot.drivers.dynamixel.aloha import AlohaDriver
from stringline.real_robot.drivers.fri.driver import FriDriver
from stringline.real_robot.drivers.fri.gripper import IoGripper
from stringline.real_robot.drivers.fri.versions import DEFAULT_VERSION, version_of
from stringline.real_robot.drivers.grippers.choice import FRI_OUTPUT, gripper_settings
from stringline.real_robot.emulators.client import Emulator
from stringline.real_robot.emulators.fri.client import FriEmulator
from stringline.real_robot.emulators.fri.names import GRIPPER_INPUT, GRIPPER_OUTPUT

KUKA_BODIES: Mapping[str, Embodiment] = {"one": IIWA14, "two": IIWA14_BIMANUAL}
# A twin is no robot: it shares a machine with a policy, and its servos are patient.
_TWIN_DRIVER: Mapping[str, Any] = {"bus_watchdog_s": 0.0, "answer_timeout_s": 0.1}
_PATIENCE_S = 1.0  # In lock-step, where the world waits.


class ArmKind(Protocol):
    """Arms of one kind."""

    @property
    def body(self) -> Embodiment:
        """What they are."""
        ...

    def emulator(self, *, lock_step: bool, cameras: Sequence[str], image_size: int, settings: Mapping[str, Any]) -> Emulator:
        """Returns their emulator, not started; `settings` are its own."""
        ...

    def driver(self, ports: Mapping[str, str], *, period_s: float, lock_step: bool, read_only: bool) -> ArmDriver:
        """Returns their driver, not connected."""
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

    def emulator(self, *, lock_step: bool, cameras: Sequence[str], image_size: int, settings: Mapping[str, Any]) -> Emulator:
        """Returns their emulator, not started."""
        return Emulator.of_task(lock_step=lock_step, cameras=cameras, image_size=image_size, **settings)

    def driver(self, ports: Mapping[str, str], *, period_s: float, lock_step: bool, read_only: bool) -> ArmDriver:
        """Returns their driver, not connected."""
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
        if arms not in KUKA_BODIES:
            raise unknown_name("number of KUKA arms", arms, KUKA_BODIES)
        self.arms, self.body = arms, KUKA_BODIES[arms]
        # YAML reads 1.15 without quotes as a number.
        self.version = str(settings.get("version", DEFAULT_VERSION))
        self._settings = {key: value for key, value in settings.items() if key not in ("gripper", "version")}
        self._gripper = gripper_settings(settings.get("gripper"), self.body.arms)
        if not version_of(self.version).has_io and isinstance(self._gripper, IoGripper):
            raise ValueError(
                f"FRI {self.version} has no inputs and outputs for a gripper: robot.driver.gripper.transport=null, and it "
                "stays as it is; or a later version, from 1.14 on."
            )

    def emulator(self, *, lock_step: bool, cameras: Sequence[str], image_size: int, settings: Mapping[str, Any]) -> Emulator:
        """Returns their emulator, not started."""
        chosen = {"lock_step": lock_step, "cameras": cameras, "image_size": image_size, **settings}
        return FriEmulator.of_task(version=self.version, **chosen)

    def driver(self, ports: Mapping[str, str], *, period_s: float, lock_step: bool, read_only: bool) -> ArmDriver:
        """Returns their driver, not connected. In lock-step nothing is ever late, so it waits for as long as it takes.

        Raises:
            ValueError: There is no port for an arm, or one for an arm that there is not.
        """
        timeout_s = _PATIENCE_S if lock_step else None
        chosen = self._in_order(ports)
        grippers = {} if self._gripper is None else dict.fromkeys(chosen, self._gripper)
        return FriDriver(
            chosen,
            **self._settings,
            version=self.version,
            grippers=grippers,
            period_s=period_s,
            together=lock_step,
            read_only=read_only,
            answer_timeout_s=timeout_s,
        )

    def twin_driver(self, ports: Mapping[str, str], *, period_s: float) -> ArmDriver:
        """Returns the driver of an emulated twin, whose controllers are set as the emulator has them."""
        chosen = self._in_order(ports)
        grippers = dict.fromkeys(chosen, IoGripper(GRIPPER_OUTPUT, feedback=GRIPPER_INPUT))
        if not version_of(self.version).has_io:
            grippers = {}
        return FriDriver(chosen, version=self.version, grippers=grippers, period_s=period_s)

    def _in_order(self, ports: Mapping[str, str]) -> dict[str, str]:
        """Returns the ports in the order of the body's arms, which is that of commands."""
        if set(ports) != set(self.body.arms):
            found, needed = ", ".join(ports) or "none", ", ".join(self.body.arms)
            raise ValueError(f"There are ports for the arms {found}; {self.body.name} has {needed}: robot.arms, robot.ports.")
        return {arm: ports[arm] for arm in self.body.arms}


def arm_kind(robot: Mapping[str, Any]) -> ArmKind:
    """Returns the kind that a configuration of `configs/robot` names.

    Raises:
        ValueError: It names one that there is not.
    """
    return FriArms(str(robot["arms"]), robot["driver"]) if robot.get("transport") == "fri" else ServoArms(robot["driver"])


def emulated_arms(body: str) -> ArmKind:
    """Returns the emulated arms of a body, set so that they are patient: on a busy machine a late answer must not matter.

    Args:
        body: Its name, as in contracts.

    Raises:
        ValueError: There is no emulator of it.
    """
    if body == ALOHA.name:
        return ServoArms({"bus_watchdog_s": 0.0, "answer_timeout_s": _PATIENCE_S})
    for arms, one in KUKA_BODIES.items():
        if one.name == body:
            outputs = {"output": GRIPPER_OUTPUT, "feedback": GRIPPER_INPUT}
            return FriArms(arms, {"gripper": {"transport": FRI_OUTPUT, FRI_OUTPUT: outputs}})
    raise unknown_name("emulated body", body, [ALOHA.name, *(one.name for one in KUKA_BODIES.values())])
