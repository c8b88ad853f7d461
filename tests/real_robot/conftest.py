"""Emulated arms without MuJoCo, each in its own process, for tests over the wire."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.device_rig import PERIOD, DeviceRig
from tests.real_robot.operator_hand import Terminal

from stringline.datasets.embodiments.aloha import ALOHA, FOLLOWER
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.drivers.dynamixel.protocol import Instruction, Parser
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.operator.operator_keys import TerminalKeys
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import Mode

Vector = NDArray[np.float64]


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    far, near = os.openpty()
    with os.fdopen(near) as stream, TerminalKeys(stream) as keys:
        yield far, keys
    os.close(far)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(plant="first_order") as running:
        yield running


@pytest.fixture
def waiting_emulator(tmp_path: Path) -> Iterator[Emulator]:
    with Emulator(plant="first_order", lock_step=True, capture=tmp_path) as running:
        yield running


class Rig(DeviceRig):
    """That of an ALOHA."""

    DRIVER: ClassVar[type[AlohaDriver]] = AlohaDriver

    def __init__(
        self,
        emulator: Emulator,
        folder: Path,
        limits: SafetyLimits,
        *,
        ports: Mapping[str, str] | None = None,
        bus_watchdog_s: float = 0.0,
        answer_timeout_s: float = 0.2,
    ) -> None:
        self._folder = folder
        self.driver = self.DRIVER(
            ports or emulator.ports,
            bus_watchdog_s=bus_watchdog_s,
            answer_timeout_s=answer_timeout_s,
        )
        super().__init__(emulator, self.driver, ALOHA, limits)

    def moving(self, joint: int = 0, by: float = 0.5) -> None:
        """Begins a motion of one joint for the whole plan, and waits until the arm moves."""
        goal = ALOHA.home.copy()
        goal[joint] += by
        self.want(goal)
        self.until(lambda state: state.mode is Mode.RUN, 2)
        self.cycle(5)

    def goals(self) -> list[Vector]:
        """Returns the goals (T, 7) received by each arm: rad, and opening of the gripper."""
        return [goals_in((self._folder / f"{arm}.bin").read_bytes()) for arm in ALOHA.arms]

    def instructions(self) -> set[int]:
        """Returns all kinds of instructions that arrived at either arm."""
        captured = [(self._folder / f"{arm}.bin").read_bytes() for arm in ALOHA.arms]
        return {packet.instruction for data in captured for packet in Parser().feed(data)}

    def assert_within_limits(self) -> None:
        """Holds all that arrived at the arms against the limits; goals are whole ticks."""
        tick = np.full(7, table.TICK_RAD)
        tick[6] *= 0.9  # The linkage opens by at most 0.9 per radian.
        limits = self.limits
        for index, path in enumerate(self.goals()):
            joints, at_rest_before = (
                slice(7 * index, 7 * index + 7),
                np.concatenate([path[:1], path]),
            )
            assert (path >= limits.lower[joints] - tick / 2 - 1e-9).all()
            assert (path <= limits.upper[joints] + tick / 2 + 1e-9).all()
            assert (np.abs(np.diff(path, axis=0)) <= limits.velocity[joints] * PERIOD + tick).all()
            change = np.abs(np.diff(at_rest_before, n=2, axis=0))
            assert (change <= limits.acceleration[joints] * PERIOD**2 + 2 * tick).all()


def goals_in(data: bytes) -> Vector:
    """Decodes the goals (T, 7) in what a driver sent."""
    written = []
    for packet in Parser().feed(data):
        if (
            packet.instruction == Instruction.SYNC_WRITE
            and packet.parameters[:4] == b"\x74\x00\x04\x00"
        ):
            entries = packet.parameters[4:]
            ticks = [
                int.from_bytes(entries[at + 1 : at + 5], "little", signed=True)
                for at in range(0, 35, 5)
            ]
            written.append([table.angle_of_ticks(tick) for tick in ticks])
    angles = np.array(written).reshape(-1, 7)
    angles[:, 6] = FOLLOWER.opening(angles[:, 6])
    return angles


@pytest.fixture
def make_rig(waiting_emulator: Emulator, tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Makes rigs, all with the same emulator."""
    made: list[Rig] = []

    def make(limits: SafetyLimits | None = None, **more: Any) -> Rig:
        made.append(
            Rig(
                waiting_emulator,
                tmp_path,
                limits or SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0),
                **more,
            )
        )
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    """A rig in motion limits without soft start, at its home pose."""
    return make_rig()
