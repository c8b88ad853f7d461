"""Schunk's WSG over LCM, with real multicast; the far end is the test, or an emulated gripper."""

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import lcm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.real_robot.device_rig import PERIOD
from tests.real_robot.kuka_rig import ANSWER_TIMEOUT_S, KukaRig
from tests.real_robot.lcm_gen import generated
from tests.real_robot.network_namespace import own_network

from stringline import IIWA14, SafetyLimits
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.driver_interface.driver import (
    NOT_ALONE,
    NOT_FOLLOWING,
    STARTED_ANEW,
    RobotNotReadyError,
)
from stringline.real_robot.drivers.fri.fri_driver import FriDriver
from stringline.real_robot.drivers.lcm.drake_messages import SCHUNK_COMMAND, SCHUNK_STATUS
from stringline.real_robot.drivers.lcm.lcm_link import LcmLink
from stringline.real_robot.drivers.lcm.wsg import (
    COMMAND_CHANNEL,
    STATUS_CHANNEL,
    SchunkWsg,
    WsgGripper,
)
from stringline.real_robot.emulators.grippers.emulated_wsg import EmulatedWsg
from stringline.real_robot.emulators.program.emulator_client import EmulatorError, FriEmulator
from stringline.real_robot.safety.reasons import Mode

SERVO = "arm/gripper (SCHUNK_WSG_STATUS)"
URL = "udpm://239.255.76.67:7667?ttl=0"


@pytest.fixture(scope="module", autouse=True)
def network() -> Iterator[None]:
    with own_network():
        yield


class FarEnd:
    """The place of the gripper's driver in the group."""

    def __init__(self) -> None:
        self.link = LcmLink(channels=frozenset({COMMAND_CHANNEL}))
        self.link.open()
        self.utime = 1_000_000_000

    def tell(
        self,
        position_mm: float = 55.0,
        force: float = 0.0,
        speed: float = 0.0,
        later_us: int = 50_000,
    ) -> None:
        self.utime += later_us
        values = {
            "actual_position_mm": position_mm,
            "actual_force": force,
            "actual_speed_mm_per_s": speed,
        }
        self.link.publish(STATUS_CHANNEL, SCHUNK_STATUS.encode({"utime": self.utime, **values}))

    def heard(self) -> list[dict[str, Any]]:
        batches = iter(self.link.receive, [])
        return [
            SCHUNK_COMMAND.decode(message.payload) for messages in batches for message in messages
        ]


@pytest.fixture
def far() -> Iterator[FarEnd]:
    end = FarEnd()
    yield end
    end.link.close()


@pytest.fixture
def other() -> Iterator[FarEnd]:
    end = FarEnd()
    yield end
    end.link.close()


Make = Callable[..., SchunkWsg]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[SchunkWsg] = []

    def build(*, read_only: bool = False, **more: Any) -> SchunkWsg:
        made.append(WsgGripper(**more).gripper("arm", period_s=PERIOD, read_only=read_only))
        made[-1].link.open()
        return made[-1]

    yield build
    for one in made:
        one.close()


def test_millimetres_are_openings_in_both_directions(make: Make, far: FarEnd) -> None:
    gripper = make(closed_mm=7.0, opened_mm=107.0, stroke_mm=100.0, force_n=30.0)
    assert gripper.wanted == 1.0
    far.tell(57.0, force=-12.0, speed=-25.0)
    state = gripper.read()
    assert (state.opening, state.speed, state.force, state.misses, state.error) == (
        0.5,
        -0.25,
        12.0,
        0,
        0,
    )
    assert gripper.wanted == 0.5  # Without a command before, commands continue its position.
    assert far.heard() == []
    for opening in (0.25, 0.0, 1.0):
        gripper.command(opening)
        assert gripper.wanted == opening
    sent = far.heard()
    assert [one["target_position_mm"] for one in sent] == [32.0, 7.0, 100.0]
    assert {one["force"] for one in sent} == {30.0}
    assert np.diff([one["utime"] for one in sent]).min() >= 0
    for position_mm, opening in ((2.0, 0.0), (111.0, 1.0)):
        far.tell(position_mm)
        assert gripper.read().opening == opening


