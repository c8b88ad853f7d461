"""The client's side of FRI, over real datagrams that the test writes as a controller would."""

import dataclasses
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline import IIWA14, IIWA14_BIMANUAL, SafetyFilter, SafetyLimits
from stringline.real_robot.driver_interface.driver import RobotNotReadyError, SafeCommand
from stringline.real_robot.driver_interface.interlocks import (
    FIRST_STOP,
    Interlock,
    describe_interlock,
)
from stringline.real_robot.drivers.fri import fri_driver
from stringline.real_robot.drivers.fri.controller_io import IoGripper, IoValue
from stringline.real_robot.drivers.fri.enums import (
    CommandMode,
    ControlMode,
    DriveState,
    IoDirection,
    IoType,
    OperationMode,
    Overlay,
    Quality,
    SafetyState,
    SessionState,
)
from stringline.real_robot.drivers.fri.fri_arm import (
    CHANGE_SHARE,
    SPEED_SHARE,
    FriArm,
    Playback,
    interlock_of,
)
from stringline.real_robot.drivers.fri.fri_driver import FriDriver
from stringline.real_robot.drivers.fri.fri_link import FriLink, address_of
from stringline.real_robot.drivers.fri.messages import Command, Inbox, Monitoring
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.drivers.kuka import kuka_driver
from stringline.real_robot.safety.reasons import Mode

Vector = NDArray[np.float64]

PERIOD = 0.01
HOME = tuple(IIWA14.home[:7].tolist())
PLACE = tuple(0.1 * index for index in range(7))
ELSEWHERE = tuple(0.1 * index + 0.02 for index in range(7))
ACTIVE = Monitoring(
    sequence=1,
    session=SessionState.COMMANDING_ACTIVE,
    quality=Quality.GOOD,
    send_period_ms=10,
    safety=SafetyState.NORMAL,
    drives=(DriveState.ACTIVE,) * 7,
    operation=OperationMode.T1,
    measured=PLACE,
    external_torque=PLACE,
    commanded=ELSEWHERE,
    time=(1_700_000_000, 0),
    ipo=ELSEWHERE,
    command_mode=CommandMode.POSITION,
    overlay=Overlay.JOINT,
)


class Controller:
    """The far end of a port."""

    def __init__(self, version: str = "1.15", source: str = "127.0.0.1") -> None:
        self.version = version_of(version)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((source, 0))
        self._socket.settimeout(0.0)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            self.number = int(free.getsockname()[1])
        self.port, self.sequence, self.reflected = f"127.0.0.1:{self.number}", 0, 0

    def say(self, message: Monitoring = ACTIVE, **changes: object) -> None:
        self.sequence += 1
        counts = {
            "sequence": self.sequence,
            "reflected": self.reflected,
            "time": (1_700_000_000, self.sequence),
        }
        self.send(dataclasses.replace(message, **{**counts, **changes}).to_bytes(self.version))  # type: ignore[arg-type]

    def send(self, data: bytes) -> None:
        self._socket.sendto(data, ("127.0.0.1", self.number))

    def heard(self) -> Command | None:
        try:
            command = Command.of(self.version, self._socket.recv(2000))
        except BlockingIOError:
            return None
        self.reflected = command.sequence
        return command

    def close(self) -> None:
        self._socket.close()


MakeArm = Callable[..., tuple[FriArm, Controller]]


@pytest.fixture
def make() -> Iterator[MakeArm]:
    made: list[FriArm | Controller] = []

    def build(version: str = "1.15", **settings: object) -> tuple[FriArm, Controller]:
        controller = Controller(version)
        link = FriLink(controller.port)
        arm = FriArm(
            "arm",
            link,
            controller.version,
            period_s=PERIOD,
            operation_modes=[OperationMode.T1],
            **settings,  # type: ignore[arg-type]
        )
        link.open()
        made.extend((arm, controller))
        return arm, controller

    yield build
    for one in made:
        (one.link if isinstance(one, FriArm) else one).close()


def exchange(
    arm: FriArm,
    controller: Controller,
    offered: Vector | None = None,
    opening: float = 1.0,
    **changes: Any,
) -> Command | None:
    controller.say(**changes)
    arm.collect(0.01 * controller.sequence)
    if offered is not None:
        arm.offer(offered, opening)
    arm.answer()
    return controller.heard()


