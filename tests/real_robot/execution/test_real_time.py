"""Real time: motion to the home pose, late policies, old images, and first actions too far away."""

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline import ALOHA, ActionChunk, Camera, Contract, SafetyLimits
from stringline.datasets.contract.contract import Array, Observation
from stringline.policies.execution.execution import ChunkExecutor, Execution
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.execution.real_time import RealTimeEpisode, RealTimeRobot
from stringline.real_robot.safety.reasons import Mode, Reason

Vector = NDArray[np.float64]

BLIND = ALOHA.contract([], 50.0)
SEEING = ALOHA.contract([Camera("overhead", 8, 8)], 50.0)


class Frames:
    """A camera whose last image is of that age."""

    def __init__(self, age: float) -> None:
        self.age = age

    def frames(self) -> dict[str, Array]:
        return {
            "rgb/overhead": np.zeros((8, 8, 3), np.uint8),
            "time/overhead": np.asarray(time.monotonic() - self.age),
            "intrinsics/overhead": np.eye(3, dtype=np.float32),
        }


class Towards:
    """A policy with a constant target, whose plans take some time."""

    contract = BLIND

    def __init__(self, target: Vector, *, seconds: float = 0.0, waypoints: int = 30) -> None:
        self.target, self.seconds, self.waypoints = target, seconds, waypoints
        self.seen: list[Observation] = []

    def session(self, seed: int) -> "Towards":
        return self

    def plan(self, observation: Observation) -> ActionChunk:
        self.seen.append(observation)
        time.sleep(self.seconds)
        due = float(observation["time"]) + 0.02 * np.arange(self.waypoints, dtype=np.float64)
        return ActionChunk(due, np.tile(self.target, (self.waypoints, 1)).astype(np.float32))


@pytest.fixture
def device(emulator: Emulator) -> Iterator[DeviceProcess]:
    driver = AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.2)
    with DeviceProcess(
        driver, ALOHA, SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0)
    ) as running:
        running.connect()
        running.arm()
        yield running


def away(by: float) -> Vector:
    q = ALOHA.home.copy()
    q[0] += by
    return q


def run(
    robot: RealTimeRobot, session: Towards, seconds: float
) -> tuple[RealTimeEpisode, list[DeviceState]]:
    states: list[DeviceState] = []
    episode = robot.run(
        session,
        seconds,
        execute_steps=10,
        done=lambda: False,
        report=lambda state, _: states.append(state),
    )
    return episode, states


def robot(device: DeviceProcess, contract: Contract = BLIND, age: float = 0.0) -> RealTimeRobot:
    return RealTimeRobot(device, Frames(age), contract, ALOHA)


@pytest.mark.slow
def test_a_policy_moves_the_arms_and_then_they_come_home(device: DeviceProcess) -> None:
    session = Towards(away(0.3))
    episode, states = run(robot(device), session, 1.0)
    assert episode.plans >= 2
    assert not episode.fault
    assert abs(states[-1].command[0] - 0.3) < 0.01
    assert session.seen[0]["joints/position"].shape == (14,)
    Approach(device, ALOHA).to(ALOHA.home, 1.0, "their home pose")
    assert np.abs(device.latest().command - ALOHA.home).max() < 0.01


@pytest.mark.slow
def test_a_late_policy_makes_the_arms_hold_and_nothing_jumps(device: DeviceProcess) -> None:
    _, states = run(robot(device), Towards(away(0.2), seconds=0.5, waypoints=30), 2.0)
    held = [state.mode is Mode.HOLD for state in device.recent()] + [
        state.mode is Mode.HOLD for state in states
    ]
    assert any(held)
    assert states[-1].counts[Reason.STARVED] > 0
    path = np.array([state.command[0] for state in device.recent()])
    assert np.abs(np.diff(path)).max() <= np.pi * 0.01 + 1e-9


