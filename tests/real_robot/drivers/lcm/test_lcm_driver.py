"""LCM over real multicast: the link compared with LCM's library, and the start of the driver."""

import math
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lcm
import numpy as np
import pytest
from tests.real_robot.network_namespace import own_network

from stringline import IIWA14, SafetyFilter, SafetyLimits
from stringline.real_robot.driver_interface.driver import RobotNotReadyError, SafeCommand
from stringline.real_robot.drivers.lcm.drake_messages import (
    IIWA_COMMAND,
    IIWA_STATUS,
    IIWA_STATUS_TELEMETRY,
)
from stringline.real_robot.drivers.lcm.drake_program import ArrivalClock
from stringline.real_robot.drivers.lcm.lcm_driver import LcmDriver
from stringline.real_robot.drivers.lcm.lcm_link import DEFAULT_ADDRESS, LcmLink, LcmMessage

PLACE = tuple(0.1 * index + 0.1 for index in range(7))
ROWS = tuple(member.name for member in IIWA_STATUS.members if member.size)
NOTHING: dict[str, Any] = dict.fromkeys(
    ROWS, (0.0,) * 7
)  # As of an arm whose controller has sent no message.


@pytest.fixture(scope="module", autouse=True)
def network() -> Iterator[None]:
    """Multicast of these tests stays in its own network namespace."""
    with own_network():
        yield


@contextmanager
def opened(**settings: Any) -> Iterator[LcmLink]:
    link = LcmLink(**settings)
    link.open()
    try:
        yield link
    finally:
        link.close()


LONG = bytes(range(256)) * 700


def test_the_library_and_the_link_exchange_short_and_long_messages() -> None:
    theirs = lcm.LCM(f"udpm://{DEFAULT_ADDRESS}?ttl=0&recv_buf_size=2097152")
    heard: list[bytes] = []
    theirs.subscribe("OURS", lambda channel, data: heard.append(bytes(data)))
    with opened(channels=frozenset({"THEIRS", "OURS"})) as link:
        for message in (b"short", b"", LONG, LONG[:-1]):
            assert link.publish("OURS", message)
            assert theirs.handle_timeout(2000) == 1
            assert heard.pop() == message
            theirs.publish("UNWANTED", message)
            theirs.publish("THEIRS", message)
            (own, other) = link.receive()  # Delivered at once on the loopback.
            assert own == LcmMessage("OURS", message, link.own, own.sequence)
            assert (other.channel, other.payload) == ("THEIRS", message)
            assert other.source != link.own
        assert link.broken == 0


def test_messages_stay_on_the_interface_and_its_loss_is_noticed() -> None:
    with opened() as link, opened(interface="127.0.0.2") as elsewhere:
        assert link.publish("A", b"1")
        assert [message.payload for message in link.receive()] == [b"1"]
        assert elsewhere.own[0] == "127.0.0.2"
    link = LcmLink(interface="192.0.2.1")
    with pytest.raises(
        ValueError, match=r"239\.255\.76\.67:7667 cannot be joined on 192\.0\.2\.1: "
    ):
        link.open()
    with opened() as link:
        subprocess.run(["ip", "link", "set", "lo", "down"], check=True, timeout=10)
        try:
            assert not link.publish("A", b"1")
            assert link.lost
        finally:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=10)
            subprocess.run(
                ["ip", "route", "add", "224.0.0.0/4", "dev", "lo"], check=True, timeout=10
            )
        assert link.publish("A", b"2")
        assert not link.lost


