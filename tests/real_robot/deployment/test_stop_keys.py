"""The stop keys act in every phase in which arms move: a person leads, ways home, and coupling."""

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.deployment.posed_leaders import PosedLeaders
from tests.real_robot.deployment.test_supervised_run import Circling, run
from tests.real_robot.deployment.test_teleop_deployment import settings
from tests.real_robot.operator_hand import Hand, after

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.deployment.leader_teleoperation import Teleoperation
from stringline.real_robot.deployment.supervised_run import Supervision
from stringline.real_robot.deployment.teleop_deployment import TeleopDeployment
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.operator.operator_keys import Key, TerminalKeys
from stringline.real_robot.robots import robot_session
from stringline.real_robot.robots.robot_session import approach_home

STOPS = (Key.HOLD, Key.HOME, Key.TAKE_OVER, Key.END)


@pytest.fixture
def device(armed_device: DeviceProcess) -> DeviceProcess:
    Circling.sessions = 0
    return armed_device


class Swung(PosedLeaders):
    """Leaders whose left waist a person swings about an angle."""

    def __init__(self, device: DeviceProcess, about: float = 0.0) -> None:
        super().__init__(device)
        self._about = about

    def pose(self, now: float) -> NDArray[np.float64]:
        position = super().pose(now)
        position[0] = self._about + 0.2 * np.sin(3.0 * now)
        return position


def led_by(device: DeviceProcess, about: float = 0.0) -> Teleoperation:
    return Teleoperation(Swung(device, about), device, ALOHA, agree=0.5)


@pytest.mark.slow
def test_space_holds_while_a_person_leads(
    device: DeviceProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    held: list[float] = []

    def look() -> None:
        for _ in range(2):
            time.sleep(0.2)
            held.append(device.latest().command[0])

    hand = Hand(
        [(after(0.3), Key.TAKE_OVER), (after(0.6), Key.HOLD), (after(2.0), Key.END)], [Key.END]
    )
    hand.before_answer = look
    run(Supervision(device, ALOHA, hand, leaders=led_by(device)))
    assert hand.awaited == [(Key.HOLD, Key.END, Key.HOME, Key.TAKE_OVER)]
    assert held[0] == held[1]
    assert Circling.sessions == 1
    told = capsys.readouterr().out
    assert told.index("You led for") < told.index("The arms hold.")


@pytest.mark.slow
def test_after_a_hold_the_policy_or_the_person_continues(
    device: DeviceProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    lead = [(after(0.4), Key.TAKE_OVER), (after(0.4), Key.HOLD), (after(0.4), Key.HOLD)]
    hand = Hand([*lead, (after(0.4), Key.END)], [Key.TAKE_OVER, Key.HOLD])
    run(Supervision(device, ALOHA, hand, leaders=led_by(device)))
    assert Circling.sessions == 2
    assert capsys.readouterr().out.count("You lead.") == 2


@pytest.mark.slow
def test_space_holds_while_the_leaders_are_far(
    device: DeviceProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    hand = Hand([(after(0.3), Key.TAKE_OVER), (after(0.2), Key.HOLD), (after(1.0), Key.END)])
    hand.answers = [Key.END]
    run(Supervision(device, ALOHA, hand, leaders=led_by(device, about=1.5)))
    assert len(hand.awaited) == 1
    assert "You lead." not in capsys.readouterr().out


@pytest.mark.slow
def test_h_brings_the_arms_home_after_a_person_led(device: DeviceProcess) -> None:
    hand = Hand([(after(0.3), Key.TAKE_OVER), (after(0.6), Key.HOME), (after(5.0), Key.END)])
    run(Supervision(device, ALOHA, hand, home_s=0.5, leaders=led_by(device, about=0.25)))
    assert np.abs(device.latest().command - ALOHA.home).max() < 0.01


def away_from_home(device: DeviceProcess) -> None:
    pose = ALOHA.home.copy()
    pose[0] = 1.0
    Approach(device, ALOHA).to(pose, 0.5, "a pose away")


def at_rest_on_the_way(device: DeviceProcess) -> bool:
    stopped = device.latest().command[0]
    time.sleep(0.1)
    return bool(0.1 < stopped < 0.99 and device.latest().command[0] == stopped)


@pytest.mark.slow
@pytest.mark.parametrize("key", STOPS)
def test_each_stop_key_stops_the_way_home_before_an_episode(
    device: DeviceProcess,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    key: Key,
) -> None:
    """The key that has started the motion does not stop it, since it may still be held down."""
    away_from_home(device)
    far, near = os.openpty()
    robot: Any = SimpleNamespace(device=device, held=None)
    factory: Any = SimpleNamespace(settings=SimpleNamespace(approach_s=2.0), embodiment=ALOHA)
    typing = [
        threading.Timer(0.3, os.write, (far, b"s")),
        threading.Timer(0.9, os.write, (far, key.value.encode())),
    ]
    with os.fdopen(near) as stream:
        monkeypatch.setattr(
            robot_session, "TerminalKeys", lambda held=None: TerminalKeys(stream, held)
        )
        began = time.monotonic()
        for timer in typing:
            timer.start()
        with pytest.raises(ValueError, match="The operator has stopped the arms on the way home"):
            approach_home(robot, factory)
        assert time.monotonic() - began > 0.8
    assert at_rest_on_the_way(device)
    assert "any operator key stops them" in capsys.readouterr().out
    for timer in typing:
        timer.join()
    os.close(far)


@pytest.mark.slow
@pytest.mark.parametrize("key", STOPS)
def test_each_stop_key_stops_the_way_of_the_followers_to_the_leaders(
    device: DeviceProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path, key: Key
) -> None:
    away_from_home(device)
    chosen = settings(
        "robot.lock_step=false", "robot.teleoperation.approach_s=2", f"record={tmp_path / 'store'}"
    )
    deployment = TeleopDeployment(chosen)
    assert not deployment._couple(led_by(device), Hand([(after(0.8), key)]))
    assert at_rest_on_the_way(device)
    assert "any operator key stops them" in capsys.readouterr().out
