"""The emulated controller alone: its states, refusals, and rating of a connection."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from stringline.datasets.embodiments.iiwa14 import IIWA14
from stringline.real_robot.drivers.fri.enums import Quality, SafetyState, SessionState
from stringline.real_robot.drivers.fri.messages import Command, Monitoring
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.emulators import emulate
from stringline.real_robot.emulators.fri.controller import (
    EmulatedController,
    QualityMeter,
    QualityRule,
)
from stringline.real_robot.emulators.fri.kuka_server import EmulatedCell
from stringline.real_robot.emulators.plants.plant import FirstOrderPlant
from stringline.real_robot.emulators.program.faulty_channel import FaultyChannel

VERSION = version_of("2.5")
HOME = IIWA14.home[:7]


class Client:
    """Answers with the position that the controller commands itself, plus an offset."""

    def __init__(self, **settings: object) -> None:
        self.cell = EmulatedCell(IIWA14, FirstOrderPlant(IIWA14), VERSION, **settings)  # type: ignore[arg-type]
        self.controller: EmulatedController = self.cell.controllers["arm"]
        self.count, self.message = 0, Monitoring()

    def period(
        self,
        offset: float = 0.0,
        answer: Callable[[Command], Command | None] = lambda command: command,
    ) -> Monitoring:
        self.cell.advance()
        for data in self.controller.tick():
            self.message = Monitoring.of(VERSION, data)
        position = tuple((np.array(self.message.ipo) + offset).tolist()) if self.message.ipo else ()
        command = answer(Command(self.count, self.message.sequence, position))
        self.count += 1
        if command is not None:
            self.controller.receive(command.to_bytes(VERSION))
        return self.message

    def up(self) -> "Client":
        for _ in range(60):
            if self.period().session is SessionState.COMMANDING_ACTIVE:
                return self
        raise AssertionError(self.message)


def test_a_session_passes_its_states_in_order_and_the_arm_follows() -> None:
    client = Client()
    seen = [client.period() for _ in range(50)]
    states = [message.session for message in seen]
    assert list(dict.fromkeys(states)) == list(SessionState)[1:]
    assert states == sorted(states)
    assert all(
        message.quality >= Quality.GOOD
        for message in seen
        if message.session > SessionState.MONITORING_WAIT
    )
    assert all(
        bool(message.ipo) == (message.session >= SessionState.COMMANDING_WAIT) for message in seen
    )
    assert all(
        (message.tracking == 1.0) == (message.session is SessionState.COMMANDING_ACTIVE)
        for message in seen
    )
    for step in range(100):
        client.period(min(0.01 * step, 0.5))
    assert np.allclose(client.message.measured, HOME + 0.5, atol=1e-3)
    assert client.controller.stops == []


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (tuple(HOME + 0.05), "was to jump by 0.0500 rad"),
        ((*HOME[:6], 3.2), "was to jump"),
        ((), "a command of 0 joints"),
        ((*HOME[:6], np.inf), "not finite"),
    ],
)
def test_a_command_that_no_arm_could_follow_is_a_safety_stop(
    position: tuple[float, ...], words: str
) -> None:
    client = Client().up()
    client.period(0.0, lambda command: Command(command.sequence, command.reflected, position))
    message = client.period()
    assert message.safety is SafetyState.STOP1_ON_PATH
    assert message.session is SessionState.MONITORING_READY
    assert words in client.controller.stops[0]
    client.controller.fault("release")
    client.up()


def test_in_t1_a_command_that_moves_the_gripper_too_fast_is_a_safety_stop() -> None:
    client = Client(t1_speed=0.25).up()
    reach = float(np.linalg.norm(IIWA14.forward_kinematics(IIWA14.home)["arm"][:2, 3]))

    def moved(speed: float, cycles: int) -> SafetyState | None:
        """Turns the first axis with the gripper at that speed; returns the state of safety."""
        position = client.controller.target.copy()
        for _ in range(cycles):
            position[0] += 0.01 * speed / reach
            client.period(0.0, partial(replace, position=tuple(position.tolist())))
        return client.period(0.0, lambda _: None).safety

    assert moved(0.2499, 20) is SafetyState.NORMAL
    assert moved(0.252, 3) is SafetyState.STOP1_ON_PATH
    assert client.message.session is SessionState.MONITORING_READY
    assert client.controller.stops == ["the gripper was to move at 0.252 m/s; T1: 0.25"]
    client.controller.fault("release")
    client.controller.fault("aut")
    client.up()
    assert moved(0.5, 3) is SafetyState.NORMAL


def test_a_client_that_does_not_repeat_the_controllers_position_may_not_command() -> None:
    client = Client()
    for _ in range(60):
        assert client.period(0.001).session <= SessionState.COMMANDING_WAIT
    assert client.message.session is SessionState.COMMANDING_WAIT
    client.up()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda command: None,
        lambda command: Command(command.sequence, command.reflected - 1, command.position),
        lambda command: Command(3, command.reflected, command.position),
    ],
)
def test_answers_that_are_missing_late_or_old_end_the_motion(
    wrong: Callable[[Command], Command | None],
) -> None:
    client = Client().up()
    for _ in range(4):
        assert client.period(0.0, wrong).session is SessionState.COMMANDING_ACTIVE
    for _ in range(3):
        client.period(0.0, wrong)
    assert client.message.session is SessionState.MONITORING_WAIT
    assert client.message.quality is Quality.POOR


def test_an_application_without_restart_waits_for_its_operator() -> None:
    client = Client(restarts=False).up()
    client.controller.fault("stop")
    client.controller.fault("release")
    for _ in range(30):
        assert client.period().session is SessionState.MONITORING_READY
    client.controller.fault("restart")
    client.up()


def test_one_answer_to_two_messages_is_enough_with_that_multiplier() -> None:
    client = Client(receive_multiplier=2)
    for period in range(150):
        client.period(0.0, lambda command, odd=bool(period % 2): command if odd else None)  # type: ignore[misc]
    assert client.message.session is SessionState.COMMANDING_ACTIVE
    assert client.message.receive_multiplier == 2


def test_quality_follows_the_rule() -> None:
    meter = QualityMeter(QualityRule(window=10, fair=0.5, good=0.8, excellent=1.0, most_missed=3))
    seen = []
    for _ in range(10):
        meter.note(True)
        seen.append(meter.quality)
    poor, fair, good, excellent = Quality
    assert seen == [poor] * 4 + [fair] * 3 + [good] * 2 + [excellent]
    for expected in (good, good, fair, poor):
        meter.note(False)
        assert meter.quality is expected
    with pytest.raises(ValueError, match="0 <= fair <= good <= excellent <= 1"):
        QualityRule(fair=0.9)


def test_a_channel_applies_the_planned_faults_to_datagrams() -> None:
    road = FaultyChannel()
    for kind, arrived in (
        ("drop", []),
        ("duplicate", [b"ab", b"ab"]),
        ("corrupt", [bytes([0x61, 0x62 ^ 0xFF])]),
    ):
        road.plan(kind, 1)
        assert road.carry(b"ab") == arrived
    road.plan("reorder", 1)
    assert [road.carry(data) for data in (b"1", b"2", b"3")] == [[], [b"2", b"1"], [b"3"]]
    road.plan("late", 1)
    assert road.carry(b"4") == []
    assert [road.pass_period() for _ in range(4)] == [[], [], [b"4"], []]
    road.cut = True
    assert road.carry(b"5") == []
    with pytest.raises(ValueError, match="no fault of a connection 'dorp'. Did you mean 'drop'"):
        road.plan("dorp", 1)


def test_impossible_settings_of_an_emulator_are_refused() -> None:
    with pytest.raises(ValueError, match="no fault 'stopp'. Did you mean 'stop'"):
        Client().controller.fault("stopp")
    with pytest.raises(ValueError, match="every 1 to 100 whole milliseconds"):
        EmulatedCell(IIWA14, FirstOrderPlant(IIWA14, period_s=0.0105), VERSION)
    with pytest.raises(SystemExit, match="is not a number for each of left, right"):
        emulate.main(["fri", "--arms", "two", "--ports", "30200"])