def steps_of(arm: FriArm, controller: Controller, count: int, step: float) -> list[float]:
    """Continues commands by that many equal steps, and returns those of the first joint."""
    found = []
    for _ in range(count):
        command = exchange(arm, controller, arm.anchor + step)
        assert command is not None
        found.append(command.position[0])
    return found


@pytest.mark.parametrize(
    ("version", "session", "position"),
    [
        ("1.15", SessionState.MONITORING_WAIT, ELSEWHERE),
        ("2.5", SessionState.MONITORING_READY, ()),
        ("2.7", SessionState.COMMANDING_WAIT, ELSEWHERE),
        ("1.11", SessionState.COMMANDING_ACTIVE, ELSEWHERE),
    ],
)
def test_each_state_has_its_answer_and_counters_go_along(
    make: MakeArm, version: str, session: SessionState, position: tuple[float, ...]
) -> None:
    arm, controller = make(version)
    for count in range(3):
        command = exchange(arm, controller, session=session)
        assert command == Command(count, count + 1, position)
    assert exchange(arm, controller, session=SessionState.IDLE) is None
    assert arm.sent == 3


def test_the_first_commands_repeat_the_controllers_own(
    make: MakeArm,
) -> None:
    arm, controller = make()
    exchange(arm, controller, np.full(7, 0.5), session=SessionState.COMMANDING_WAIT)
    command = exchange(arm, controller)
    assert command is not None
    assert command.position == ELSEWHERE
    assert arm.take_interlock() is Interlock.ENTERED
    assert arm.take_interlock() is Interlock.NONE
    for step in range(1, 11):
        offered, measured = np.array(ELSEWHERE) + 0.03 * step, tuple(np.array(PLACE) + 0.03 * step)
        command = exchange(arm, controller, offered, measured=measured)
    assert command is not None
    assert np.allclose(command.position, np.array(ELSEWHERE) + 0.3)
    exchange(arm, controller, session=SessionState.MONITORING_READY, ipo=())
    for session in (SessionState.COMMANDING_WAIT, SessionState.COMMANDING_ACTIVE):
        old = np.array(ELSEWHERE) + 0.33  # The old target is not taken up,
        command = exchange(arm, controller, old, session=session, ipo=PLACE)
        assert command is not None
        assert command.position == PLACE  # nor is anything else but what the controller holds.


def test_a_command_that_is_far_from_the_last_is_never_sent(make: MakeArm) -> None:
    arm, controller = make()
    exchange(arm, controller)
    arm.take_interlock()
    for far in (np.zeros(7), np.full(7, np.nan), np.array(ELSEWHERE) + 0.07):
        assert exchange(arm, controller, far) == Command(
            arm.sent - 1, controller.sequence, ELSEWHERE
        )
        assert arm.take_interlock() is Interlock.FAR
        assert np.array_equal(arm.anchor, ELSEWHERE)


def test_commands_outside_a_motion_are_dropped(make: MakeArm) -> None:
    arm, controller = make()
    exchange(arm, controller)
    arm.take_interlock()
    assert not arm.accepts
    for step in range(1, 5):  # Messages are late, and the filter continues.
        arm.offer(np.array(ELSEWHERE) + 0.02 * step, 1.0)
    assert np.array_equal(arm.anchor, ELSEWHERE)
    command = exchange(arm, controller, np.array(ELSEWHERE) + 0.1)
    assert command is not None
    assert command.position == ELSEWHERE
    assert arm.take_interlock() is Interlock.FAR


@pytest.mark.parametrize("own_clock", [False, True])
@pytest.mark.parametrize("lost", [1, 5])
def test_lost_motion_is_not_made_up_for(make: MakeArm, lost: int, *, own_clock: bool) -> None:
    arm, controller = make(own_clock=own_clock)
    exchange(arm, controller)
    sent = steps_of(arm, controller, 6, 0.02)
    assert max(np.diff(sent)) == pytest.approx(0.02)
    arm.take_interlock()
    for _ in range(lost):
        controller.sequence += 1
        arm.offer(arm.anchor + 0.02, 1.0)
    controller.say()
    arm.collect(1.0)
    assert arm.take_interlock() is Interlock.MISSED
    assert arm.take_interlock() is Interlock.NONE
    assert arm.anchor[0] == sent[-1]
    arm.answer()
    assert (heard := controller.heard()) is not None
    assert heard.position[0] == sent[-1]
    assert max(np.diff([sent[-1], *steps_of(arm, controller, 6, 0.02)])) <= 0.02 + 1e-9
    assert arm.take_interlock() is Interlock.NONE


