"""The base of robot backends of other packages."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.driver_interface.driver import ArmDriver
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.safety.limits import SafetyLimits


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
