"""A loop of teleoperation that stands still while its heartbeat goes on, as after Ctrl-S."""

import time

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.deployment.posed_leaders import PosedLeaders

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.deployment.leader_teleoperation import Teleoperation
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.safety.reasons import Mode

WAIST = 0
AWAY_RAD = 1.2  # Four times the largest distance at which followers couple.


@pytest.fixture
def device(armed_device: DeviceProcess) -> DeviceProcess:
    return armed_device


class Placed(PosedLeaders):
    """Leaders whose left waist a person places."""

    waist = 0.0

    def pose(self, now: float) -> NDArray[np.float64]:
        position = super().pose(now)
        position[WAIST] = self.waist
        return position


def farthest(states: list[DeviceState]) -> float:
    return float(np.abs([state.command[WAIST] for state in states]).max())


@pytest.mark.slow
@pytest.mark.parametrize("stall_s", [0.25, 1.0])
def test_after_a_stall_followers_wait_until_leaders_agree_again(
    device: DeviceProcess, stall_s: float
) -> None:
    """The leader is laid down during the stall, and brought back half a second after it."""
    leaders = Placed(device)
    ways: list[NDArray[np.float64]] = []
    stalled: list[float] = []
    apart: list[DeviceState] = []
    together: list[DeviceState] = []

    def report(state: DeviceState, seconds: float) -> None:
        if seconds > 0.3 and not stalled:
            time.sleep(stall_s)
            leaders.waist = AWAY_RAD
            stalled.append(time.monotonic())
        elif stalled and time.monotonic() < stalled[0] + 0.5:
            apart.append(state)
        elif stalled:
            leaders.waist = 0.1
            together.append(state)

    led = Teleoperation(leaders, device, ALOHA, agree=0.3).run(
        stall_s + 1.5, stop=lambda: False, record=lambda _, way: ways.append(way), report=report
    )
    assert not led.fault
    assert led.pauses >= 1
    assert farthest(apart) < 0.01
    assert apart[-1].mode is Mode.HOLD
    assert max(way[WAIST] for way in ways) <= 0.1
    assert together[-1].mode is Mode.RUN
    assert together[-1].command[WAIST] == pytest.approx(0.1, abs=0.01)


@pytest.mark.slow
def test_targets_that_arrive_too_late_are_a_pause_as_well(device: DeviceProcess) -> None:
    """The loop goes on, but no target of late leaders is ever due."""
    leaders = Placed(device)
    apart: list[DeviceState] = []

    def report(state: DeviceState, seconds: float) -> None:
        leaders.old_s = 0.5 if 0.3 < seconds < 0.8 else 0.0
        if seconds > 0.6:
            leaders.waist = AWAY_RAD
            apart.append(state)

    led = Teleoperation(leaders, device, ALOHA, agree=0.3).run(
        1.3, stop=lambda: False, record=lambda *_: None, report=report
    )
    assert not led.fault
    assert led.pauses >= 1
    assert farthest(apart) < 0.01


@pytest.mark.slow
def test_the_begin_of_an_episode_is_not_a_pause(device: DeviceProcess) -> None:
    """The filter also holds before it has received the first target."""
    led = Teleoperation(Placed(device), device, ALOHA).run(
        0.6, stop=lambda: False, record=lambda *_: None, report=lambda *_: None
    )
    assert led.targets > 20
    assert led.pauses <= led.late  # None, but where a busy machine makes a cycle late.