@pytest.mark.parametrize("own_clock", [False, True])
def test_after_lost_answers_commands_continue_at_the_last_accepted_one(
    make: MakeArm, *, own_clock: bool
) -> None:
    arm, controller = make(own_clock=own_clock)
    exchange(arm, controller)
    arm.take_interlock()
    taken, number = steps_of(arm, controller, 6, 0.02)[-1], controller.reflected
    for _ in range(3):  # The controller holds there, and reports no later answer.
        steps_of(arm, controller, 1, 0.02)
        controller.reflected = number
    controller.say()
    arm.collect(1.0)
    assert arm.take_interlock() is Interlock.MISSED
    assert arm.anchor[0] == taken
    arm.answer()
    assert (heard := controller.heard()) is not None
    assert heard.position[0] == taken
    steps_of(arm, controller, 3, 0.001)
    assert arm.take_interlock() is Interlock.NONE


def test_a_controller_that_confirms_one_message_later_lacks_no_answer(make: MakeArm) -> None:
    arm, controller = make()
    exchange(arm, controller, session=SessionState.COMMANDING_WAIT)
    arm.take_interlock()
    sent, before = [], 77  # It has received no answer of this client.
    for step in range(8):
        reflected, before = before, controller.reflected
        command = exchange(arm, controller, arm.anchor + 0.01 * (step > 0), reflected=reflected)
        assert command is not None
        sent.append(command.position[0])
        assert arm.take_interlock() is (Interlock.NONE if step else Interlock.ENTERED)
    assert np.diff(sent) == pytest.approx(np.full(7, 0.01))
    exchange(arm, controller, reflected=before - 1)
    assert arm.take_interlock() is Interlock.MISSED


def test_a_stop_within_a_burst_of_messages_is_reported(make: MakeArm) -> None:
    arm, controller = make()
    exchange(arm, controller)
    arm.take_interlock()
    stops: list[tuple[dict[str, Any], Interlock]] = [
        ({"safety": SafetyState.STOP1_ON_PATH}, Interlock.SAFETY),
        ({"session": SessionState.MONITORING_READY, "ipo": ()}, Interlock.MONITORING_READY),
        ({"drives": (DriveState.OFF,) * 7}, Interlock.DRIVES),
        ({"operation": OperationMode.T2}, Interlock.OPERATION_MODE),
    ]
    for changes, bar in stops:
        controller.say(**changes)
        exchange(arm, controller)
        assert arm.take_interlock() is bar
        exchange(arm, controller)
        assert arm.take_interlock() is Interlock.NONE  # It is reported once, and past by then.


def test_an_arm_moved_by_hand_is_a_stop_and_gets_no_command_back(
    make: MakeArm,
) -> None:
    arm, controller = make()
    exchange(arm, controller)
    arm.take_interlock()
    command = exchange(arm, controller, measured=tuple(np.array(PLACE) + 0.4))
    assert arm.take_interlock() is Interlock.TRACKING_ERROR
    assert Interlock.TRACKING_ERROR >= FIRST_STOP
    assert command is not None
    assert command.position == ELSEWHERE
    exchange(arm, controller)
    assert arm.take_interlock() is Interlock.NONE


def test_several_messages_get_one_answer_if_the_controller_expects_it(make: MakeArm) -> None:
    arm, controller = make()
    answers = [exchange(arm, controller, receive_multiplier=3) for _ in range(6)]
    assert [answer is not None for answer in answers] == [False, False, True, False, False, True]
    assert answers[5] is not None
    assert (answers[5].sequence, answers[5].reflected) == (1, 6)


