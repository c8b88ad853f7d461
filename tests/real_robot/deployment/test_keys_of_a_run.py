"""Keys of a real terminal in a supervised run: what held, doubled and buffered keys do."""

import os
import threading
import time
from collections.abc import Callable

import pytest
from tests.real_robot.deployment.posed_leaders import PosedLeaders
from tests.real_robot.deployment.test_supervised_run import BLIND, Circling, Confused, NoCameras
from tests.real_robot.operator.test_operator_keys import hold_down
from tests.real_robot.operator_hand import Terminal

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.deployment.leader_teleoperation import Teleoperation
from stringline.real_robot.deployment.supervised_run import SupervisedRun, Supervision
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.execution.real_time import RealTimeEpisode, RealTimeRobot
from stringline.real_robot.safety.reasons import Mode


@pytest.fixture
def device(armed_device: DeviceProcess) -> DeviceProcess:
    return armed_device


def run(
    supervision: Supervision, policy: type[Circling], operator: Callable[[], None]
) -> RealTimeEpisode:
    """Runs a policy under an operator, who begins to type after a second."""
    policy.sessions = 0
    typing = threading.Timer(1.0, operator)
    typing.start()
    robot = RealTimeRobot(supervision.device, NoCameras(), BLIND, ALOHA)
    episode = SupervisedRun(robot, policy, 10, supervision).run(
        20.0, done=lambda: False, report=lambda *_: None
    )
    typing.join()
    return episode


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.75, 1.2])
def test_a_hold_outlasts_the_key_that_is_held_down(
    terminal: Terminal, device: DeviceProcess, seconds: float
) -> None:
    far, keys = terminal

    def operator() -> None:
        hold_down(far, b" ", seconds)
        time.sleep(1.0)
        os.write(far, b"q")

    run(Supervision(device, ALOHA, keys), Circling, operator)
    assert Circling.sessions == 1


@pytest.mark.slow
def test_a_new_press_continues_after_a_hold(terminal: Terminal, device: DeviceProcess) -> None:
    far, keys = terminal

    def operator() -> None:
        for key in (b" ", b" ", b"q"):
            os.write(far, key)
            time.sleep(1.2)

    run(Supervision(device, ALOHA, keys), Circling, operator)
    assert Circling.sessions == 2


@pytest.mark.slow
def test_a_key_from_before_a_fault_was_shown_does_not_reset_it(
    terminal: Terminal, device: DeviceProcess
) -> None:
    far, keys = terminal

    def watch(states: list[DeviceState]) -> None:
        if states and states[-1].mode is Mode.FAULT:
            os.write(far, b"r")

    def operator() -> None:
        time.sleep(1.0)
        os.write(far, b"q")

    episode = run(Supervision(device, ALOHA, keys, watchers=(watch,)), Confused, operator)
    assert Confused.sessions == 1
    assert "a chunk was rejected" in episode.fault[0]


@pytest.mark.slow
def test_a_person_leads_also_if_the_key_is_held_down(
    terminal: Terminal, device: DeviceProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    far, keys = terminal

    def operator() -> None:
        hold_down(far, b"t", 1.2)
        time.sleep(0.3)
        os.write(far, b"q")

    leaders = Teleoperation(PosedLeaders(device), device, ALOHA, agree=0.5)
    run(Supervision(device, ALOHA, keys, leaders=leaders), Circling, operator)
    assert Circling.sessions == 1
    assert capsys.readouterr().out.count("You lead.") == 1


@pytest.mark.slow
def test_after_the_release_t_returns_to_the_policy(
    terminal: Terminal, device: DeviceProcess
) -> None:
    far, keys = terminal

    def operator() -> None:
        for key in (b"t", b"t", b"q"):
            os.write(far, key)
            time.sleep(1.2)

    leaders = Teleoperation(PosedLeaders(device), device, ALOHA, agree=0.5)
    run(Supervision(device, ALOHA, keys, leaders=leaders), Circling, operator)
    assert Circling.sessions == 2
