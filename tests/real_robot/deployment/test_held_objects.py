"""What a gripper holds stays held: over holds, take-overs, resets, reconnections and the end."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.conftest import Rig
from tests.real_robot.operator_hand import Hand, after, until

from stringline import ALOHA, ActionChunk, SafetyLimits
from stringline.datasets.contract.contract import Array, Observation
from stringline.real_robot.deployment.leader_teleoperation import Teleoperation
from stringline.real_robot.deployment.supervised_run import SupervisedRun, Supervision
from stringline.real_robot.device.device_process import DeviceProcess, brake, braked_after
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver, AlohaLeaders
from stringline.real_robot.emulators.plants.plant import save_hand
from stringline.real_robot.emulators.program.emulator_client import Emulator, LeaderEmulator
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.execution.real_time import RealTimeRobot
from stringline.real_robot.operator.operator_keys import Key
from stringline.real_robot.safety.reasons import Mode, Reason

Vector = NDArray[np.float64]
WIDE = 0.4
GRIPPER = ALOHA.grippers["left"]
LIMITS = SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0)
BLIND = ALOHA.contract([], 50.0)
CLOSED, OPEN = ALOHA.home.copy(), ALOHA.home.copy()
CLOSED[GRIPPER], OPEN[GRIPPER] = 0.0, 1.0


class NoCameras:
    def frames(self) -> dict[str, Array]:
        return {}


class Gripping:
    """A policy that keeps the left gripper closed; each third session soon plans no numbers."""

    sessions: ClassVar[int] = 0

    def __init__(self) -> None:
        type(self).sessions += 1
        self._plans = 0

    def plan(self, observation: Observation) -> ActionChunk:
        self._plans += 1
        due = float(observation["time"]) + 0.02 * np.arange(50, dtype=np.float64)
        way = np.tile(CLOSED, (50, 1)).astype(np.float32)
        confused = self.sessions % 3 == 0 and self._plans > 1
        return ActionChunk(due, np.full_like(way, np.nan) if confused else way)


@contextlib.contextmanager
def connected(emulator: Emulator) -> Iterator[DeviceProcess]:
    driver = AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.2)
    with DeviceProcess(driver, ALOHA, LIMITS) as device:
        device.connect()
        device.arm()
        yield device


def grasp(emulator: Emulator, device: DeviceProcess) -> None:
    """Closes the left gripper on an object."""
    emulator.put("left", WIDE)
    device.begin()
    with braked_after(device):
        due = device.latest().arms.time + 0.02 * np.arange(100, dtype=np.float64)
        device.send(ActionChunk(due, np.tile(CLOSED, (100, 1)).astype(np.float32)))
        until(lambda: device.latest().command[GRIPPER] == 0.0)
    assert device.latest().arms.position[GRIPPER] == pytest.approx(WIDE, abs=0.01)
    assert emulator.carried("left")


def test_an_object_stays_held_over_every_beginning(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.emulator.put("left", WIDE)
    rig.want(CLOSED, 100)
    rig.cycle(100)
    assert rig.emulator.carried("left")
    assert rig.state.arms.effort[GRIPPER] == pytest.approx(-43 * WIDE, rel=0.05)
    since = len(rig.goals()[0])
    for session in range(2, 22):
        rig.session = session
        rig.loop.begin(session, rig.clock, Reason(0))
        assert rig.state.command[GRIPPER] == 0.0
        rig.cycle(1 + session % 4)
        assert rig.emulator.carried("left"), session
    openings = rig.goals()[0][since:, 6]
    assert len(openings) > 20
    np.testing.assert_allclose(openings, 0.0, atol=2e-3)
    rig.want(OPEN)
    rig.cycle(60)
    assert not rig.emulator.carried("left"), "an opened gripper drops it"


def test_another_world_begins_with_its_own_openings(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.want(OPEN, 100)
    rig.cycle(100)
    assert rig.state.command[GRIPPER] == 1.0
    rig.emulator.begin(0)
    rig.writes = dict  # type: ignore[method-assign]
    rig.begin()
    rig.cycle(2)
    assert rig.state.command[GRIPPER] == pytest.approx(ALOHA.home[GRIPPER], abs=0.01)


@pytest.fixture
def leaders(tmp_path: Path) -> Iterator[AlohaLeaders]:
    """Leaders at the home pose, whose left gripper is closed."""
    save_hand(tmp_path / "way.npz", np.array([0.0]), CLOSED[None])
    with LeaderEmulator(hand=tmp_path / "way.npz") as emulated:
        arms = AlohaLeaders(emulated.ports, answer_timeout_s=0.05)
        arms.connect()
        yield arms
        arms.close()


@pytest.mark.slow
def test_an_object_stays_held_through_holds_take_overs_and_resets(
    emulator: Emulator, leaders: AlohaLeaders
) -> None:
    Gripping.sessions = 0
    carried: list[bool] = []

    def look() -> None:
        carried.append(emulator.carried("left"))

    with connected(emulator) as device:
        grasp(emulator, device)
        keys = [Key.HOLD, Key.TAKE_OVER, Key.TAKE_OVER] * 9
        hand = Hand(
            [(after(0.5), key) for key in keys] + [(after(0.4), Key.END)],
            [key for _ in range(20) for key in (Key.HOLD, Key.RESET)],
        )
        answers = {Key.HOLD: Key.HOLD, Key.RESET: Key.RESET}

        def wait(*allowed: Key) -> Key:
            look()
            hand.awaited.append(allowed)
            return next(answer for key, answer in answers.items() if key in allowed)

        hand.wait = hand.wait_anew = wait  # type: ignore[method-assign]
        led = Teleoperation(leaders, device, ALOHA, agree=0.5)
        robot = RealTimeRobot(device, NoCameras(), BLIND, ALOHA)
        supervision = Supervision(
            device, ALOHA, hand, leaders=led, watchers=(lambda states: look(),)
        )
        episode = SupervisedRun(robot, Gripping, 1, supervision).run(
            60.0, done=lambda: False, report=lambda *_: None
        )
        assert episode.counts[Reason.BAD_CHUNK] > 0, "there were faults to reset"
        assert sum(Key.RESET in keys for keys in hand.awaited) >= 2
        assert Gripping.sessions >= 18
        assert device.latest().mode is not Mode.FAULT
        assert all(carried)
        assert len(carried) > 40
    assert emulator.carried("left")


@pytest.mark.slow
def test_an_object_stays_held_over_reconnections_and_slow_motions(emulator: Emulator) -> None:
    """Each connection has a process and a filter of its own, and the servos keep their torque."""
    with connected(emulator) as device:
        grasp(emulator, device)
        brake(device)
    for _ in range(4):
        assert emulator.carried("left")
        with connected(emulator) as device:
            assert device.latest().command[GRIPPER] == pytest.approx(0.0, abs=2e-3)
            until(lambda device=device: device.latest().tick > 10)
            assert emulator.carried("left")
            away = CLOSED.copy()
            away[0] += 0.1
            assert Approach(device, ALOHA).to(away, 0.3, "there")
            assert emulator.carried("left")
            brake(device)
    with connected(emulator) as device:
        Approach(device, ALOHA).to(OPEN, 0.5, "there")
    assert not emulator.carried("left"), "an opened gripper drops it"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_object_stays_held_at_the_end_of_the_device_process(
    emulator: Emulator, number: int
) -> None:
    """Its owner ends it, or it is killed."""
    with connected(emulator) as device:
        grasp(emulator, device)
        assert device.pid is not None
        if number == signal.SIGTERM:
            device.close()
        else:
            os.kill(device.pid, number)
            until(lambda: not device.alive)
    assert emulator.carried("left")
