"""Faults over LCM, with multicast, the device process's loop, and an emulated driver program."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.real_robot.device_rig import PERIOD
from tests.real_robot.lcm_rig import LcmRig, emulated
from tests.real_robot.network_namespace import own_network

from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.real_robot.emulators.program.emulator_client import LcmEmulator
from stringline.real_robot.safety.reasons import Mode


@pytest.fixture(scope="module", autouse=True)
def network() -> Iterator[None]:
    """Multicast of these tests stays in its own network namespace."""
    with own_network():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("one")


@pytest.fixture(scope="module")
def emulator(network: None, folder: Path) -> Iterator[LcmEmulator]:
    with emulated(folder) as running:
        yield running


@pytest.fixture
def rig(emulator: LcmEmulator, folder: Path) -> Iterator[LcmRig]:
    with closing(LcmRig(emulator, folder, IIWA14)) as made:
        yield made


def assert_goes_on_from_where_it_stands(rig: LcmRig, old_goal: float, cycles: int = 80) -> None:
    """Waits until the arm accepts commands, resets, and checks the first commands."""
    rig.until(lambda state: state.arms.interlock.max() == 0 and not state.arms.lost.any(), cycles)
    assert rig.state.mode is Mode.FAULT
    rig.cycle(15)  # Commands in a fault, if there are any, are those of an arm at rest.
    before, stands = len(rig.sent()), rig.state.arms.position[:7]
    rig.begin()
    goal = rig.state.arms.position.copy()
    goal[0] -= 0.3
    rig.want(goal)
    rig.until(lambda state: state.mode is Mode.RUN, 2)
    rig.cycle(10)
    path = np.array([row for _, _, row in rig.sent()[before:]])
    assert len(path) >= 10
    assert np.allclose(path[0], stands, atol=4e-3)  # One step from rest.
    assert np.abs(path - stands).max() < 0.08
    assert np.abs(path[:, 0] - old_goal).min() > 0.1
    assert rig.state.mode is Mode.RUN
    assert rig.state.arms.position[0] < stands[0]
    rig.assert_within_limits()


def test_arms_come_up_at_the_measured_pose_and_follow_a_plan(rig: LcmRig) -> None:
    assert rig.driver.servos == (
        f"arm/drake-iiwa-driver ({rig.emulator.ports['arm']} IIWA_STATUS)",
    )
    goal = IIWA14.home.copy()
    goal[0] = 0.1
    rig.want(goal, count=100)
    rig.cycle(80)
    assert np.allclose(rig.sent()[0][2], IIWA14.home[:7], atol=4e-3)  # One step from rest.
    assert np.allclose(rig.state.arms.position, goal, atol=1e-3)
    rig.assert_within_limits()
    report = rig.emulator.report()["arm"]
    assert (report.stops, report.ended, report.state) == ((), "", "COMMANDING_ACTIVE")


ASTRAY = (
    ("drop", ""),
    ("duplicate", "stale"),
    ("reorder", "stale"),
    ("late", "stale"),
    ("corrupt", "link"),
    ("nan", "broken"),
    ("joints", "broken"),
    ("freeze", "frozen"),
    ("command_duplicate", ""),
)


def test_one_lost_or_damaged_message_changes_only_a_counter(rig: LcmRig) -> None:
    rig.moving(by=1.5)
    (program,) = rig.driver._programs
    expected = Counter[str]()
    for fault, counted in ASTRAY:
        before = rig.state.command[0]
        rig.emulator.fault("arm", fault)
        for _ in range(6):
            assert rig.cycle().mode is Mode.RUN, fault
        assert rig.state.command[0] > before
        expected[counted] += 1
        found = {name: getattr(program.inbox, name) for name in ("stale", "broken", "frozen")}
        assert found == {name: expected[name] for name in found}, fault
        assert program.link.broken == expected["link"]
        rig.want(rig.state.command + np.eye(8)[0])
    rig.assert_within_limits()
    assert rig.emulator.report()["arm"].stops == ()


def test_a_few_lost_messages_make_the_arm_hold_and_continue_by_itself(rig: LcmRig) -> None:
    rig.moving()
    rig.emulator.fault("arm", "drop", 4)
    assert rig.until(lambda state: state.mode is Mode.HOLD, 5) <= 4
    assert "a servo does not answer (arm/drake-iiwa-driver" in rig.words()
    rig.until(lambda state: state.mode is Mode.RUN, 4)
    rig.assert_within_limits()
    assert rig.emulator.report()["arm"].stops == ()


@pytest.mark.parametrize("fault", ["command_drop", "command_corrupt", "command_late"])
def test_a_lost_command_is_a_hold_and_the_next_ones_begin_where_the_arm_stands(
    rig: LcmRig, fault: str
) -> None:
    """The controller reports that it lacks the command, and no further one is a jump."""
    rig.moving(by=1.5)
    rig.emulator.fault("arm", fault)
    rig.until(lambda state: state.mode is Mode.HOLD, 4)
    assert "messages or answers were lost" in rig.words()
    sent = len(rig.sent())
    rig.until(lambda state: state.mode is Mode.RUN, 12)
    rig.cycle(10)
    path = np.array([row for _, _, row in rig.sent()[sent - 1 :]])
    largest = rig.limits.acceleration[0] * PERIOD**2
    assert abs(path[1, 0] - path[0, 0]) <= largest + 1e-9, "one step from rest"
    assert path[-1, 0] > path[0, 0] + 10 * largest
    assert rig.state.mode is Mode.RUN


@pytest.mark.parametrize("fault", ["cut", "freeze", "nan", "joints"])
def test_unusable_statuses_are_a_fault_and_then_the_arm_continues_in_place(
    rig: LcmRig, fault: str
) -> None:
    goal = rig.moving()
    rig.emulator.fault("arm", fault, 15)
    assert rig.until(lambda state: state.mode is Mode.HOLD, 5) <= 4
    rig.until(lambda state: state.mode is Mode.FAULT, 12)
    assert "the port of an arm is lost (arm)." in rig.words()
    silent = len(rig.sent())
    rig.cycle(3)
    assert (
        len(rig.sent()) == silent
    )  # A program that is started meanwhile must get no command in its guard time.
    rig.emulator.fault("arm", "mend")
    assert_goes_on_from_where_it_stands(rig, goal)


@pytest.mark.parametrize(
    ("fault", "count", "words"),
    [
        ("backwards", 1, "the time of its driver program has gone backwards"),
        ("push", 20, "the arm is far from its commanded position"),
        ("twin", 1, "two driver programs publish its status"),
        ("foreign", 5, "another program commands it, so nothing is sent to it"),
    ],
)
def test_events_that_need_an_operator_are_a_fault_at_once(
    rig: LcmRig, fault: str, count: int, words: str
) -> None:
    goal, before = rig.moving(), len(rig.sent())
    rig.emulator.fault("arm", fault, count)
    rig.until(lambda state: state.mode is Mode.FAULT, 3)
    assert words in rig.words()
    if fault == "foreign":
        before = len(rig.sent())
        rig.cycle(30)
        assert len(rig.sent()) == before
        rig.begin()  # A reset has no effect while the cause lasts.
        assert rig.cycle().mode is Mode.FAULT
    else:
        rig.cycle(22)
        rig.assert_gentle(before - 3)  # It brakes on its path.
    assert_goes_on_from_where_it_stands(rig, goal)


def test_a_motion_that_restarts_in_another_period_is_not_followed(rig: LcmRig) -> None:
    rig.moving()
    for fault, count in (("leave", 0), ("period", 5), ("restart", 0)):
        rig.emulator.fault("arm", fault, count)
    rig.cycle(40)
    assert (
        "its controller expects commands in another period than is configured here" in rig.words()
    )
    before = len(rig.sent())
    rig.begin()  # A reset has no effect while the cause lasts.
    rig.want(rig.state.command + 0.3)
    assert rig.cycle(20).mode is Mode.FAULT
    assert np.ptp([row for _, _, row in rig.sent()[before:]], axis=0).max() < 1e-9
    rig.emulator.fault("arm", "period", 10)
    rig.cycle(5)
    rig.begin()
    rig.moving()
    assert rig.state.mode is Mode.RUN


def test_zeros_are_not_taken_for_a_commanded_position(rig: LcmRig) -> None:
    rig.moving()
    for fault, count in (("leave", 0), ("zeros", 60), ("restart", 0)):
        rig.emulator.fault("arm", fault, count)
    rig.cycle(30)
    before = len(rig.sent())
    rig.begin()
    assert rig.cycle(20).mode is Mode.FAULT
    assert "its controller is not in a motion that accepts commands" in rig.words()
    assert len(rig.sent()) == before
    assert np.abs([row[3] for _, _, row in rig.sent()]).min() > 1.0


def test_a_load_ends_the_program_which_is_a_fault(rig: LcmRig) -> None:
    goal = rig.moving()
    rig.emulator.fault("arm", "load", 61)
    rig.until(lambda state: state.mode is Mode.FAULT, 14)
    assert "the port of an arm is lost (arm)." in rig.words()
    assert rig.emulator.report()["arm"].ended == "arm is in an unsafe state"
    rig.emulator.fault("arm", "load", 0)
    rig.emulator.fault("arm", "revive")
    assert_goes_on_from_where_it_stands(rig, goal, 120)


def test_a_restarted_program_gets_no_command_within_its_guard_time(rig: LcmRig) -> None:
    goal = rig.moving()
    rig.emulator.fault("arm", "crash")
    rig.until(lambda state: state.mode is Mode.FAULT, 14)
    rig.cycle(10)
    rig.emulator.fault("arm", "revive")
    rig.until(lambda state: not state.arms.lost.any(), 5)
    assert "its driver program" in rig.words()
    assert_goes_on_from_where_it_stands(rig, goal, 120)
    assert rig.emulator.report()["arm"].ended == ""


def test_after_a_stop_the_program_ignores_commands_which_is_noticed_until_its_restart(
    rig: LcmRig,
) -> None:
    goal = rig.moving()
    rig.emulator.fault("arm", "stop")
    rig.until(lambda state: state.mode is Mode.FAULT, 3)
    assert "its controller is not in a motion that accepts commands" in rig.words()
    rig.begin()  # A reset has no effect while the cause lasts.
    assert rig.cycle().mode is Mode.FAULT
    rig.emulator.fault("arm", "release")
    rig.until(lambda state: state.arms.interlock.max() == 0, 80)
    rig.cycle(8)  # That the controller still waits for its client cannot be seen.
    assert rig.emulator.report()["arm"].inhibited
    rig.begin()
    rig.moving()
    rig.until(lambda state: state.mode is Mode.FAULT, 40)
    assert "its driver program does not follow commands" in rig.words()
    for event in ("crash", "revive"):
        rig.emulator.fault("arm", event)
        rig.cycle(15)
    assert_goes_on_from_where_it_stands(rig, goal, 120)


def test_lost_commands_are_noticed_by_the_motion_of_the_arm(rig: LcmRig) -> None:
    goal = rig.moving()
    rig.emulator.fault("arm", "command_drop", 30)
    rig.until(lambda state: state.mode is Mode.FAULT, 25)
    assert "its driver program does not follow commands" in rig.words()
    rig.cycle(30)
    assert_goes_on_from_where_it_stands(rig, goal)
    assert rig.emulator.report()["arm"].stops == ()


@pytest.mark.parametrize("prefixes", ["IIWA", "LEFT,RIGHT"])
def test_two_arms_of_one_program_or_of_two(network: None, tmp_path: Path, prefixes: str) -> None:
    several = prefixes.split(",")
    names = ("command", "status", "telemetry")
    channels = {
        arm: dict(
            zip(
                names,
                (f"{prefix}_COMMAND", f"{prefix}_STATUS", f"{prefix}_STATUS_TELEMETRY"),
                strict=True,
            )
        )
        for arm, prefix in zip(IIWA14_BIMANUAL.arms, several * (3 - len(several)), strict=False)
    }
    with ExitStack() as stack:
        emulator = stack.enter_context(emulated(tmp_path, arms="two", prefixes=prefixes))
        rig = stack.enter_context(
            closing(LcmRig(emulator, tmp_path, IIWA14_BIMANUAL, channels=channels))
        )
        goal = IIWA14_BIMANUAL.home.copy()
        goal[[0, 8]] += 0.5
        rig.want(goal)
        rig.cycle(20)
        emulator.fault("right", "stop")
        rig.until(lambda state: state.mode is Mode.FAULT, 3)
        assert "(right: its controller is not in a motion" in rig.words()
        rig.cycle(15)
        left = rig.state.command[0]
        assert left > rig.state.command[8]
        assert rig.cycle().command[0] == left  # It has come to rest.
        assert {len(row) for _, _, row in rig.sent(several[0])} == {14 // len(several)}
        rig.assert_within_limits(several[0])
        assert {arm: report.stops for arm, report in emulator.report().items()} == {
            "left": (),
            "right": ("by script",),
        }


FAULTS = (
    "drop",
    "late",
    "duplicate",
    "reorder",
    "corrupt",
    "nan",
    "joints",
    "freeze",
    "backwards",
    "push",
    "twin",
    "foreign",
)
STEP = st.tuples(
    st.sampled_from(("plan", "plan", "jumps", "wait", "begin", "stop", *FAULTS)),
    st.integers(0, 2**32 - 1),
    st.integers(1, 12),
)


@pytest.mark.slow
def test_under_any_faults_commands_stay_within_the_limits_and_cause_no_stop(
    rig: LcmRig,
) -> None:
    moved = []

    @settings(
        max_examples=8,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(st.lists(STEP, min_size=3, max_size=8))
    def play(steps: list[tuple[str, int, int]]) -> None:
        rig.rest()
        rig.new_world()
        rig.begin()
        rig.cycle(2)
        for kind, number, cycles in steps:
            random = np.random.default_rng(number)
            if kind in (*FAULTS, "stop"):
                rig.emulator.fault("arm", kind, cycles)
                rig.emulator.fault("arm", "release")
            elif kind == "begin":
                rig.rest()
                rig.begin()
            elif kind != "wait":
                spread = 9.0 if kind == "jumps" else 0.5
                rig.want((IIWA14.home + random.uniform(-spread, spread, 8)).astype(np.float64))
            rig.cycle(cycles)
        rig.cycle(20)
        moved.append(np.ptp([row for _, _, row in rig.sent()], axis=0).max())

    play()
    rig.assert_within_limits()
    report = rig.emulator.report()["arm"]
    assert set(report.stops) <= {"by script"}
    assert report.ended == ""
    assert max(moved) > 0.1
