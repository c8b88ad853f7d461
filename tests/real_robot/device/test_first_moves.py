"""An episode begins near the measured pose, whatever a policy answered before its first plan."""

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline import ALOHA, ActionChunk, SafetyLimits
from stringline.datasets.contract.contract import Observation
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.execution.real_time import RealTimeRobot
from stringline.real_robot.safety.reasons import Reason

Times = NDArray[np.float64]
Actions = NDArray[np.float32]
Answer = Callable[[float], ActionChunk]

FAR = ALOHA.home.copy()
FAR[0] += 1.5


def steps(now: float, count: int = 30) -> Times:
    return now + 0.02 * np.arange(count, dtype=np.float64)


def at(place: NDArray[np.float64], count: int = 30) -> Actions:
    return np.tile(place, (count, 1)).astype(np.float32)


def no_numbers(now: float) -> ActionChunk:
    return ActionChunk(steps(now), np.full_like(at(FAR), np.nan))


def a_number_missing_later(now: float) -> ActionChunk:
    action = at(ALOHA.home)
    action[7, 3] = np.nan
    return ActionChunk(steps(now), action)


def of_another_body(now: float) -> ActionChunk:
    return ActionChunk(steps(now), at(FAR)[:, :7])


def longer_than_any(now: float) -> ActionChunk:
    return ActionChunk(steps(now, 300), at(ALOHA.home, 300))


def back_in_time(now: float) -> ActionChunk:
    return ActionChunk(steps(now)[::-1].copy() - 0.58, at(ALOHA.home))


def far_away(now: float) -> ActionChunk:
    return ActionChunk(steps(now), at(FAR))


class Answers:
    """A policy that returns these answers in order as its plans, and repeats the last one."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.asked = answers, 0

    def plan(self, observation: Observation) -> ActionChunk:
        self.asked += 1
        return self.answers[min(self.asked, len(self.answers)) - 1](float(observation["time"]))


class Blind:
    """No camera."""

    def frames(self) -> dict[str, NDArray[np.generic]]:
        return {}


@pytest.fixture
def device(emulator: Emulator) -> Iterator[DeviceProcess]:
    driver = AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.2)
    with DeviceProcess(
        driver, ALOHA, SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0)
    ) as running:
        running.connect()
        running.arm()
        yield running


@pytest.mark.slow
def test_no_invalid_plan_allows_a_far_one(device: DeviceProcess) -> None:
    """This process or the filter refuses each one, and the next plan is still the first one."""
    robot = RealTimeRobot(device, Blind(), ALOHA.contract([], 50.0), ALOHA)
    for bad in (no_numbers, a_number_missing_later, of_another_body, longer_than_any, back_in_time):
        session = Answers(bad, far_away)
        with pytest.raises(
            ValueError, match=r"is 1.50 rad away from the measured left/waist; allowed: 0.5 rad"
        ):
            robot.run(
                session,
                2.0,
                execute_steps=5,
                done=lambda: False,
                report=lambda state, seconds: None,
            )
        assert session.asked == 2, bad.__name__
        time.sleep(0.05)
        assert np.abs(device.latest().command - ALOHA.home).max() < 0.01, bad.__name__
    assert device.latest().counts[Reason.BAD_CHUNK] > 0


@pytest.mark.slow
def test_once_a_plan_was_followed_others_may_begin_anywhere(device: DeviceProcess) -> None:
    """The filter limits large steps: arms that lag behind their plan are no reason to stop."""
    robot = RealTimeRobot(device, Blind(), ALOHA.contract([], 50.0), ALOHA)
    session = Answers(lambda now: ActionChunk(steps(now), at(ALOHA.home)), far_away)
    episode = robot.run(
        session, 0.6, execute_steps=10, done=lambda: False, report=lambda state, seconds: None
    )
    assert session.asked > 2
    assert episode.refused == 0
    assert device.latest().command[0] - ALOHA.home[0] > 0.1