@pytest.mark.slow
def test_no_plan_is_made_from_old_images(device: DeviceProcess) -> None:
    session = Towards(away(0.2))
    episode, states = run(robot(device, SEEING, age=1.0), session, 0.5)
    assert not session.seen
    assert episode.waits > 0
    assert episode.waited_for == {"overhead": episode.waits}
    assert states[-1].reasons == Reason.STARVED


@pytest.mark.slow
def test_the_filter_refuses_a_plan_from_old_images_as_well(
    device: DeviceProcess,
) -> None:
    patient = RealTimeRobot(device, Frames(0.25), SEEING, ALOHA, oldest_frame_s=1.0)
    episode, states = run(patient, Towards(away(0.2)), 0.5)
    assert episode.plans > 0
    assert states[-1].counts[Reason.OLD_IMAGES] > 0
    assert np.abs(states[-1].command - ALOHA.home).max() < 0.01


@pytest.mark.slow
def test_fresh_images_come_with_the_pose_of_their_camera(device: DeviceProcess) -> None:
    session = Towards(away(0.0))
    run(robot(device, SEEING, age=0.05), session, 0.3)
    expected = ALOHA.camera_poses(ALOHA.home)["overhead"]
    assert np.allclose(session.seen[0]["T_base_camera/overhead"], expected, atol=1e-6)


@pytest.mark.slow
def test_a_plan_from_an_old_observation_is_not_followed_in_any_execution(
    emulator: Emulator,
) -> None:
    """A server that stopped sends such plans: due from their arrival, for an old observation."""
    driver = AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.2)
    limits = replace(
        SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0), oldest_plan_s=0.2
    )
    with DeviceProcess(driver, ALOHA, limits) as device:
        device.connect()
        device.arm()
        for seconds in (0.3, 0.0):
            policy = Towards(away(0.2), seconds=seconds, waypoints=6)
            session = ChunkExecutor(policy, 0, Execution(), execute_steps=6, clock=time.monotonic)
            episode = robot(device).run(
                session, 1.0, execute_steps=6, done=lambda: False, report=lambda *_: None
            )
            assert episode.plans >= 2
            assert (episode.refused == episode.plans) == (seconds > 0.2)
            assert (abs(device.latest().command[0]) < 0.01) == (seconds > 0.2)


@pytest.mark.slow
def test_a_plan_ages_independently_of_the_next_one(device: DeviceProcess) -> None:
    """A plan that follows in three seconds does not change the age of the plan in force."""
    now = time.monotonic()
    device.begin()
    device.send(
        ActionChunk(now + np.array([0.0, 9.0]), np.tile(away(0.1), (2, 1)).astype(np.float32)),
        0.0,
        now - 1.7,
    )
    device.send(
        ActionChunk(now + np.array([1.9, 9.0]), np.tile(away(0.2), (2, 1)).astype(np.float32)),
        0.0,
        now,
    )
    deadline = time.monotonic() + 5.0
    while not device.latest().counts[Reason.OLD_PLAN]:
        assert time.monotonic() < min(deadline, now + 1.8)
        time.sleep(0.01)


class FirstNonsense(Towards):
    """Its first plan is not finite, and its second is far away."""

    def plan(self, observation: Observation) -> ActionChunk:
        chunk = super().plan(observation)
        return (
            ActionChunk(chunk.time, np.full_like(chunk.action, np.nan))
            if len(self.seen) == 1
            else chunk
        )


@pytest.mark.slow
def test_the_first_move_is_that_of_the_first_valid_plan(device: DeviceProcess) -> None:
    with pytest.raises(ValueError, match=r"1.50 rad away from the measured left/waist"):
        run(robot(device), FirstNonsense(away(1.5)), 1.0)
    assert np.abs(device.latest().command - ALOHA.home).max() < 0.01


@pytest.mark.slow
def test_a_first_move_that_is_too_far_is_refused(device: DeviceProcess) -> None:
    with pytest.raises(ValueError, match=r"1.50 rad away from the measured left/waist"):
        run(robot(device), Towards(away(1.5)), 1.0)
    assert np.abs(device.latest().command - ALOHA.home).max() < 0.01
