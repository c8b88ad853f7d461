"""Late plans on emulated arms: with a given delay in lock-step, with the real one in real time."""

import time

import numpy as np
import pytest

from stringline import ALOHA, ActionChunk, SafetyLimits, Session
from stringline.datasets.contract.contract import Array, Observation
from stringline.policies.execution.execution import ChunkExecutor, Execution
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.execution.lock_step import LockStepRobot
from stringline.real_robot.execution.real_time import RealTimeRobot

HZ = 50.0


class Stairs:
    """A policy that moves the first joint a little higher in each plan, and may be slow."""

    contract = ALOHA.contract([], HZ)

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.asked = seconds, list[float]()

    def session(self, seed: int) -> "Stairs":
        return self

    def plan(self, observation: Observation) -> ActionChunk:
        time.sleep(self.seconds)
        target = ALOHA.home.copy()
        target[0] += 0.004 * len(self.asked)
        self.asked.append(float(observation["time"]))
        return ActionChunk(
            self.asked[-1] + np.arange(30) / HZ, np.tile(target, (30, 1)).astype(np.float32)
        )


class Noted:
    """A session that keeps its plans."""

    def __init__(self, session: Session) -> None:
        self.session, self.sent = session, list[ActionChunk]()

    def plan(self, observation: Observation) -> ActionChunk:
        self.sent.append(self.session.plan(observation))
        return self.sent[-1]


class NoCameras:
    def frames(self) -> dict[str, Array]:
        return {}


def device_of(emulator: Emulator, *, lock_step: bool) -> DeviceProcess:
    driver = AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.5)
    return DeviceProcess(
        driver,
        ALOHA,
        SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0),
        lock_step=lock_step,
    )


@pytest.mark.slow
def test_in_lock_step_a_plan_is_followed_after_the_given_delay() -> None:
    """The first plan acts at once; the others ten cycles, five periods, after their observation."""
    begun: dict[float, list[int]] = {}
    with (
        Emulator(plant="first_order", lock_step=True, time_limit_s=0.8) as emulator,
        device_of(emulator, lock_step=True) as device,
    ):
        device.connect()
        device.arm()
        robot = LockStepRobot(emulator, device, Stairs.contract, ALOHA)
        for delay_s in (0.0, 0.1):
            policy, execution = Stairs(), Execution(delay_s=delay_s)
            session = ChunkExecutor(policy, 0, execution, execute_steps=10)
            episode = robot.run(session, 0, execute_steps=execution.replan_after(10))
            np.testing.assert_allclose(policy.asked, [0.0, 0.2, 0.4, 0.6], atol=1e-9)
            first = np.array([command[0] for command in episode.commands])
            still = np.abs(np.diff(first)) < 1e-9
            begun[delay_s] = [
                cycle for cycle in range(15, 80) if still[cycle - 2] and not still[cycle - 1]
            ]
    assert begun == {0.0: [20, 40, 60], 0.1: [30, 50, 70]}


@pytest.mark.slow
def test_in_real_time_whole_chunks_follow_each_other_and_wait_for_the_next_plan(
    emulator: Emulator,
) -> None:
    """Each plan is made at the end of the one before, and executed from its beginning."""
    policy, execution = Stairs(seconds=0.05), Execution("stop_and_go")

    with device_of(emulator, lock_step=False) as device:
        device.connect()
        device.arm()
        session = Noted(ChunkExecutor(policy, 0, execution, execute_steps=10, clock=time.monotonic))
        robot = RealTimeRobot(device, NoCameras(), policy.contract, ALOHA)
        episode = robot.run(
            session,
            1.0,
            execute_steps=execution.replan_after(10),
            done=lambda: False,
            report=lambda *_: None,
        )
    assert episode.plans == len(session.sent) >= 2
    assert not episode.fault
    assert all(len(chunk.time) == 10 for chunk in session.sent)
    for asked, chunk in zip(policy.asked, session.sent, strict=True):
        assert chunk.time[0] >= asked + 0.05 - 1e-3
    for before, after in zip(policy.asked, policy.asked[1:], strict=False):
        assert after - before >= 0.05 + 10 / HZ - 0.02
    with pytest.raises(ValueError, match="Stairs supports no action prefix"):
        ChunkExecutor(policy, 0, Execution("real_time_chunking"), execute_steps=10)
