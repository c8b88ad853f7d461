"""Robot backends: the embodiment, driver and emulator of each kind of arms.

ALOHA's servos have a serial line per arm. KUKA arms are reached over FRI, or behind
drake-iiwa-driver over LCM. Backends of other packages derive from `ArmBackend`.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Protocol

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.extensions.trust import ClassName, import_class
from stringline.real_robot.driver_interface.driver import ArmDriver
from stringline.real_robot.driver_interface.gripper import GripperSettings, stilled
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.drivers.fri.controller_io import IoGripper
from stringline.real_robot.drivers.fri.fri_driver import FriDriver
from stringline.real_robot.drivers.fri.versions import DEFAULT_VERSION, version_of
from stringline.real_robot.drivers.grippers.gripper_choice import (
    FRI_OUTPUT,
    WSG_LCM,
    gripper_settings,
)
from stringline.real_robot.drivers.lcm.lcm_driver import LcmDriver
from stringline.real_robot.drivers.lcm.wsg import COMMAND_CHANNEL, STATUS_CHANNEL, WsgGripper
from stringline.real_robot.emulators.fri.controller import GRIPPER_INPUT, GRIPPER_OUTPUT
from stringline.real_robot.emulators.program.emulator_client import (
    Emulator,
    FriEmulator,
    LcmEmulator,
)
from stringline.real_robot.safety.limits import (
    KUKA_EMBODIMENTS,
    SafetyLimits,
    kuka_embodiment,
    kuka_limits,
    ports_in_order,
)


class ArmBackend(ABC):
    """The embodiment and the driver of arms; arms of other packages derive from this class.

    The arguments of the constructor are the options below `robot.driver`.

    Attributes:
        embodiment: The embodiment of the arms; a class attribute.
    """

    embodiment: Embodiment

    @abstractmethod
    def driver(
        self,
        ports: Mapping[str, str],
        *,
        period_s: float,
        lock_step: bool,
        read_only: bool,
        still_grippers: bool = False,
    ) -> ArmDriver:
        """Builds the driver, which is pickled and sent to the device process.

        Args:
            ports: Port by arm.
            period_s: Period of the device process.
            lock_step: Whether an emulated world waits for the driver.
            read_only: Whether the driver sends no command.
            still_grippers: Whether it sends no command to grippers that are not servos of an arm.
        """

    def limits(self, **settings: Any) -> SafetyLimits:
        """Builds the limits of the safety filter; `settings` are arguments of `SafetyLimits.of`.

        Raises:
            ValueError: A setting is wrong, or the embodiment has no capsules.
        """
        if not self.embodiment.capsule_mounts:
            raise ValueError(
                f"{self.embodiment.name} has no capsules, by which the safety filter keeps links "
                "off the table. Set capsule_mounts of its Embodiment, or capsules of its file; "
                "'stringline-data embodiment' fits them to the shapes of a URDF or MJCF."
            )
        return SafetyLimits.of(self.embodiment, **settings)

    def emulator(self, **settings: Any) -> Emulator:
        """Builds the emulator of a task; without one, only real arms can be deployed.

        Raises:
            ValueError: These arms have no emulator.
        """
        raise ValueError(
            f"{type(self).__name__} has no emulator; set robot.emulator=null, or define its method "
            "emulator()."
        )

    def bare_emulator(self, **settings: Any) -> Emulator:
        """Builds an emulator without a task.

        Raises:
            ValueError: These arms have no emulator.
        """
        return self.emulator(**settings)

    def twin_driver(self, ports: Mapping[str, str], *, period_s: float) -> ArmDriver:
        """Builds the driver of an emulated twin."""
        return self.driver(ports, period_s=period_s, lock_step=False, read_only=False)


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


# A twin shares a machine with a policy, so its deadlines are generous.
_TWIN_DRIVER: Mapping[str, Any] = {"bus_watchdog_s": 0.0, "answer_timeout_s": 0.1}


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
        return self.emulator(plant="first_order", **settings)

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


KUKA_BACKENDS: Mapping[str, Callable[[str, Mapping[str, Any]], RobotBackend]] = {
    "fri": FriBackend,
    "lcm": LcmBackend,
}


def robot_backend(
    transport: str | None, arms: str, driver: Mapping[str, Any], backend: str | None = None
) -> RobotBackend:
    """Builds the backend of a robot.

    Args:
        transport: Transport of KUKA arms, `fri` or `lcm`; if None, ALOHA's serial lines.
        arms: Number of KUKA arms, `one` or `two`.
        driver: Keyword arguments of the driver.
        backend: `module:Class` of arms of another package, derived from `ArmBackend`; its arguments
            are those of the driver. The caller has checked a name from a file by `Trust`.

    Raises:
        ValueError: The transport is unknown; names the nearest. Or the class of the backend cannot
            be imported, is not derived from `ArmBackend`, or has other arguments.
    """
    if backend is not None:
        return _foreign_backend(backend, driver)
    if transport is None:
        return ServoBackend(driver)
    if transport not in KUKA_BACKENDS:
        raise unknown_name("transport of KUKA arms", str(transport), KUKA_BACKENDS)
    return KUKA_BACKENDS[transport](arms, driver)


def _foreign_backend(backend: str, driver: Mapping[str, Any]) -> ArmBackend:
    made: type[ArmBackend] = import_class(ClassName.parse(backend, "robot"), ArmBackend, "robot")
    try:
        inspect.signature(made).bind(**driver)
    except TypeError as error:
        names = ", ".join(inspect.signature(made).parameters) or "none"
        raise ValueError(f"robot.driver: {backend}: {error}. Its arguments: {names}.") from error
    return made(**driver)


def emulated_backend(embodiment: str, transport: str | None = None) -> RobotBackend:
    """Builds the backend of emulated arms, with deadlines that a busy machine keeps.

    Emulated controllers do not supervise the speed, so policies of fast demonstrations succeed.

    Args:
        embodiment: Name of the embodiment.
        transport: Transport of KUKA arms, `fri` or `lcm`; if None, FRI.

    Raises:
        ValueError: The embodiment has no emulator, or the transport is unknown.
    """
    if embodiment == ALOHA.name:
        return ServoBackend({"bus_watchdog_s": 0.0, "answer_timeout_s": LOCK_STEP_TIMEOUT_S})
    transport = transport or "fri"
    for arms, one in KUKA_EMBODIMENTS.items():
        if one.name == embodiment:
            found = robot_backend(transport, arms, EMULATED_GRIPPERS.get(transport, {}))
            if isinstance(found, KukaBackend):
                found.emulated = {"t1_unlimited": True}
            return found
    known = [ALOHA.name, *(one.name for one in KUKA_EMBODIMENTS.values())]
    raise unknown_name("emulated embodiment", embodiment, known)
