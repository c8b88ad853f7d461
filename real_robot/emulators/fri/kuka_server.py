"""Emulated KUKA arms with a controller each, the plant that they move together, and their loop.

Arms over FRI and arms behind a driver program share the loop.
"""

import math
import socket
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.real_robot.drivers.fri.versions import FriVersion
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS
from stringline.real_robot.emulators.fri.controller import (
    ControllerSettings,
    EmulatedController,
    QualityRule,
    T1Supervision,
)
from stringline.real_robot.emulators.grippers.emulated_wsg import GripperRig
from stringline.real_robot.emulators.plants.plant import Plant
from stringline.real_robot.emulators.program.emulator_server import (
    MOST_LAG_S,
    EmulatorServer,
    Metronome,
    Served,
)
from stringline.real_robot.ipc.array_messages import Header


class EmulatedCell:
    """Translates between controllers and the plant.

    Args:
        embodiment: Arms of seven revolute joints, each with or without a gripper.
        plant: World of the arms; its period must be the controllers'.
        receive_multiplier: Messages for each answer.
        restarts: Whether applications begin their motions again after an interruption.
        gripper_rig: Grippers with a connection of their own; if None, they are at the controllers'
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
        if any(len(revolute) != JOINTS for revolute in embodiment.revolute_joints.values()):
            raise ValueError(
                f"Arms over FRI have {JOINTS} joints; those of {embodiment.name} have others."
            )
        self._settings = {
            arm: ControllerSettings(
                version,
                embodiment.lower[revolute],
                embodiment.upper[revolute],
                embodiment.velocity_limits[revolute],
                send_period_ms=period_ms,
                receive_multiplier=receive_multiplier,
                restarts=restarts,
                rule=rule or QualityRule(),
                t1=T1Supervision(embodiment, arm, t1_speed),
            )
            for arm, revolute in embodiment.revolute_joints.items()
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
                position[self._embodiment.revolute_joints[arm]], self._opening(arm, position)
            )
            for arm, controller in self.controllers.items()
        }

    def advance(self) -> None:
        """Advances the plant by one period, towards the controllers' targets."""
        target = self.plant.measure()[0].copy()
        largest = np.full_like(target, np.inf)
        for arm, controller in self.controllers.items():
            target[self._embodiment.revolute_joints[arm]] = controller.target
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
            revolute = self._embodiment.revolute_joints[arm]
            controller.sense(position[revolute], effort[revolute], self._opening(arm, position))
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


class KukaConnection(Served, Protocol):
    """The connection of a controller, or of a driver program."""

    def close(self) -> None:
        """Closes the connection."""
        ...


class KukaServer(EmulatorServer):
    """Serves one client and the drivers of controllers until the client leaves.

    Args:
        real_time: Whether time advances by itself. In lock-step, sessions come up by themselves,
            and from the first episode on there is one period per `advance` message.
        phase: Share of a period by which each controller is behind the one before it; they have no
            common clock.
        waking_s: Seconds between two periods in lock-step while sessions come up.
        most_lag_s: Longest time by which it is late and makes up for that.
    """

    def __init__(
        self,
        cell: EmulatedCell,
        listener: socket.socket,
        *,
        real_time: bool,
        phase: float,
        waking_s: float,
        most_lag_s: float = MOST_LAG_S,
    ) -> None:
        super().__init__(cell.plant, listener)
        self._cell = cell
        self._real_time = real_time
        self._rigs = [] if cell.gripper_rig is None else [cell.gripper_rig]
        self._begun = False
        period_s = cell.plant.period_s if real_time else waking_s
        self._metronome = Metronome(
            list(cell.controllers), period_s, phase, time.monotonic(), most_lag_s
        )

    @property
    @abstractmethod
    def _connections(self) -> Sequence[KukaConnection]:
        """Connections of the controllers."""

    @abstractmethod
    def _cycle(self, arm: str) -> None:
        """Advances one arm by a period; the first one's cycle is the world's."""

    def _skip(self, arm: str, periods: int) -> None:
        """Takes note of periods of an arm that this process was too late for."""

    @abstractmethod
    def _restart(self) -> None:
        """Connects the controllers, which have just been switched on."""

    @property
    def _first(self) -> str:
        return next(iter(self._cell.controllers))

    @property
    def _timed(self) -> bool:
        """Whether periods begin by themselves: in real time, and while sessions come up."""
        return self._real_time or not self._begun

    @property
    def _endpoints(self) -> Sequence[Served]:
        return [*self._connections, *self._rigs]

    @property
    def _operations(self) -> Mapping[str, Callable[[Header], Header]]:
        return {"report": self._report, "reboot": self._reboot}

    @abstractmethod
    def _report(self, header: Header) -> Header:
        """Returns the statistics of the arms."""

    def _run_due(self) -> float | None:
        if not self._timed:
            return None
        for arm in self._metronome.take(time.monotonic()):
            skipped = self._metronome.skipped[arm]
            if self._real_time:  # In lock-step the clocks do not depend on that of the host.
                self._cell.controllers[arm].skip(skipped)
            self._skip(arm, skipped)
            self._cycle(arm)
        return max(0.0, self._metronome.next - time.monotonic())

    def _reboot(self, header: Header) -> Header:
        self._cell.reboot()
        self._begun = False
        self._restart()
        return {}

    def _advance_world(self) -> None:
        self._cell.advance()
        self._tick_grippers()

    def _serve_grippers(self) -> None:
        for rig in self._rigs:
            rig.serve()

    def _tick_grippers(self) -> None:
        for rig in self._rigs:
            rig.tick()

    def _gripper_report(self) -> Header:
        rig = self._cell.gripper_rig
        return {} if rig is None else dict(rig.report())

    def _close(self) -> None:
        for one in (*self._connections, *self._rigs):
            one.close()