@pytest.mark.parametrize("ratio", [0.995, 1.0, 1.005])
def test_a_path_is_played_in_another_period_without_larger_steps_or_stops(ratio: float) -> None:
    playback, way, given = Playback(np.zeros(2)), [np.zeros(2)], 0
    goes = np.cumsum(
        np.minimum(0.001 * np.arange(700), 0.02)
    )  # Starts gently, then moves at full speed.
    for question in range(1, 600):
        while given <= ratio * question + 0.4 * np.sin(
            7.0 * question
        ):  # Commands come a little irregularly.
            given += 1
            playback.give(np.array([goes[given], -goes[given]]))
        way.append(playback.play())
    steps = np.diff([q[0] for q in way])
    assert steps.max() <= 0.02 + 1e-9
    assert steps[60:].min() >= 0.6 * 0.02
    assert np.allclose(np.array(way)[:, 0], -np.array(way)[:, 1])
    assert 1.0 < playback.backlog < 6.0
    for _ in range(200):
        playback.give(
            np.array([goes[given], -goes[given]])
        )  # When the path comes to rest, the arm behind catches up.
        way.append(playback.play())
    assert playback.backlog < 5.0
    assert way[-1][0] == pytest.approx(goes[given])
    assert np.diff([q[0] for q in way]).max() <= 0.02 + 1e-9


def test_a_silent_arm_accumulates_no_endless_path_at_rest() -> None:
    playback, way = Playback(np.zeros(2)), [np.zeros(2)]
    for point in (*np.linspace(0.0, 0.05, 6), *[0.05] * 1000):
        playback.give(np.full(2, point))
    assert playback.backlog < 12.0
    for _ in range(40):
        way.append(playback.play())
    assert way[-1] == pytest.approx(np.full(2, 0.05))
    assert np.diff(way, axis=0).max() <= 0.01 + 1e-9


def test_where_a_path_ends_in_motion_commands_begin_again(make: MakeArm) -> None:
    arm, controller = make(own_clock=True)
    exchange(arm, controller)
    arm.take_interlock()
    sent = steps_of(arm, controller, 6, 0.02)
    while (command := exchange(arm, controller)) is not None and command.position[0] != sent[-1]:
        sent.append(command.position[0])
    assert arm.take_interlock() is Interlock.MISSED
    assert arm.anchor[0] == sent[-1] == pytest.approx(ELSEWHERE[0] + 0.12)
    assert max(np.diff(sent)) <= 0.02 + 1e-9
    for _ in range(3):
        exchange(arm, controller)
    assert arm.take_interlock() is Interlock.NONE


def test_an_arm_with_its_own_clock_follows_behind_and_begins_again_in_place(
    make: MakeArm,
) -> None:
    arm, controller = make(own_clock=True)
    exchange(arm, controller)
    for step in range(1, 5):
        arm.offer(np.array(ELSEWHERE) + 0.01 * step, 1.0)
    positions = [exchange(arm, controller).position[0] - ELSEWHERE[0] for _ in range(6)]  # type: ignore[union-attr]
    assert np.diff(positions).max() <= 0.01 + 1e-9
    assert positions[-1] == pytest.approx(0.04)
    assert arm.anchor[0] == pytest.approx(ELSEWHERE[0] + 0.04)
    exchange(arm, controller, session=SessionState.MONITORING_READY, ipo=())
    command = exchange(arm, controller)
    assert command is not None
    assert command.position == ELSEWHERE


def test_a_reader_keeps_the_session_alive_and_moves_nothing(make: MakeArm) -> None:
    arm, controller = make(read_only=True)
    exchange(arm, controller)
    command = exchange(arm, controller, np.array(ELSEWHERE) + 0.01)
    assert command is not None
    assert command.position == ELSEWHERE
    assert arm.take_interlock() is Interlock.NONE