def test_any_command_becomes_a_number_within_the_stroke(make: Make, far: FarEnd) -> None:
    gripper = make(closed_mm=4.0)

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(st.floats())
    def check(opening: float) -> None:
        gripper.command(opening)
        sent = far.heard()
        assert len(sent) == math.isfinite(opening)
        for one in sent:
            assert 4.0 <= one["target_position_mm"] <= 110.0
            assert one["force"] == 40.0

    check()


def test_a_read_only_gripper_is_sent_nothing(make: Make, far: FarEnd) -> None:
    gripper = make(read_only=True)
    for _ in range(100):
        far.tell(30.0)
        gripper.read()
        gripper.command(1.0)
    assert far.heard() == []
    assert gripper.state.opening == pytest.approx(30 / 110)
    assert gripper.state.error == 0  # It was never sent anywhere, so it need not go there.


def test_silence_is_counted_in_periods_of_its_states(make: Make, far: FarEnd) -> None:
    gripper = make()
    far.tell()
    seen = [gripper.read().misses for _ in range(160)]
    assert seen[:7] == [0] * 7
    assert seen.index(3) == 18  # Held after three turns of 50 ms and a half,
    assert seen.index(30) == 153  # and a fault after thirty.
    assert gripper.state.opening == 0.5
    far.tell()
    assert gripper.read().misses == 0


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda far: far.tell(math.nan), "'actual_position_mm': nan"),
        (lambda far: far.tell(force=math.inf), "'actual_force': inf"),
        (lambda far: far.tell(0.11 - 6.0), "It is open by -5.89 mm"),
        (
            lambda far: far.tell(116.0),
            "It is open by 116 mm; by its settings (stroke_mm, opened_mm) that is at most 110 mm.",
        ),
        (
            lambda far: far.link.publish(STATUS_CHANNEL, b"hello"),
            "is not the fingerprint of lcmt_schunk_wsg_status",
        ),
    ],
)
def test_unusable_states_are_dropped_and_count_as_missed(
    make: Make, far: FarEnd, spoil: Callable[[FarEnd], None], words: str
) -> None:
    gripper = make()
    far.tell(44.0)
    gripper.read()
    for _ in range(20):
        spoil(far)
        gripper.read()
    assert (gripper.state.opening, gripper.state.misses, gripper.broken) == (0.4, 3, 20)
    assert words in gripper.complaint


def test_old_states_and_those_of_other_publishers_are_dropped(
    make: Make, far: FarEnd, other: FarEnd, caplog: pytest.LogCaptureFixture
) -> None:
    gripper = make()
    for later_us, position_mm in ((50_000, 11.0), (0, 99.0), (-40_000, 99.0)):
        far.tell(position_mm, later_us=later_us)
    assert (gripper.read().opening, gripper.stale) == (0.1, 2)
    gripper.command(0.9)
    other.tell(99.0)
    assert (gripper.read().opening, gripper.strangers) == (0.1, 1)
    assert f"Another program publishes as {SERVO}" in caplog.text
    assert gripper.wanted == 0.9
    for _ in range(12):
        assert gripper.read().error == 0
    other.tell(33.0)  # The first one is silent, but this is another one.
    assert (gripper.read().opening, gripper.strangers, gripper.state.error) == (0.1, 2, NOT_ALONE)
    far.tell(22.0)
    assert (gripper.read().opening, gripper.stale, gripper.state.misses, gripper.state.error) == (
        0.2,
        2,
        0,
        0,
    )


@pytest.mark.parametrize("clock_set_back", [False, True])
def test_after_a_restart_of_its_driver_only_near_targets_are_sent(
    make: Make, far: FarEnd, other: FarEnd, *, clock_set_back: bool
) -> None:
    gripper, again = make(), far if clock_set_back else other
    far.tell(11.0)
    gripper.read()
    for opening in (0.15, 0.1):
        gripper.command(opening)
    for _ in range(12):
        gripper.read()
    again.tell(33.0, later_us=-2_000_000)
    assert (gripper.read().opening, gripper.wanted, gripper.state.error) == (0.3, 0.3, STARTED_ANEW)
    sent = len(far.heard())
    for _ in range(3):
        gripper.command(0.1)  # The filter does not notice that,
        assert (gripper.wanted, gripper.read().error) == (0.3, STARTED_ANEW)
    assert (sent, far.heard()) == (2, [])
    assert gripper.read().error == 0
    for opening in (0.31, 0.4):  # and begins again there after a reset.
        gripper.command(opening)
    assert [one["target_position_mm"] for one in far.heard()] == pytest.approx([34.1, 44.0])
    assert (gripper.wanted, gripper.read().error) == (0.4, 0)


