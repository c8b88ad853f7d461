"""The emulated arms of an ALOHA: followers over a world, and leaders in a scripted hand.

Eighteen servos on two lines move a plant by their goals. A pseudo-terminal per arm is the front end
on which drivers find its bus.
"""

import contextlib
import os
import socket
import time
import tty
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.aloha import ALOHA, FOLLOWER, GRIPPER_SERVOS, GripperServo
from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.drivers.dynamixel.control_table import (
    CURRENT_UNIT_A,
    VIPERX,
    WIDOWX,
    Servo,
)
from stringline.real_robot.emulators.dynamixel.dynamixel_line import EmulatedLine
from stringline.real_robot.emulators.dynamixel.dynamixel_servo import EmulatedServo
from stringline.real_robot.emulators.plants.plant import (
    HandPlant,
    ImageServer,
    Plant,
    TestPattern,
    load_hand,
)
from stringline.real_robot.emulators.program.capture_file import ArrivalFile, CaptureFile
from stringline.real_robot.emulators.program.emulator_server import (
    EmulatorServer,
    Served,
    first_order_world,
    task_world,
)
from stringline.real_robot.emulators.program.emulator_settings import AlohaSettings, LeaderSettings

# Effort of a servo whose joint is blocked, Nm/rad or N per opening; as of a waist in MuJoCo
# Menagerie.
_STIFFNESS = 43.0
# Openings per radian. Near a quarter turn the crank moves the fingers little; beyond it they cannot
# open.
_SMALLEST_SLOPE = 0.05


class EmulatedArms:
    """Translates between registers and the plant.

    Args:
        gripper: Relation between the gripper's servo angle and its opening.

    Attributes:
        lines: Serial line by arm.
    """

    def __init__(
        self, plant: Plant, gripper: GripperServo = FOLLOWER, servos: Sequence[Servo] = VIPERX
    ) -> None:
        self._plant = plant
        self._gripper = gripper
        self._servos = tuple(servos)
        self.lines = {
            arm: EmulatedLine(EmulatedServo(kind) for kind in self._servos) for arm in ALOHA.arms
        }
        self.sense()

    def begin(self, seed: int, options: Mapping[str, Any]) -> None:
        """Begins an episode; the goals of the servos are their positions in the new world."""
        self._plant.begin(seed, options)
        self.sense()
        for line in self.lines.values():
            for servo in line.servos.values():
                servo.stay()
            line.goal_writes = 0

    def advance(self) -> None:
        """Advances the plant by one period, towards the servos' targets.

        A joint without torque, or a blocked one, stays.
        """
        for line in self.lines.values():
            line.follow_profiles(self._plant.period_s)
        position = self._plant.measure()[0]
        self._plant.limit_efforts(self._largest())
        self._plant.advance(np.where(self._blocked(), position, self._goals(position)))
        self.sense()
        for line in self.lines.values():
            line.pass_time(self._plant.period_s)

    def sense(self) -> None:
        """Passes the state of the joints to the servos. Two servos of one joint share its load."""
        position, velocity, effort = self._plant.measure()
        if (blocked := self._blocked()).any():
            pushing = _STIFFNESS * (self._goals(position) - position)
            largest = self._largest()
            effort = np.where(blocked, np.clip(pushing, -largest, largest), effort)
        for arm, line in self.lines.items():
            joints = {
                joint.name: index for index, joint in enumerate(ALOHA.joints) if joint.arm == arm
            }
            for kind, servo in zip(self._servos, line.servos.values(), strict=True):
                index = joints[f"{arm}/{kind.joint}"]
                sharing = sum(other.joint == kind.joint for other in self._servos)
                angle = float(position[index])
                speed = float(velocity[index])
                if kind.joint == "gripper":
                    angle, speed = self._gripper_motion(angle, speed)
                    current = (
                        float(effort[index])
                        / ALOHA.joints[index].effort
                        * (kind.current_limit or 0)
                        * CURRENT_UNIT_A
                    )
                else:
                    current = float(effort[index]) / sharing / kind.model.torque_constant
                servo.sense(angle, speed, current)

    def _goals(self, position: Vector) -> Vector:
        """Returns the goals (J,) of the joints; without torque, that is their position."""
        goals = position.copy()
        for index, servo in enumerate(self._masters()):
            goal = servo.goal_angle()
            if goal is not None:
                is_gripper = ALOHA.joints[index].kind == "gripper"
                goals[index] = float(self._gripper.opening(goal)) if is_gripper else goal
        return goals

    def _largest(self) -> Vector:
        """Returns the limits of the joints' efforts (J,), which grippers alone have."""
        shares = zip(ALOHA.joints, self._masters(), strict=True)
        return np.array(
            [
                joint.effort * servo.current_share if joint.kind == "gripper" else np.inf
                for joint, servo in shares
            ]
        )

    def _blocked(self) -> NDArray[np.bool_]:
        """Returns which joints (J,) are blocked."""
        kinds = [kind for kind in self._servos if kind.master is None]
        return np.array(
            [kind.ident in line.blocked for line in self.lines.values() for kind in kinds]
        )

    def _gripper_motion(self, opening: float, speed: float) -> tuple[float, float]:
        angle = float(self._gripper.angle(opening))
        slope = (
            float(self._gripper.opening(angle + 1e-4) - self._gripper.opening(angle - 1e-4)) / 2e-4
        )
        return angle, speed / max(slope, _SMALLEST_SLOPE)

    def _masters(self) -> list[EmulatedServo]:
        return [
            line.servos[kind.ident]
            for line in self.lines.values()
            for kind in self._servos
            if kind.master is None
        ]


_READ_SIZE = 4096
# A late emulator makes up for that much and skips the rest, as a real world would have gone on.
_MAX_LAG_S = 0.25