def test_a_gripper_is_an_output_and_keeps_what_it_holds_when_the_motion_begins(
    make: MakeArm,
) -> None:
    plan = IoGripper("Close", IoType.ANALOG, "Measured")
    arm, controller = make(gripper=plan.gripper("arm", period_s=PERIOD, read_only=False))
    closed = (IoValue("Measured", IoType.ANALOG, IoDirection.INPUT, 0.2),)
    command = exchange(arm, controller, inputs=closed)
    assert command is not None
    assert command.outputs == ()  # Nothing is written before the first command.
    assert arm.gripper.wanted == 0.2
    command = exchange(arm, controller, np.array(ELSEWHERE), 0.7, inputs=closed)
    assert command is not None
    assert command.outputs == (IoValue("Close", IoType.ANALOG, IoDirection.OUTPUT, 0.7),)
    assert arm.gripper.state.opening == 0.2
    exchange(
        arm, controller, np.zeros(7), 0.9, inputs=closed
    )  # A command that is refused moves no gripper either.
    assert arm.gripper.wanted == 0.7
    neither = (*closed, IoValue("Close", IoType.ANALOG, IoDirection.OUTPUT, 0.6))
    exchange(arm, controller, session=SessionState.MONITORING_READY, ipo=(), inputs=neither)
    command = exchange(arm, controller, inputs=neither)
    assert command is not None
    assert (command.outputs, arm.gripper.wanted) == (
        (),
        0.6,
    )  # A motion begins again with the outputs that the controller reports.
    reader, controller = make(
        gripper=plan.gripper("arm", period_s=PERIOD, read_only=True), read_only=True
    )
    command = exchange(reader, controller, np.array(ELSEWHERE), 0.7, inputs=closed)
    assert command is not None
    assert command.outputs == ()


@pytest.mark.parametrize(
    ("changes", "bar"),
    [
        ({}, Interlock.NONE),
        ({"quality": Quality.FAIR}, Interlock.QUALITY),
        ({"session": SessionState.COMMANDING_WAIT}, Interlock.COMMANDING_WAIT),
        ({"session": SessionState.MONITORING_READY}, Interlock.MONITORING_READY),
        ({"session": SessionState.MONITORING_WAIT}, Interlock.MONITORING_WAIT),
        ({"session": SessionState.IDLE}, Interlock.IDLE),
        ({"command_mode": CommandMode.TORQUE}, Interlock.COMMAND_MODE),
        ({"overlay": Overlay.CARTESIAN}, Interlock.COMMAND_MODE),
        ({"operation": OperationMode.AUT}, Interlock.OPERATION_MODE),
        ({"operation": None}, Interlock.OPERATION_MODE),
        ({"drives": (DriveState.ACTIVE,) * 6 + (DriveState.TRANSITIONING,)}, Interlock.DRIVES),
        ({"drives": ()}, Interlock.DRIVES),
        ({"safety": SafetyState.STOP2, "session": SessionState.IDLE}, Interlock.SAFETY),
        ({"safety": None}, Interlock.SAFETY),
    ],
)
def test_each_obstacle_to_commands_has_its_interlock(
    changes: dict[str, object], bar: Interlock
) -> None:
    assert interlock_of(dataclasses.replace(ACTIVE, **changes), {OperationMode.T1}) is bar  # type: ignore[arg-type]
    assert describe_interlock(bar) != describe_interlock(99) == "unknown state 99"


def test_old_and_duplicate_messages_are_dropped_except_in_a_new_session() -> None:
    version = version_of("1.15")
    inbox = Inbox(version)

    def take(sequence: int, time: int, now: float = 0.0, **changes: object) -> bool:
        message = dataclasses.replace(ACTIVE, sequence=sequence, time=(time, 0), **changes)  # type: ignore[arg-type]
        return inbox.take(message.to_bytes(version), now) is not None

    assert take(10, 100)
    assert not take(10, 100)
    assert not take(9, 99)
    assert take(11, 50)  # A clock that was set back does not matter while the counter continues.
    assert take(1, 51)  # Another session, later by the clock.
    assert not take(0, 40)
    assert take(0, 40, now=0.6)  # After a silence anything is new.
    assert take(2**32 - 1, 60, now=0.6)
    assert take(0, 60, now=0.6)  # The counter wraps around.
    assert (inbox.stale, inbox.broken) == (3, 0)
    assert not take(1, 61, measured=PLACE[:6])
    assert not take(1, 61, measured=(*PLACE[:6], np.nan))
    assert not take(1, 61, ipo=())
    assert not take(1, 61, receive_multiplier=0)
    assert not take(1, 61, external_torque=())
    assert not take(1, 61, external_torque=(*PLACE[:6], np.nan))
    assert not take(1, 61, joints=6)
    assert inbox.broken == 7
    assert "The arm has 6 joints; expected are 7" in inbox.complaint