def test_a_new_connection_keeps_the_target_that_grips_an_object(make: Make, far: FarEnd) -> None:
    """The driver of the gripper has a target of its own, which its states do not tell."""
    gripper = make()
    far.tell(44.0, force=-40.0)
    gripper.read()
    begun = gripper.wanted
    for noise_mm in (0.1, -0.2, 0.0):
        gripper.command(begun)
        far.tell(44.0 + noise_mm, force=-40.0)
        gripper.read()
        assert gripper.wanted == begun == 0.4
    assert far.heard() == []
    for opening in (0.398, 0.39, 0.398, begun):
        gripper.command(opening)
        assert gripper.wanted == opening
    assert [one["target_position_mm"] for one in far.heard()] == pytest.approx(
        [43.78, 42.9, 43.78, 44.0]
    )


@pytest.mark.parametrize(
    ("target", "position_mm", "force", "fails"),
    [
        (0.0, 55.0, 0.0, True),  # Nobody closes it.
        (0.0, 55.0, -38.0, False),  # It holds something.
        (1.0, 55.0, 0.0, True),
        (1.0, 55.0, 38.0, True),  # Something keeps it from opening.
        (0.5, 59.0, 0.0, False),  # It is there.
        (1.0, 109.0, 0.0, False),
    ],
)
def test_a_gripper_that_does_not_follow_its_target_is_an_error(
    make: Make, far: FarEnd, target: float, position_mm: float, force: float, *, fails: bool
) -> None:
    gripper = make(follow_s=0.5)
    patient = make(follow_s=None)
    errors = []
    for _ in range(14):
        far.tell(position_mm, force=force)
        for one in (gripper, patient):
            one.read()
            one.command(target)
        errors.append(gripper.state.error)
    assert errors[:10] == [0] * 10
    assert errors[-1] == (NOT_FOLLOWING if fails else 0)
    assert patient.state.error == 0
    far.tell(position_mm + 2.0, force=force)  # It moves again.
    assert gripper.read().error == 0


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (
            lambda far, other: None,
            (
                f"{SERVO}: no message arrives on SCHUNK_WSG_STATUS of 239.255.76.67:7667 on "
                f"127.0.0.1. Check that the gripper's driver runs"
            ),
        ),
        (
            lambda far, other: far.tell(2000.0),
            "are not usable. It is open by 2000 mm; by its settings",
        ),
        (
            lambda far, other: (far.tell(), other.tell()),
            "more than one gripper publishes on SCHUNK_WSG_STATUS",
        ),
    ],
)
def test_problems_at_connection_are_reported(
    far: FarEnd,
    other: FarEnd,
    say: Callable[[FarEnd, FarEnd], None],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gripper = WsgGripper().gripper("arm", period_s=PERIOD, read_only=False)
    join = gripper.link.open

    def join_and_hear() -> None:
        join()
        say(far, other)

    monkeypatch.setattr(gripper.link, "open", join_and_hear)
    for _ in range(2):  # The second time is like the first.
        problems = gripper.connect(0.05)
        gripper.close()
        assert len(problems) == 1
        assert words in problems[0]
    elsewhere = WsgGripper(interface="192.0.2.1").gripper("arm", period_s=PERIOD, read_only=False)
    assert "cannot be joined on 192.0.2.1" in elsewhere.connect(0.05)[0]


def test_it_exchanges_messages_with_lcms_own_library(make: Make, tmp_path: Path) -> None:
    command, status = generated(
        ["lcmt_schunk_wsg_command", "lcmt_schunk_wsg_status"], tmp_path
    ).values()
    library, heard = lcm.LCM(URL), list[Any]()
    library.subscribe(COMMAND_CHANNEL, lambda channel, data: heard.append(command.decode(data)))
    state = status()
    state.utime = 7
    state.actual_position_mm = 27.5
    state.actual_force = -3.0
    state.actual_speed_mm_per_s = 11.0
    gripper = make()
    library.publish(STATUS_CHANNEL, state.encode())
    for _ in range(100):
        if gripper.read().opening == 0.25:
            break
        library.handle_timeout(5)
    assert (gripper.state.opening, gripper.state.force, gripper.state.speed) == (0.25, 3.0, 0.1)
    gripper.command(0.5)
    for _ in range(100):
        if heard:
            break
        library.handle_timeout(20)
    assert [(one.target_position_mm, one.force) for one in heard] == [(55.0, 40.0)]


class Rig(KukaRig):
    """An arm over FRI with a gripper over LCM."""

    emulator: FriEmulator

    def __init__(self, emulator: FriEmulator, *, read_only: bool = False) -> None:
        self.driver = FriDriver(
            emulator.ports,
            grippers={"arm": WsgGripper(follow_s=0.5)},
            together=True,
            answer_timeout_s=ANSWER_TIMEOUT_S,
            read_only=read_only,
        )
        super().__init__(
            emulator,
            self.driver,
            IIWA14,
            SafetyLimits.of(IIWA14, cartesian_speed=None, soft_start_s=0.0),
        )

    def go(self, opening: float, cycles: int) -> DeviceState:
        target = IIWA14.home.copy()
        target[7] = opening
        self.want(target, 100)
        return self.cycle(cycles)


@pytest.fixture(scope="module")
def emulator(network: None) -> Iterator[FriEmulator]:
    with FriEmulator(
        lock_step=True,
        time_limit_s=1e9,
        gripper={"transport": "wsg_lcm"},
        t1_unlimited=True,
    ) as running:
        yield running


@pytest.fixture
def rig(emulator: FriEmulator) -> Iterator[Rig]:
    with closing(Rig(emulator)) as made:
        yield made


def gripper_report(emulator: FriEmulator) -> Any:
    """Returns the number of received commands, `heard`, and the errors in some, `wrong`."""
    report: Any = emulator._request({"operation": "report"})[0]
    return report["grippers"]["arm"]


def test_fingers_follow_the_filters_commands_and_are_measured(
    rig: Rig, emulator: FriEmulator, far: FarEnd
) -> None:
    assert rig.driver.servos == (f"arm/controller ({emulator.ports['arm']})", SERVO)
    rig.go(0.2, 90)
    assert rig.state.arms.position[7] == pytest.approx(0.2, abs=0.01)
    assert rig.state.mode is Mode.RUN
    sent = np.array([one["target_position_mm"] for one in far.heard()])
    assert len(sent) >= 60
    assert sent[0] > 108.0  # It begins where the fingers are,
    assert (
        np.abs(np.diff(sent)).max() <= 110.0 * rig.limits.velocity[7] * PERIOD + 1e-6
    )  # keeps to the filter's speed,
    assert sent[-1] == pytest.approx(22.0, abs=1e-4)
    rig.go(1.0, 90)
    assert rig.state.arms.position[7] == pytest.approx(1.0, abs=0.01)
    report = gripper_report(emulator)
    assert report["heard"] >= 150
    assert report["wrong"] == []


def test_a_new_world_begins_where_its_fingers_are(rig: Rig) -> None:
    rig.go(0.2, 60)
    assert rig.driver._grippers["arm"].wanted == pytest.approx(0.2)
    rig.new_world(1)
    rig.begin()
    assert rig.state.arms.position[7] == 1.0
    assert rig.cycle().command[7] == 1.0


def test_one_lost_or_damaged_state_changes_nothing(rig: Rig, emulator: FriEmulator) -> None:
    gripper = rig.driver._grippers["arm"]
    assert isinstance(gripper, SchunkWsg)
    for fault, opening in zip(
        ("drop", "late", "duplicate", "reorder", "corrupt", "nan"), (0.2, 0.8) * 3, strict=True
    ):
        rig.go(opening, 8)
        emulator.fault("arm", f"gripper_{fault}")
        for _ in range(20):
            assert rig.cycle().mode is Mode.RUN, fault
        rig.cycle(35)
        assert rig.state.arms.position[7] == pytest.approx(opening, abs=0.01)
    assert gripper.stale == 3  # Those that were late, doubled, or overtaken.
    assert gripper.broken == 2


@pytest.mark.parametrize(("fault", "count", "end"), [("cut", 0, "mend"), ("nan", 45, "free")])
def test_a_silent_gripper_is_a_hold_and_then_a_fault_with_its_name(
    rig: Rig, emulator: FriEmulator, fault: str, count: int, end: str
) -> None:
    rig.go(0.5, 70)
    emulator.fault("arm", f"gripper_{fault}", count)
    assert rig.until(lambda state: state.mode is Mode.HOLD, 25) >= 10
    assert f"a servo does not answer ({SERVO})" in rig.words()
    rig.until(lambda state: state.mode is Mode.FAULT, 160)
    assert f"a servo does not answer ({SERVO})" in rig.words()
    heard = gripper_report(emulator)["heard"]
    rig.cycle(5)  # A driver that is started meanwhile would execute a command at once.
    assert gripper_report(emulator)["heard"] == heard
    emulator.fault("arm", f"gripper_{end}")
    rig.until(lambda state: not state.arms.servo_misses.any(), 100)
    assert rig.state.mode is Mode.FAULT  # Until a reset.
    rig.begin()
    rig.go(0.5, 10)
    assert rig.state.mode is Mode.RUN
    assert rig.state.arms.position[7] == pytest.approx(0.5, abs=0.01)


def test_jammed_fingers_are_a_fault_that_ends_with_its_cause(
    rig: Rig, emulator: FriEmulator
) -> None:
    rig.go(0.8, 40)
    emulator.fault("arm", "gripper_jam")
    rig.go(0.1, 1)
    rig.until(lambda state: state.mode is Mode.FAULT, 130)
    assert f"a servo reports an error ({SERVO}: it does not follow its target)" in rig.words()
    rig.begin()  # A reset has no effect while the cause lasts.
    assert rig.cycle(10).mode is Mode.FAULT
    emulator.fault("arm", "gripper_free")
    rig.cycle(40)
    rig.begin()
    rig.go(0.6, 60)
    assert rig.state.mode is Mode.RUN
    assert rig.state.arms.position[7] == pytest.approx(0.6, abs=0.01)


def test_after_a_restart_of_its_driver_the_fingers_stay_until_a_reset(
    rig: Rig, emulator: FriEmulator, far: FarEnd
) -> None:
    rig.go(0.2, 80)
    emulator.fault("arm", "gripper_restart", 30)
    rig.until(lambda state: state.mode is Mode.FAULT, 50)
    assert (
        f"({SERVO}: its driver program was restarted, and gets no targets until a reset)"
        in rig.words()
    )
    far.heard()
    rig.go(0.2, 40)
    assert far.heard() == []
    assert rig.state.arms.position[7] == pytest.approx(1.0, abs=0.01)
    rig.begin()
    rig.go(0.8, 60)
    assert rig.state.mode is Mode.RUN
    sent = [one["target_position_mm"] for one in far.heard()]
    assert sent[0] > 108.0
    assert np.abs(np.diff(sent)).max() <= 110.0 * rig.limits.velocity[7] * PERIOD + 1e-6
    assert rig.state.arms.position[7] == pytest.approx(0.8, abs=0.01)


def test_a_second_gripper_does_not_replace_a_silent_one(
    rig: Rig, emulator: FriEmulator, other: FarEnd
) -> None:
    rig.go(0.5, 70)
    other.tell(99.0)
    assert rig.cycle(5).mode is Mode.RUN
    emulator.fault("arm", "gripper_cut")
    for _ in range(4):
        other.tell(99.0)
        rig.cycle(5)
    assert rig.state.mode is Mode.FAULT
    assert rig.state.arms.position[7] == pytest.approx(0.5, abs=0.01)
    rig.begin()
    other.tell(99.0)
    assert rig.cycle(2).mode is Mode.FAULT
    other.tell(99.0)
    rig.cycle()
    assert f"({SERVO}: it is silent, and another program answers in its place)" in rig.words()


def test_a_read_only_arm_has_a_read_only_gripper(emulator: FriEmulator) -> None:
    with closing(Rig(emulator, read_only=True)) as rig:
        rig.go(0.0, 30)
        assert gripper_report(emulator)["heard"] == 0
        assert rig.state.arms.position[7] == 1.0


def test_a_silent_gripper_is_refused_before_anything_moves(emulator: FriEmulator) -> None:
    with pytest.raises(EmulatorError, match="no fault of a gripper 'cutt'. Did you mean 'cut'"):
        emulator.fault("arm", "gripper_cutt")
    with pytest.raises(EmulatorError, match="no arm with a gripper 'amr'. Did you mean 'arm'"):
        emulator.fault("amr", "gripper_cut")
    silent = FriDriver(
        emulator.ports,
        grippers={"arm": WsgGripper(status_channel="ELSEWHERE")},
        connect_timeout_s=0.3,
    )
    emulator.begin(0)
    emulator.reboot()
    with pytest.raises(
        RobotNotReadyError, match=r"- arm/gripper \(ELSEWHERE\): no message arrives on ELSEWHERE"
    ):
        silent.connect()


def commanded(position_mm: float, force: float) -> bytes:
    return SCHUNK_COMMAND.encode({"utime": 0, "target_position_mm": position_mm, "force": force})


def test_the_emulated_driver_executes_commands_as_the_real_one() -> None:
    gripper = EmulatedWsg(period_s=PERIOD)
    assert [len(gripper.tick()) for _ in range(10)] == [
        0,
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        0,
        1,
    ]  # A state each 50 ms.
    assert gripper.opening == 1.0

    def obeyed(position_mm: float, force: float) -> float:
        gripper.receive(commanded(110.0 - position_mm, force))  # The newest counts.
        gripper.receive(commanded(position_mm, force))
        for _ in range(5):
            gripper.tick()
        return gripper.opening

    assert obeyed(0.0, 5.0) == 1.0  # Within the dead band of the force nothing happens,
    assert obeyed(0.0, -6.0) == 0.0  # and the sign of the force counts for nothing.
    assert obeyed(200.0, 40.0) == 1.0
    assert gripper.report()["wrong"] == ["a position out of range (2)"]
    gripper.sense(0.5, 0.0, 20.0)
    assert obeyed(0.0, 40.0) == 0.0
    gripper.sense(0.5, 0.0, 40.0)  # It holds something with that force:
    assert obeyed(11.0, 40.0) == 0.0  # further closing is not passed on,
    gripper.sense(0.5, 0.0, 20.0)
    assert obeyed(11.0, 40.0) == pytest.approx(0.1)
    gripper.sense(0.5, 0.0, 40.0)
    assert obeyed(88.0, 40.0) == pytest.approx(0.8)  # but what turns the motion round is.
    states = [SCHUNK_STATUS.decode(data) for _ in range(10) for data in gripper.tick()]
    assert [one["actual_force"] for one in states] == [-40.0] * 2
    gripper.sense(0.5, 0.5, 40.0)
    assert [
        SCHUNK_STATUS.decode(data)["actual_force"] for _ in range(5) for data in gripper.tick()
    ] == [0.0]
    gripper.sense(1.06, 0.0, 20.0)  # An arm rests on the fingers, and the world's stops yield.
    assert [
        SCHUNK_STATUS.decode(data)["actual_position_mm"]
        for _ in range(5)
        for data in gripper.tick()
    ] == [110.0]
    gripper.receive(commanded(math.nan, 200.0))
    gripper.receive(b"hello")
    assert gripper.report() == {
        "heard": 16,
        "wrong": [
            "a position out of range (3)",
            "a force out of range (1)",
            "not a command (1)",
        ],
    }


@pytest.mark.parametrize("ticks", range(5))
def test_an_emulated_gripper_acts_at_the_same_times_of_every_world(ticks: int) -> None:
    gripper = EmulatedWsg(period_s=PERIOD)
    before = [gripper.tick() for _ in range(ticks)]
    gripper.begin()
    messages = [gripper.tick() for _ in range(10)]
    assert [len(data) for data in messages] == [0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    assert not any(before)
