"""Emulated arms of a body, each with its controller, and the plant that they move together."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.drivers.fri.joint_values import JOINTS
from stringline.real_robot.drivers.fri.versions import FriVersion
from stringline.real_robot.emulators.fri.connection_quality import QualityRule
from stringline.real_robot.emulators.fri.controller import ControllerSettings, EmulatedController
from stringline.real_robot.emulators.grippers.gripper_rig import GripperBench
from stringline.real_robot.emulators.plants.plant import Plant

Vector = NDArray[np.float64]


class EmulatedCell:
    """Translates between controllers and the plant.

    Args:
        embodiment: Arms of seven hinges, each with or without a gripper.
        plant: What they move; its period must be the controllers'.
        version: Of FRI.
        receive_multiplier: Messages for each answer.
        restarts: Whether applications begin their motions anew after these were broken off.
        rule: Of the quality of connections.
        bench: Grippers with a wire of their own; None: they are at the controllers' outputs.

    Attributes:
        controllers: By arm.
    """

    def __init__(
        self,
        embodiment: Embodiment,
        plant: Plant,
        version: FriVersion,
        *,
        receive_multiplier: int = 1,
        restarts: bool = True,
        rule: QualityRule | None = None,
        bench: GripperBench | None = None,
    ) -> None:
        self._embodiment = embodiment
        self.plant = plant
        self.bench = bench
        period_ms = round(plant.period_s * 1e3)
        if not 1 <= period_ms <= 100 or abs(period_ms * 1e-3 - plant.period_s) > 1e-9:
            raise ValueError(
                f"A controller sends every 1 to 100 whole milliseconds; the plant's period is "
                f"{plant.period_s} s."
            )
        if any(len(hinges) != JOINTS for hinges in embodiment.hinges.values()):
            raise ValueError(
                f"Arms over FRI have {JOINTS} joints; those of {embodiment.name} have others."
            )
        self._settings = {
            arm: ControllerSettings(
                version,
                embodiment.lower[hinges],
                embodiment.upper[hinges],
                embodiment.velocity_limits[hinges],
                send_period_ms=period_ms,
                receive_multiplier=receive_multiplier,
                restarts=restarts,
                rule=rule or QualityRule(),
            )
            for arm, hinges in embodiment.hinges.items()
        }
        self.reboot()

    def reboot(self) -> None:
        """Switches all controllers off and on."""
        self.controllers = {
            arm: EmulatedController(settings) for arm, settings in self._settings.items()
        }
        if self.bench is not None:
            self.bench.reboot()
        self.sense()

    def begin(self, seed: int, options: Mapping[str, float]) -> dict[str, list[bytes]]:
        """Begins an episode; returns what each controller tells about it."""
        self.plant.begin(seed, options)
        if self.bench is not None:
            self.bench.begin()
            self._show_grippers()
            self.bench.tell()
        position, _, _ = self.plant.measure()
        return {
            arm: controller.begin(
                position[self._embodiment.hinges[arm]], self._opening(arm, position)
            )
            for arm, controller in self.controllers.items()
        }

    def advance(self) -> None:
        """Takes the plant one period on, towards the controllers' targets."""
        target = self.plant.measure()[0].copy()
        for arm, controller in self.controllers.items():
            target[self._embodiment.hinges[arm]] = controller.target
            if arm in self._embodiment.grippers:
                target[self._embodiment.grippers[arm]] = self._wanted_opening(arm, controller)
        self.plant.advance(target)
        self.sense()

    def sense(self) -> None:
        """Shows the controllers what their arms do."""
        position, _, effort = self.plant.measure()
        for arm, controller in self.controllers.items():
            hinges = self._embodiment.hinges[arm]
            controller.sense(position[hinges], effort[hinges], self._opening(arm, position))
        self._show_grippers()

    def _show_grippers(self) -> None:
        position, velocity, effort = self.plant.measure()
        for arm, gripper in ({} if self.bench is None else self.bench.grippers).items():
            place = self._embodiment.grippers[arm]
            gripper.sense(float(position[place]), float(velocity[place]), float(effort[place]))

    def _wanted_opening(self, arm: str, controller: EmulatedController) -> float:
        return controller.opening if self.bench is None else self.bench.grippers[arm].opening

    def _opening(self, arm: str, position: Vector) -> float:
        return (
            float(position[self._embodiment.grippers[arm]])
            if arm in self._embodiment.grippers
            else 1.0
        )
