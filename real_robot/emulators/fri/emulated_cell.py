"""Emulated arms with a controller each, and the plant that they move together."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.real_robot.drivers.fri.versions import FriVersion
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS
from stringline.real_robot.emulators.fri.connection_quality import QualityRule
from stringline.real_robot.emulators.fri.controller import EmulatedController
from stringline.real_robot.emulators.fri.emulated_session import ControllerSettings
from stringline.real_robot.emulators.fri.t1_speed import T1Supervision
from stringline.real_robot.emulators.grippers.gripper_rig import GripperRig
from stringline.real_robot.emulators.plants.plant import Plant


class EmulatedCell:
    """Translates between controllers and the plant.

    Args:
        embodiment: Arms of seven revolute joints, each with or without a gripper.
        plant: World of the arms; its period must be the controllers'.
        receive_multiplier: Messages for each answer.
        restarts: Whether applications begin their motions again after an interruption.
        gripper_rig: Grippers with a connection of their own; None: they are at the controllers'
            outputs.
        t1_speed: Largest Cartesian speed of commands in T1, m/s; infinite: any.
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
        gripper_rig: GripperRig | None = None,
        t1_speed: float = math.inf,
    ) -> None:
        self._embodiment = embodiment
        self.plant = plant
        self.gripper_rig = gripper_rig
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
                t1=T1Supervision(embodiment, arm, t1_speed),
            )
            for arm, hinges in embodiment.hinges.items()
        }
        self.reboot()

    def reboot(self) -> None:
        """Switches all controllers off and on."""
        self.controllers = {
            arm: EmulatedController(settings) for arm, settings in self._settings.items()
        }
        if self.gripper_rig is not None:
            self.gripper_rig.reboot()
        self.sense()

    def begin(self, seed: int, options: Mapping[str, Any]) -> dict[str, list[bytes]]:
        """Begins an episode; returns the messages in which each controller reports it."""
        self.plant.begin(seed, options)
        if self.gripper_rig is not None:
            self.gripper_rig.begin()
            self._sense_grippers()
            self.gripper_rig.publish()
        position, _, _ = self.plant.measure()
        return {
            arm: controller.begin(
                position[self._embodiment.hinges[arm]], self._opening(arm, position)
            )
            for arm, controller in self.controllers.items()
        }

    def advance(self) -> None:
        """Advances the plant by one period, towards the controllers' targets."""
        target = self.plant.measure()[0].copy()
        largest = np.full_like(target, np.inf)
        for arm, controller in self.controllers.items():
            target[self._embodiment.hinges[arm]] = controller.target
            if arm in self._embodiment.grippers:
                target[self._embodiment.grippers[arm]] = self._target_opening(arm, controller)
        for arm, gripper in ({} if self.gripper_rig is None else self.gripper_rig.grippers).items():
            largest[self._embodiment.grippers[arm]] = gripper.largest_force
        self.plant.limit_efforts(largest)
        self.plant.advance(target)
        self.sense()

    def sense(self) -> None:
        """Passes the state of the arms to the controllers."""
        position, _, effort = self.plant.measure()
        for arm, controller in self.controllers.items():
            hinges = self._embodiment.hinges[arm]
            controller.sense(position[hinges], effort[hinges], self._opening(arm, position))
        self._sense_grippers()

    def _sense_grippers(self) -> None:
        if self.gripper_rig is None:
            return
        position, velocity, effort = self.plant.measure()
        for arm, gripper in self.gripper_rig.grippers.items():
            index = self._embodiment.grippers[arm]
            gripper.sense(float(position[index]), float(velocity[index]), float(effort[index]))

    def _target_opening(self, arm: str, controller: EmulatedController) -> float:
        rig = self.gripper_rig
        return controller.opening if rig is None else rig.grippers[arm].opening

    def _opening(self, arm: str, position: Vector) -> float:
        grippers = self._embodiment.grippers
        return float(position[grippers[arm]]) if arm in grippers else 1.0
