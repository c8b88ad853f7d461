"""Robot backends by transport: the embodiment, driver and emulator of each kind of arms."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.extensions.class_names import ClassName, import_class
from stringline.real_robot.driver_interface.driver import ArmDriver
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.robots.arm_backend import ArmBackend
from stringline.real_robot.robots.kuka_backends import (
    EMULATED_GRIPPERS,
    LOCK_STEP_TIMEOUT_S,
    FriBackend,
    KukaBackend,
    LcmBackend,
)
from stringline.real_robot.safety.kuka_limits import KUKA_EMBODIMENTS
from stringline.real_robot.safety.limits import SafetyLimits

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
        transport: Transport of KUKA arms, `fri` or `lcm`; None: ALOHA's serial lines.
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
        transport: Transport of KUKA arms, `fri` or `lcm`; None: FRI.

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