class Program:
    """Speaks as drake-iiwa-driver, faster than the clock, in a thread."""

    def __init__(
        self, *, joints: int = 7, step_us: int = 50_000, foreign: bool = False, **rows: Any
    ) -> None:
        self._link, self._stop = LcmLink(), threading.Event()
        self._other = LcmLink()
        self._joints, self._step_us, self._foreign, self._rows = joints, step_us, foreign, rows
        self._utime = 1_000_000
        self._thread = threading.Thread(target=self._speak)

    def _speak(self) -> None:
        while not self._stop.wait(0.002):
            self.tell()

    def tell(self) -> None:
        self._utime += self._step_us
        rows = dict.fromkeys(ROWS, PLACE * (self._joints // 7)) | self._rows
        self._link.publish("IIWA_STATUS", IIWA_STATUS.encode({"utime": self._utime, **rows}))
        times = {"host_utime": 0, "iiwa_utime": self._utime, "estimated_dt_host_minus_iiwa": 0}
        self._link.publish("IIWA_STATUS_TELEMETRY", IIWA_STATUS_TELEMETRY.encode(times))
        if self._foreign:
            self._other.publish(
                "IIWA_COMMAND", IIWA_COMMAND.encode({"utime": 0, "joint_position": PLACE})
            )

    def __enter__(self) -> "Program":
        self._link.open()
        self._other.open()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.be_silent()
        self._link.close()
        self._other.close()

    def be_silent(self) -> None:
        self._stop.set()
        self._thread.join()


MADE: list[LcmDriver] = []


def driver(*names: str, **settings: Any) -> LcmDriver:
    usual: dict[str, Any] = {"period_s": 0.01, "connect_timeout_s": 2.0, "arm_timeout_s": 0.15}
    MADE.append(LcmDriver(dict.fromkeys(names or ("arm",), DEFAULT_ADDRESS), **usual | settings))
    return MADE[-1]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Closes all ports, also after a failed test."""
    yield
    while MADE:
        MADE.pop().close()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Program(joints=14, step_us=10_000),
            "are not a status of 7 joints. A status of 14 joints; expected are 7",
        ),
        (
            lambda: Program(joint_velocity_estimated=(math.inf,) * 7),
            "velocity_estimated is .*; expected are finite numbers",
        ),
        (lambda: Program(step_us=5000), "makes a step every 5 ms; this driver's period is 10 ms"),
        (lambda: Program(step_us=0), "the time of the driver program stands still"),
    ],
)
def test_problems_at_connection_are_reported(make: Callable[[], Program], words: str) -> None:
    arms = driver(connect_timeout_s=0.1)
    with make(), pytest.raises(RobotNotReadyError, match=words):
        arms.connect()


def test_a_silent_group_and_a_missing_network_are_reported() -> None:
    with pytest.raises(
        RobotNotReadyError,
        match="arm on 239.255.76.67:7667 .IIWA_STATUS.: no driver program publishes a status",
    ):
        driver(connect_timeout_s=0.05).connect()
    with pytest.raises(RobotNotReadyError, match=r"cannot be joined on 192\.0\.2\.1"):
        driver(interface="192.0.2.1").connect()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Program(joint_position_ipo=(math.nan,) * 7),
            "its controller is not in a motion that accepts commands",
        ),
        (lambda: Program(**NOTHING), "or has published nothing yet"),
        (
            lambda: Program(foreign=True),
            r"another program commands it, so nothing is sent to it \(127\.0\.0\.1, port \d+\)",
        ),
        (
            lambda: Program(joint_position_commanded=(0.5,) * 7),
            "the arm is far from its commanded position",
        ),
    ],
)
def test_arms_that_take_no_commands_are_not_armed(make: Callable[[], Program], words: str) -> None:
    arms = driver(period_s=0.05)
    with make():
        arms.connect()
        with pytest.raises(RobotNotReadyError, match=f"arm accepts no commands: .*{words}"):
            arms.arm()


def test_an_unsynchronised_or_silent_program_gets_no_commands() -> None:
    arms = driver(arm_timeout_s=0.03)
    with Program(step_us=10_000) as program:
        arms.connect()
        with pytest.raises(
            RobotNotReadyError, match="clock of its driver program is not synchronised"
        ):
            arms.arm()  # For 300 ms of its time nothing may be sent.
        program.be_silent()
        arms._programs[0].inbox.ready_at = 0
        with pytest.raises(
            RobotNotReadyError, match="no status of its driver program has arrived lately"
        ):
            arms.arm()


def test_nothing_is_sent_before_all_arms_of_the_program_have_reported() -> None:
    """Its row would be zeros."""
    arms = driver("left", "right", period_s=0.05)
    wanted: dict[str, Any] = {"left": np.array(PLACE), "right": np.array(PLACE)}
    rows: dict[str, Any] = dict.fromkeys(ROWS, (*PLACE, *[0.0] * 7))
    with Program(joints=14, **rows) as running:
        arms.connect()
        with pytest.raises(RobotNotReadyError, match="right accepts no commands"):
            arms.arm()
        program = arms._programs[0]
        assert program.ready
        assert program.arms[0].in_motion
        program.pending = True
        assert program.command(wanted) == []
        running._rows["joint_position_measured"] = PLACE * 2
        with pytest.raises(RobotNotReadyError, match="right accepts no commands"):
            arms.arm()
        program.pending = True
        assert program.command(wanted) == ["left"]


def test_one_step_gets_at_most_one_command() -> None:
    """The program takes the newest: of two that come between its steps, one would be a jump."""
    arms, safety = (
        driver(period_s=0.05),
        SafetyFilter(IIWA14, SafetyLimits.of(IIWA14, cartesian_speed=None), 0.05),
    )
    program = arms._programs[0]
    assert program._transit_s == pytest.approx(0.025)
    assert (
        driver(period_s=0.05, together=True)._programs[0]._transit_s == 0.0
    )  # In lock-step nothing takes time.
    with Program() as running, opened(channels=frozenset({"IIWA_COMMAND"})) as listener:
        arms.connect()
        arms.arm()
        running.be_silent()
        program._arrivals = None  # This program tells its steps whenever the test wants them.
        safety.start(arms.read(time.monotonic), 0)

        def asked_and_sent(*, transit_s: float, busy: bool = False) -> tuple[bool, int]:
            program._transit_s = transit_s
            state = arms.read(time.monotonic)
            command = safety.step(None, state, state.time)
            if busy:
                running.tell()  # A step that is made while the filter works.
            arms.write(command)
            return bool(state.accepts[0]), len(
                [one for one in listener.receive() if one.source == program.link.own]
            )

        asked_and_sent(transit_s=0.0)
        running.tell()
        # The arm stood for the second step, which the filter did not know.
        assert asked_and_sent(transit_s=0.0, busy=True) == (True, 0)
        assert arms.read(time.monotonic).stands.tolist() == [True]
        # One command from rest for both steps, also if there is a third one now.
        assert asked_and_sent(transit_s=0.0, busy=True) == (True, 1)
        assert asked_and_sent(transit_s=0.0) == (False, 0)
        running.tell()
        assert asked_and_sent(transit_s=math.inf) == (
            False,
            0,
        )  # The step may have been made before the command was there.
        running.tell()
        assert asked_and_sent(transit_s=0.0) == (True, 1)
        assert asked_and_sent(transit_s=0.0, busy=True) == (
            False,
            0,
        )  # When the filter ran, no step was waiting:
        assert asked_and_sent(transit_s=0.0) == (True, 1)  # the next cycle answers.


def test_a_command_too_late_for_the_next_step_is_not_sent_and_the_next_starts_from_rest() -> None:
    arms, safety = (
        driver(period_s=0.05),
        SafetyFilter(IIWA14, SafetyLimits.of(IIWA14, cartesian_speed=None), 0.05),
    )
    program = arms._programs[0]
    program._transit_s = 0.0
    with Program() as running:
        arms.connect()
        arms.arm()
        running.be_silent()
        safety.start(arms.read(time.monotonic), 0)
        running.tell()
        state = arms.read(time.monotonic)
        command = safety.step(None, state, state.time)
        sent = program.arms[0].sent
        time.sleep(0.05)  # The period is over.
        arms.write(command)
        assert program.arms[0].sent == sent
        # The step before was answered.
        program._answered_us, program._answered_s = program._utime, program._arrived_s
        program._steps, program._unbroken = 0, True
        for stands in (False, True):
            running.tell()
            assert arms.read(time.monotonic).stands.tolist() == [stands]


def test_after_silence_nothing_is_sent_until_commands_on_the_way_have_arrived() -> None:
    """The first status after silence may be of a step before the program took the last command.

    A command that begins at what it reports would let the arm jump back.
    """
    arms, safety = (
        driver(period_s=0.05),
        SafetyFilter(IIWA14, SafetyLimits.of(IIWA14, cartesian_speed=None), 0.05),
    )
    program = arms._programs[0]
    with Program() as running, opened(channels=frozenset({"IIWA_COMMAND"})) as listener:
        arms.connect()
        arms.arm()
        running.be_silent()
        program._arrivals = None  # This program tells its steps whenever the test wants them.
        program._transit_s = 0.0
        safety.start(arms.read(time.monotonic), 0)

        def sent() -> list[Any]:
            """Returns the commands of a cycle that begins with a step of the program."""
            running.tell()
            state = arms.read(time.monotonic)
            arms.write(safety.step(None, state, state.time))
            found = [one for one in listener.receive() if one.source == program.link.own]
            return [IIWA_COMMAND.decode(one.payload)["joint_position"] for one in found]

        assert sent()
        program.misses = 10
        assert sent() == []
        moved = (PLACE[0] + 0.004, *PLACE[1:])  # The last command has arrived.
        running._rows["joint_position_commanded"] = moved
        steps = [sent() for _ in range(6)]
        assert steps[0] == []
        (first,) = next(found for found in steps if found)
        assert first == pytest.approx(moved)


def test_ages_are_relative_to_the_fastest_message() -> None:
    clock = ArrivalClock()
    assert clock.age_s(0, 5.0) == math.inf
    for period, delay in enumerate((0.004, 0.001, 0.009)):
        clock.note(10_000 * period, 7.0 + 0.01 * period + delay)
    assert clock.age_s(20_000, 7.02 + 0.009) == pytest.approx(0.008)
    for utime, now in ((90_000_000, 8.0), (40_000, 8.5)):  # The clock of the program was set.
        clock.note(utime, now)
        assert clock.age_s(utime, now + 0.002) == pytest.approx(0.002)


def test_a_message_that_waited_while_this_process_stood_still_is_old() -> None:
    clock = ArrivalClock()
    clock.note(0, 7.0)
    clock.note(10_000, 10.0)  # Another clock could not be distinguished from it.
    assert clock.age_s(10_000, 10.0) == pytest.approx(2.99)
    clock.note(3_010_000, 10.01)
    assert clock.age_s(3_010_000, 10.01) == pytest.approx(0.0)
    clock.note(3_020_000, 20.02)
    clock.clear()  # Another program.
    clock.note(3_030_000, 20.03)
    assert clock.age_s(3_030_000, 20.03) == pytest.approx(0.0)


def test_a_read_only_driver_connects_and_publishes_nothing() -> None:
    arms = driver(read_only=True, period_s=0.05)
    with Program(foreign=True), opened(channels=frozenset({"IIWA_COMMAND"})) as listener:
        arms.connect()
        arms.arm()
        assert arms.notes == [
            "arm would be refused commands: another program commands it, so nothing is sent to it."
        ]
        state = arms.read(lambda: 7.0)
        assert state.time == 7.0
        assert np.allclose(state.position, [*PLACE, 1.0])
        assert state.interlock.tolist() == [0]
        assert arms._programs[0].command({"arm": np.array(PLACE)}) == []
        own = arms._programs[0].link.own
        assert own not in {message.source for message in listener.receive()}


def test_only_commands_of_the_filter_are_sent() -> None:
    arms = driver()
    with pytest.raises(TypeError, match="Only a SafeCommand"):
        arms.write(np.zeros(8))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="made by the SafetyFilter only"):
        SafeCommand(np.zeros(8), 0, object())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"period_s": 0.5}, "a period from 1 to 100 ms"),
        ({"channels": {"amr": {}}}, "no arm 'amr'. Did you mean 'arm'"),
        (
            {"channels": {"arm": {"comand": "X"}}},
            "no channel of a driver program 'comand'. Did you mean 'command'",
        ),
        ({"channels": {"arm": {"command": "IIWA_STATUS"}}}, "must have three names"),
        ({"ttl": 5}, "ttl is 5; allowed: 0"),
    ],
)
def test_impossible_arguments_of_a_driver_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        driver(**settings)


def test_two_programs_share_no_channel() -> None:
    ports = {"left": DEFAULT_ADDRESS, "right": DEFAULT_ADDRESS}
    with pytest.raises(ValueError, match="share the channels IIWA_COMMAND, IIWA_STATUS_TELEMETRY"):
        LcmDriver(ports, channels={"left": {"status": "LEFT_STATUS"}})
    own = {name: f"RIGHT_{name}" for name in ("command", "status", "telemetry")}
    assert LcmDriver(ports, channels={"right": own}).notes == [
        "right is commanded in the cycle of another program and may stutter; use one program for "
        "all arms."
    ]
    assert (
        LcmDriver(ports, channels={"right": own}, together=True).notes
        == LcmDriver(ports).notes
        == []
    )
    assert LcmDriver(ports).servos == tuple(
        f"{arm}/drake-iiwa-driver ({DEFAULT_ADDRESS} IIWA_STATUS)" for arm in ports
    )