def test_only_the_controllers_datagrams_are_received() -> None:
    stranger = Controller(source="127.0.0.2")
    link = FriLink(stranger.port, "127.0.0.1")
    link.open()
    try:
        stranger.say()
        assert link.receive() == []
        assert link.strangers == 1
        with pytest.raises(ValueError, match="cannot be opened: Address already in use"):
            FriLink(stranger.port).open()
    finally:
        link.close()
        stranger.close()
    for port in ("30200", "host:", "127.0.0.1:70000", ":1"):
        with pytest.raises(ValueError, match="allowed: address:number"):
            address_of(port)


def test_impossible_arguments_of_a_driver_are_refused() -> None:
    ports = {"arm": "127.0.0.1:30200"}
    for settings, words in (
        ({"version": "3.0"}, "no version of FRI '3.0'"),
        ({"period_s": 0.5}, "a period from 1 to 100 ms"),
        ({"operation_modes": ["T3"]}, "no operation mode 'T3'. Did you mean"),
        ({"controllers": {"amr": "1.2.3.4"}}, "no arm 'amr'. Did you mean 'arm'"),
        (
            {"version": "1.11", "grippers": {"arm": IoGripper("x")}},
            "FRI 1.11 has no inputs and outputs",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            FriDriver(ports, **settings)  # type: ignore[arg-type]


def is_told_at_once(
    driver: FriDriver, monkeypatch: pytest.MonkeyPatch, say: Callable[[], None]
) -> None:
    """Sends messages as soon as the port is open."""
    link = driver._links[0]
    open_port = link.open

    def open_and_hear() -> None:
        open_port()
        say()

    monkeypatch.setattr(link, "open", open_and_hear)


def come_up(driver: FriDriver) -> None:
    driver.connect()
    driver.arm()


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (lambda controller: None, "no controller sends messages"),
        (lambda controller: controller.send(b"hello"), "the datagrams are not FRI 1.15 of an LBR"),
        (
            lambda controller: controller.say(send_period_ms=5),
            "an answer every 5 ms; this driver's period is 10 ms",
        ),
        (
            lambda controller: controller.send(
                dataclasses.replace(ACTIVE, commanded=()).to_bytes(version_of("2.5"))
            ),
            "lack the commanded position, which FRI 1.15 contains. Is the controller's version 2.x",
        ),
        (
            lambda controller: controller.say(session=SessionState.MONITORING_WAIT),
            "arm accepts no commands: the session is MONITORING_WAIT",
        ),
    ],
)
def test_problems_at_connection_are_reported(
    say: Callable[[Controller], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller()
    driver = FriDriver({"arm": controller.port}, connect_timeout_s=0.05, arm_timeout_s=0.05)
    is_told_at_once(driver, monkeypatch, lambda: say(controller))
    with closing(driver), closing(controller), pytest.raises(RobotNotReadyError, match=words):
        come_up(driver)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("2.5", "which FRI 2.5 lacks. Is the controller's version 1.x"),
        (
            "2.7",
            r"the controller sends FRI 1.11 or 1.14 or 1.15 or 1.16.*; this driver's version is "
            r"2.7. Set version",
        ),
    ],
)
def test_a_controller_of_1_x_is_refused_where_2_x_is_set(
    version: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller()
    driver = FriDriver({"arm": controller.port}, version=version, connect_timeout_s=0.05)
    is_told_at_once(driver, monkeypatch, controller.say)
    with closing(driver), closing(controller), pytest.raises(RobotNotReadyError, match=words):
        driver.connect()


@pytest.mark.parametrize("version", ["1.15", "2.5"])
def test_a_controller_of_2_7_is_named_where_an_earlier_version_is_set(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller()
    driver = FriDriver({"arm": controller.port}, version=version, connect_timeout_s=0.05)
    newest = version_of("2.7")
    message = dataclasses.replace(ACTIVE, commanded=()).to_bytes(newest)
    is_told_at_once(driver, monkeypatch, lambda: controller.send(message))
    words = rf"sends FRI 2.7; this driver's version is {version}. Set version"
    with closing(driver), closing(controller), pytest.raises(RobotNotReadyError, match=words):
        driver.connect()


@pytest.mark.parametrize(
    ("changes", "notes"),
    [
        ({}, []),
        (
            {"operation": OperationMode.T2},
            ["arm would be refused commands: its operation mode was changed, or is not allowed."],
        ),
        (
            {"overlay": Overlay.NONE},
            ["arm would be refused commands: its application does not accept joint positions."],
        ),
        (
            {"control": ControlMode.JOINT_IMPEDANCE, "tracking": 0.9},
            ["arm is in JOINT_IMPEDANCE (tracking performance 0.90): it gives way when pushed."],
        ),
    ],
)
def test_a_read_only_driver_reports_why_an_arm_could_not_be_moved(
    changes: dict[str, Any], notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller()
    driver = FriDriver(
        {"arm": controller.port}, connect_timeout_s=0.05, arm_timeout_s=0.05, read_only=True
    )
    open_port = driver._links[0].open

    def open_and_hear() -> None:
        open_port()
        controller.say(**changes)

    monkeypatch.setattr(driver._links[0], "open", open_and_hear)
    with closing(driver), closing(controller):
        come_up(driver)
        assert driver.notes == notes


class VirtualWorld:
    """Two controllers with a simulated time, which passes only while a driver waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.controllers = [Controller(), Controller()]
        self.now, self._due = 0.0, [0.0, 0.4 * PERIOD]
        self.at, self.silent = [np.array(HOME)] * 2, False
        self.path: list[Vector] = []
        for module in (kuka_driver, fri_driver):
            clock = SimpleNamespace(monotonic=lambda: self.now)
            monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(kuka_driver, "select", SimpleNamespace(select=self._wait))

    def _wait(self, *given: Any) -> None:
        due = min(self._due)
        self.now, until = max(self.now, min(due, self.now + given[3])), self.now + given[3]
        if due > until:
            return
        place = self._due.index(due)
        controller, self._due[place] = self.controllers[place], due + PERIOD
        while (command := controller.heard()) is not None:
            self.at[place] = np.array(command.position)
        if place:
            self.path.append(self.at[place])
        elif self.silent:
            return
        measured = tuple(self.at[place].tolist())
        controller.say(measured=measured, commanded=measured, ipo=HOME, external_torque=(0.0,) * 7)


def test_the_second_arm_brakes_on_its_path_when_the_first_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = VirtualWorld(monkeypatch)
    ports = {
        arm: controller.port
        for arm, controller in zip(IIWA14_BIMANUAL.arms, world.controllers, strict=True)
    }
    limits = SafetyLimits.of(
        IIWA14_BIMANUAL, cartesian_speed=None, speed_share=0.25, acceleration=5.0, soft_start_s=0.0
    )
    keeper, target = SafetyFilter(IIWA14_BIMANUAL, limits, PERIOD), IIWA14_BIMANUAL.home.copy()
    target[8] += 2.0
    driver = FriDriver(ports)
    try:
        come_up(driver)
        keeper.start(driver.read(lambda: world.now), 0)
        for cycle in range(90):
            world.silent = cycle >= 30
            driver.write(keeper.step(target, driver.read(lambda: world.now), world.now))
    finally:
        driver.close()
        for controller in world.controllers:
            controller.close()
    assert keeper.mode is Mode.FAULT
    steps = np.diff([position[0] for position in world.path])
    fastest, change = limits.velocity[8] * PERIOD, limits.acceleration[8] * PERIOD**2
    assert steps.max() == pytest.approx(fastest)
    assert np.abs(np.diff(steps)).max() <= CHANGE_SHARE * change + SPEED_SHARE * fastest + 1e-9
    assert steps[-1] == 0.0


def test_only_commands_of_the_filter_are_sent() -> None:
    driver = FriDriver({"arm": "127.0.0.1:30200"})
    with pytest.raises(TypeError, match="Only a SafeCommand"):
        driver.write(np.zeros(8))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="made by the SafetyFilter only"):
        SafeCommand(np.zeros(8), 0, object())