class Terminal:
    """A pseudo-terminal whose far end is a line of servos.

    Args:
        capture: File that records every byte of a driver, or None.
        real_time: Whether another file records when the bytes arrived.
    """

    def __init__(
        self, line: EmulatedLine, capture: Path | None = None, *, real_time: bool = False
    ) -> None:
        self.line = line
        self.master, self._slave = os.openpty()
        tty.setraw(self._slave)
        os.set_blocking(self.master, False)
        self.name = os.ttyname(self._slave)
        self._capture = CaptureFile(capture)
        self._arrivals = ArrivalFile(capture if real_time else None)

    def fileno(self) -> int:
        """Descriptor to wait on while it is open."""
        return self.master

    def serve(self) -> None:
        """Answers the packets that have arrived."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.master, _READ_SIZE)
            # First, so that the time of captured bytes is always known.
            self._arrivals.note(len(data), time.monotonic())
            self._capture.write(data)
            answer = self.line.receive(data)
            if answer:
                os.write(self.master, answer)

    @property
    def open(self) -> bool:
        """Whether the port still exists."""
        return self.master >= 0

    def close(self) -> None:
        """Removes the port, as pulling the cable does."""
        if self.open:
            os.close(self.master)
            os.close(self._slave)
            self.master = -1
        self._capture.close()
        self._arrivals.close()


class ServoServer(EmulatorServer):
    """Serves one client and any driver of Dynamixel servos.

    Args:
        real_time: Whether the world advances by itself, or one period per `advance` message.
        capture: Folder for the bytes that drivers send, a file per arm, or None.
        images: Server for the images of a plant that draws them itself, or None.
    """

    WRITE: ClassVar[str] = "goal"

    def __init__(
        self,
        plant: Plant,
        arms: EmulatedArms,
        listener: socket.socket,
        *,
        real_time: bool,
        capture: Path | None = None,
        images: ImageServer | None = None,
    ) -> None:
        self._arms = arms
        self._real_time = real_time
        self._images = images
        self._shown: dict[str, Array] = {}
        self._due = time.monotonic()
        self._terminals = {
            arm: Terminal(
                line, None if capture is None else capture / f"{arm}.bin", real_time=real_time
            )
            for arm, line in arms.lines.items()
        }
        super().__init__(plant, listener)

    @property
    def ports(self) -> dict[str, str]:
        """Names of the pseudo-terminals by arm."""
        return {arm: terminal.name for arm, terminal in self._terminals.items()}

    @property
    def _endpoints(self) -> Sequence[Served]:
        return [terminal for terminal in self._terminals.values() if terminal.open]

    def _run_due(self) -> float | None:
        if not self._real_time:
            return None
        now = time.monotonic()
        if now >= self._due:
            self._step()
            self._due = max(self._due + self._plant.period_s, now - _MAX_LAG_S)
        return max(0.0, self._due - time.monotonic())

    def _writes(self) -> Mapping[str, tuple[Served, int]]:
        return {
            arm: (terminal, terminal.line.goal_writes)
            for arm, terminal in self._terminals.items()
            if terminal.open
        }

    def _step(self) -> None:
        self._arms.advance()
        if self._images is not None and (frames := self._plant.frames()) is not self._shown:
            self._shown = frames
            self._images.show(frames, time.monotonic())

    def _begin(self, seed: int, options: Mapping[str, Any]) -> None:
        self._arms.begin(seed, options)

    def _fault(self, arm: str, kind: str, number: int) -> None:
        if arm not in self._terminals:
            raise unknown_name("arm", arm, self._terminals)
        terminal = self._terminals[arm]
        terminal.line.fault(kind, number)
        if terminal.line.dropped:
            terminal.close()

    def _close(self) -> None:
        for terminal in self._terminals.values():
            terminal.close()


def aloha_server(
    settings: AlohaSettings, control: socket.socket, images: socket.socket
) -> ServoServer:
    """Returns the emulator of the followers."""
    plant = _world(settings, images)
    # A MuJoCo world has a process that draws; the first-order plant shows a test pattern itself.
    shown = not settings.lock_step and settings.plant != "mujoco"
    return ServoServer(
        plant,
        EmulatedArms(plant),
        control,
        real_time=not settings.lock_step,
        capture=settings.capture,
        images=ImageServer(images) if shown else None,
    )


def leader_server(settings: LeaderSettings, control: socket.socket) -> ServoServer:
    """Returns the emulator of the leaders: nine servos without torque per arm.

    The hand rests at the beginning of its path until an episode begins.
    """
    time, path = (
        (np.zeros(1), ALOHA.home[None])
        if settings.hand is None
        else load_hand(settings.hand, len(ALOHA.joints))
    )
    plant = HandPlant(time, path, period_s=1.0 / settings.device_hz)
    arms = EmulatedArms(plant, GRIPPER_SERVOS["interbotix_leader"], WIDOWX)
    return ServoServer(plant, arms, control, real_time=True)


def _world(settings: AlohaSettings, images: socket.socket) -> Plant:
    if settings.plant == "first_order":
        pattern = TestPattern(settings.cameras or (), settings.image_size, settings.frame_hz)
        return first_order_world(ALOHA, settings, pattern)
    every = tuple(mount.name for mount in ALOHA.cameras)
    embodiment, plant = task_world(
        settings, every if settings.cameras is None else settings.cameras, images
    )
    if embodiment.name != ALOHA.name:
        plant.close()
        raise ValueError(
            f"{settings.task} is for {embodiment.name}; these arms are {ALOHA.name}. Choose its "
            f"robot=."
        )
    plant.begin(settings.seed, {})
    return plant
