"""Faults over FRI, with real datagrams, the device process's loop, and an emulated controller."""

import dataclasses
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.real_robot.device_rig import PERIOD
from tests.real_robot.kuka_rig import ANSWER_TIMEOUT_S, KukaRig

from stringline import IIWA14, IIWA14_BIMANUAL, Embodiment, SafetyLimits
from stringline.real_robot.device.device_state import state_layout
from stringline.real_robot.driver_interface.interlocks import Interlock
from stringline.real_robot.drivers.fri.controller_io import IoGripper
from stringline.real_robot.drivers.fri.fri_driver import FriDriver
from stringline.real_robot.drivers.fri.messages import Command, Monitoring
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.emulators.fri.controller import GRIPPER_INPUT, GRIPPER_OUTPUT
from stringline.real_robot.emulators.program.arm_check import FriLine, axis_check
from stringline.real_robot.emulators.program.capture_file import captured_in
from stringline.real_robot.emulators.program.emulator_client import EmulatorError, FriEmulator
from stringline.real_robot.incidents.incident_log import Incident, IncidentLog
from stringline.real_robot.incidents.incident_records import Entry, Kind, Ring, ring_memory, scan
from stringline.real_robot.replay.incident_replay import FriReplayLine, replay
from stringline.real_robot.safety.reasons import Mode, Reason

Vector = NDArray[np.float64]

VERSION = version_of("1.15")
GRIPPER = IoGripper(GRIPPER_OUTPUT, feedback=GRIPPER_INPUT)


class FriRig(KukaRig):
    """Arms over FRI with grippers at the controllers' outputs; `folder` is that of the capture."""

    emulator: FriEmulator

    def __init__(
        self,
        emulator: FriEmulator,
        folder: Path,
        body: Embodiment,
        *,
        logged: bool = False,
        cartesian_speed: float | None = None,
    ) -> None:
        self._folder = folder
        grippers = dict.fromkeys(body.arms, GRIPPER)
        self.driver = FriDriver(
            emulator.ports, grippers=grippers, together=True, answer_timeout_s=ANSWER_TIMEOUT_S
        )
        log = None
        if logged:
            self._ring, joints = (
                ring_memory(1 << 21),
                len(body.joints),
            )
            log = IncidentLog(
                self._ring, state_layout(joints, len(self.driver.servos), len(body.arms)), joints
            )
            self.driver.listen([log.tap(place) for place in range(len(body.arms))])
        super().__init__(
            emulator,
            self.driver,
            body,
            SafetyLimits.of(
                body, cartesian_speed=cartesian_speed, soft_start_s=0.0, acceleration=30.0
            ),
            log,
        )

    def log(self) -> list[Entry]:
        """Returns the events so far."""
        return [entry for entry in scan(Ring(self._ring).read(0)[0]) if isinstance(entry, Entry)]

    def captured(self, arm: str) -> Path:
        """Returns the file of what arrived at a controller."""
        return self._folder / f"{arm}.bin"

    def segments(self, arm: str = "arm") -> list[tuple[Vector, Vector]]:
        """Returns periods (T,) and positions (T, 7) of the accepted commands, a pair per motion."""
        found: list[list[tuple[int, tuple[float, ...]]]] = [[]]
        for one in captured_in(self.captured(arm).read_bytes()):
            if one.active and one.taken:
                found[-1].append((one.period, Command.of(VERSION, one.data).position))
            elif not one.active and found[-1]:
                found.append([])
        parts = [part for part in found if part]
        return [
            (np.array([period for period, _ in part]), np.array([q for _, q in part]))
            for part in parts
        ]

    def assert_within_limits(self) -> None:
        """Checks all accepted commands against the limits, whatever the faults of datagrams.

        However long an arm was without a command, the next is one of a single period, and one from
        rest.
        """
        for index, arm in enumerate(self.body.arms):
            joints, segments = slice(8 * index, 8 * index + 7), self.segments(arm)
            for periods, path in segments:
                assert np.isfinite(path).all()
                assert (path >= self.limits.lower[joints] - 1e-9).all()
                assert (path <= self.limits.upper[joints] + 1e-9).all()
                assert (np.diff(periods) > 0).all()
                steps = np.diff(path, axis=0)
                before = np.concatenate([np.zeros((1, 7)), steps])[:-1]
                before[np.diff(periods) > 1] = 0.0
                assert (np.abs(steps) <= self.limits.velocity[joints] * PERIOD + 1e-9).all()
                assert (
                    np.abs(steps - before) <= self.limits.acceleration[joints] * PERIOD**2 + 1e-9
                ).all()
            check = axis_check(self.body, arm, self.limits, PERIOD)
            FriLine(self.captured(arm), VERSION, check).take(0)
            assert check.violations == 0
            assert check.goals == sum(len(path) for _, path in segments)


def emulated(folder: Path, arms: str = "one") -> FriEmulator:
    return FriEmulator(
        arms=arms, lock_step=True, time_limit_s=1e9, capture=folder, t1_unlimited=True
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("one")


@pytest.fixture(scope="module")
def emulator(folder: Path) -> Iterator[FriEmulator]:
    with emulated(folder) as running:
        yield running


@pytest.fixture
def rig(emulator: FriEmulator, folder: Path) -> Iterator[FriRig]:
    with closing(FriRig(emulator, folder, IIWA14)) as made:
        yield made


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[FriRig]:
    with (
        emulated(tmp_path, "two") as running,
        closing(FriRig(running, tmp_path, IIWA14_BIMANUAL)) as made,
    ):
        yield made


def assert_goes_on_from_where_it_stands(rig: FriRig, old_goal: float) -> None:
    """Waits until the controller accepts commands, resets, and checks the first commands."""
    before = len(rig.segments())
    rig.until(lambda state: state.arms.interlock.max() == 0 and not state.arms.lost.any(), 80)
    assert rig.state.mode is Mode.FAULT
    stands = rig.state.arms.position[:7]
    rig.begin()
    goal = rig.state.arms.position.copy()
    goal[0] -= 0.3
    rig.want(goal)
    rig.until(lambda state: state.mode is Mode.RUN, 2)
    rig.cycle(5)
    paths = [path for _, path in rig.segments()[before:]]
    assert len(paths) == 1
    assert np.allclose(paths[0][0], stands, atol=1e-9)
    assert np.abs(paths[0] - stands).max() < 0.08
    assert np.abs(paths[0][:, 0] - old_goal).min() > 0.1
    assert rig.state.command[0] < stands[0]
    rig.assert_within_limits()


def test_arms_come_up_at_the_measured_pose_and_follow_a_plan_with_their_gripper(
    rig: FriRig,
) -> None:
    goal = IIWA14.home.copy()
    goal[[0, 7]] = 0.2, 0.0
    first = [Command.of(VERSION, one.data) for one in captured_in(rig.captured("arm").read_bytes())]
    assert all(np.allclose(command.position, IIWA14.home[:7]) for command in first)
    rig.want(goal, count=100)
    rig.cycle(120)
    assert np.allclose(rig.state.arms.position, goal, atol=1e-3)
    rig.assert_within_limits()
    assert rig.emulator.report()["arm"].stops == ()


@pytest.mark.parametrize("arms", ["one", "two"])
def test_in_t1_only_arms_with_a_limit_of_speed_are_not_stopped(tmp_path: Path, arms: str) -> None:
    """The speed that `configs/robot/kuka.yaml` allows; the second arm may be 1 % faster."""
    body = {"one": IIWA14, "two": IIWA14_BIMANUAL}[arms]
    goal = body.home.copy()
    goal[[revolute[0] for revolute in body.revolute_joints.values()]] += 0.3
    with FriEmulator(arms=arms, lock_step=True, time_limit_s=1e9, capture=tmp_path) as emulator:
        with closing(FriRig(emulator, tmp_path, body, cartesian_speed=0.24)) as rig:
            rig.want(goal, count=100)
            rig.cycle(100)
            assert np.allclose(rig.state.arms.position, goal, atol=5e-3)
            assert all(report.stops == () for report in emulator.report().values())
        with closing(FriRig(emulator, tmp_path, body)) as rig:
            rig.want(goal, count=100)
            rig.until(lambda state: state.mode is Mode.FAULT, 100)
            assert rig.state.fault_reasons == Reason.STOPPED
            assert rig.state.arms.interlock.max() == Interlock.SAFETY
            (stop, *_) = emulator.report()[body.arms[0]].stops
            assert stop.startswith("the gripper was to move at 0.")
            assert stop.endswith("T1: 0.25")


@pytest.mark.parametrize(
    "fault", ["drop", "duplicate", "reorder", "corrupt", "late", "answer_drop", "answer_duplicate"]
)
def test_after_one_lost_or_damaged_datagram_the_arm_continues_in_place(
    rig: FriRig, fault: str
) -> None:
    rig.moving()
    before = rig.state.command[0]
    rig.emulator.fault("arm", fault)
    seen = [rig.cycle() for _ in range(8)]
    held = [int(state.arms.interlock.max()) for state in seen if state.mode is not Mode.RUN]
    assert held == ([] if "duplicate" in fault else [Interlock.MISSED])
    assert rig.state.command[0] > before
    inbox = rig.driver._arms[0].inbox
    assert inbox.stale == (fault in ("duplicate", "reorder", "late"))
    assert inbox.broken == (fault == "corrupt")
    rig.assert_within_limits()
    assert rig.emulator.report()["arm"].stops == ()


def test_a_few_lost_messages_make_the_arm_hold_and_continue_by_itself(rig: FriRig) -> None:
    rig.moving()
    rig.emulator.fault("arm", "drop", 4)
    assert rig.until(lambda state: state.mode is Mode.HOLD, 5) <= 4
    assert "a servo does not answer (arm/controller" in rig.words()
    rig.until(lambda state: state.mode is Mode.RUN, 4)
    rig.cycle(5)
    rig.assert_within_limits()
    assert rig.emulator.report()["arm"].stops == ()


def test_the_motion_of_lost_answers_is_not_made_up_for(rig: FriRig) -> None:
    rig.moving()
    moving = (
        len(rig.segments()[-1][0]) - 3
    )  # The world's beginning, before that, may be a gap as well.
    rig.emulator.fault("arm", "answer_drop", 3)
    rig.cycle(12)
    periods, path = (taken[moving:] for taken in rig.segments()[-1])
    (gap,) = np.flatnonzero(np.diff(periods) > 1)
    assert periods[gap + 1] - periods[gap] == 4
    assert path[gap, 0] - path[gap - 1, 0] > 0.01
    assert np.array_equal(path[gap + 1], path[gap])
    assert path[-1, 0] > path[gap, 0]
    rig.assert_within_limits()


def test_a_motion_that_restarts_within_one_burst_of_messages_is_a_fault(
    rig: FriRig,
) -> None:
    rig.moving()
    rig.new_world()  # It ends the motions of all arms, which begin again.
    assert rig.cycle().mode is Mode.FAULT
    assert "the session is MONITORING_READY" in rig.words()
    rig.rest()
    rig.new_world()
    rig.begin()  # What happened before an episode is not held against it.
    rig.moving(by=-0.8)
    assert rig.state.mode is Mode.RUN


def test_events_at_the_beginning_of_an_episode_are_checked_in_it(rig: FriRig) -> None:
    rig.moving()
    rig.emulator.fault("arm", "t2")
    rig.until(lambda state: state.mode is Mode.FAULT, 2)
    rig.emulator.fault("arm", "t1")
    rig.until(lambda state: not state.arms.interlock.any(), 3)
    rig.rest()
    for acknowledged, kept in ((Reason(0), Reason.STOPPED), (Reason.STOPPED, Reason(0))):
        rig.loop.begin(rig.session, rig.clock, acknowledged)
        assert rig.state.fault_reasons == kept
        assert (rig.state.cause is None) == (kept == Reason(0))
    rig.cycle()
    # Ends the motion, which is reported once, while the next episode begins.
    rig.new_world()
    rig.loop.begin(rig.session, rig.clock, Reason(0))
    assert rig.state.mode is not Mode.FAULT
    assert rig.cycle().mode is Mode.FAULT
    assert rig.state.cause is not None
    assert rig.state.cause.interlock.tolist() == [Interlock.MONITORING_READY]


def test_a_pulled_cable_is_a_fault_and_then_the_arm_continues_in_place(
    rig: FriRig,
) -> None:
    goal = rig.moving()
    rig.emulator.fault("arm", "cut")
    assert rig.until(lambda state: state.mode is Mode.HOLD, 5) <= 4
    rig.until(lambda state: state.mode is Mode.FAULT, 12)
    assert "the port of an arm is lost (arm)." in rig.words()
    rig.cycle(5)
    rig.emulator.fault("arm", "mend")
    assert_goes_on_from_where_it_stands(rig, goal)


@pytest.mark.parametrize("fault", ["answer_drop", "answer_late", "answer_corrupt"])
def test_late_answers_end_the_session_which_is_a_fault(rig: FriRig, fault: str) -> None:
    goal = rig.moving()
    rig.emulator.fault("arm", fault, 8)
    rig.until(lambda state: state.mode is Mode.FAULT, 10)
    assert (
        "a controller has stopped its arm, or does not release it (arm: the session is "
        "MONITORING_WAIT"
    ) in rig.words()
    assert_goes_on_from_where_it_stands(rig, goal)


@pytest.mark.parametrize(
    ("fault", "end", "words"),
    [
        ("stop", "release", "its safety controller has stopped it"),
        ("leave", "restart", "the session is MONITORING_READY"),
        ("t2", "t1", "its operation mode was changed, or is not allowed"),
    ],
)
def test_a_stop_is_a_fault_at_once_and_then_the_arm_continues_in_place(
    rig: FriRig, fault: str, end: str, words: str
) -> None:
    goal = rig.moving()
    rig.emulator.fault("arm", fault)
    rig.until(lambda state: state.mode is Mode.FAULT, 2)
    assert words in rig.words()
    rig.cycle(15)
    assert rig.state.mode is Mode.FAULT
    rig.begin()  # A reset has no effect while the cause lasts.
    assert rig.cycle().mode is Mode.FAULT
    rig.emulator.fault("arm", end)
    if fault != "t2":  # That alone does not end the motion.
        assert_goes_on_from_where_it_stands(rig, goal)


def test_a_controller_that_was_switched_off_and_on_is_a_fault_and_gets_no_old_goal(
    rig: FriRig,
) -> None:
    """It has forgotten session, counters, period, mode and outputs."""
    goal = rig.moving()
    rig.emulator.fault("arm", "period", 10)
    rig.emulator.fault("arm", "power")
    rig.until(lambda state: state.mode is Mode.FAULT, 3)
    rig.cycle(5)
    assert rig.state.mode is Mode.FAULT
    assert_goes_on_from_where_it_stands(rig, goal)


def test_a_motion_that_restarts_in_another_period_is_not_followed(rig: FriRig) -> None:
    rig.moving()
    for fault, count in (("leave", 0), ("period", 5), ("restart", 0)):
        rig.emulator.fault("arm", fault, count)
    rig.cycle(40)
    assert (
        "its controller expects commands in another period than is configured here" in rig.words()
    )
    rig.begin()  # A reset has no effect while the cause lasts.
    rig.want(rig.state.command + 0.3)
    assert rig.cycle(20).mode is Mode.FAULT
    assert np.ptp(rig.segments()[-1][1], axis=0).max() < 1e-9
    rig.emulator.fault("arm", "period", 10)
    rig.cycle(2)
    rig.begin()
    rig.moving()
    rig.assert_within_limits()


def test_a_load_that_lasts_makes_the_arm_hold_and_is_a_fault(rig: FriRig) -> None:
    rig.moving()
    rig.emulator.fault("arm", "load", 400)
    assert rig.until(lambda state: state.mode is Mode.HOLD, 35) >= 30
    assert "a joint was overloaded for too long" in rig.words()
    assert rig.until(lambda state: state.mode is Mode.FAULT, 130) >= 110
    rig.emulator.fault("arm", "load", 0)
    rig.cycle()
    rig.begin()
    rig.moving(by=-0.8)
    rig.assert_within_limits()


def test_the_other_arm_brakes_on_its_path_when_one_is_stopped(pair: FriRig) -> None:
    goal = IIWA14_BIMANUAL.home.copy()
    goal[[0, 8]] += 0.5
    pair.want(goal)
    pair.cycle(8)
    pair.emulator.fault("right", "stop")
    pair.until(lambda state: state.mode is Mode.FAULT, 2)
    assert "(right: its safety controller has stopped it)" in pair.words()
    pair.cycle(15)
    left = pair.state.command[0]
    assert left > pair.state.command[8]
    assert pair.cycle().command[0] == left
    pair.assert_within_limits()
    assert {arm: report.stops for arm, report in pair.emulator.report().items()} == {
        "left": (),
        "right": ("by script",),
    }


ASTRAY = (
    "drop",
    "late",
    "duplicate",
    "reorder",
    "corrupt",
    "answer_drop",
    "answer_late",
    "answer_reorder",
    "answer_corrupt",
)
# Goal, fault and its count, and number of cycles.
STEP = st.tuples(
    st.sampled_from(("near", "near", "far", "nowhere", "begin")),
    st.sampled_from((*ASTRAY, *ASTRAY, "nothing", "leave", "stop")),
    st.integers(1, 5),
    st.integers(1, 16),
)


def recover(rig: FriRig) -> None:
    """Resets faults as an operator does, until there are no more."""
    for event in ("release", "restart"):
        rig.emulator.fault("arm", event)
    rig.rest()
    for _ in range(3):
        rig.until(
            lambda state: (
                not (
                    state.arms.interlock.any()
                    or state.arms.lost.any()
                    or state.arms.servo_misses.any()
                )
            ),
            150,
        )
    rig.begin()


@pytest.mark.slow
def test_under_any_faults_commands_stay_within_the_limits_and_cause_no_stop(
    rig: FriRig,
) -> None:
    gaps = []

    @settings(
        max_examples=12,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(st.lists(STEP, min_size=3, max_size=8), st.randoms(use_true_random=False))
    def play(steps: list[tuple[str, str, int, int]], draw: random.Random) -> None:
        recover(rig)
        for where, fault, count, cycles in steps:
            spread = {"near": 0.5, "far": 9.0}.get(where)
            if spread is not None:
                rig.want(IIWA14.home + np.array([draw.uniform(-spread, spread) for _ in range(8)]))
            if where == "begin":
                rig.rest()
                rig.begin()
            rig.cycle(6)
            if fault != "nothing":
                rig.emulator.fault("arm", fault, count)
            if rig.cycle(cycles).mode is Mode.FAULT and count % 2:
                recover(rig)

    play()
    rig.assert_within_limits()
    assert set(rig.emulator.report()["arm"].stops) <= {"by script"}
    for periods, path in rig.segments():
        moves = np.abs(np.diff(path, axis=0)).max(axis=1, initial=0.0)
        gaps += [at for at in np.flatnonzero(np.diff(periods) > 1) if at and moves[at - 1] > 0.005]
    assert len(gaps) > 10  # Arms in full motion were often left without an answer.


def test_a_replayed_log_gives_the_same_answers_byte_for_byte(
    emulator: FriEmulator, folder: Path
) -> None:
    with closing(FriRig(emulator, folder, IIWA14, logged=True)) as rig:
        rig.moving()
        rig.cycle(10)
    recorded = rig.log()
    emulator.begin(0)
    result = replay(Incident(recorded, []), emulator, seed=0)
    assert result.difference == ""
    sizes = {
        kind: sum(len(entry.payload) for entry in recorded if entry.kind == kind)
        for kind in (Kind.SENT, Kind.RECEIVED)
    }
    assert (result.sent, result.equal) == (sizes[Kind.SENT], sizes[Kind.RECEIVED])
    assert sum(entry.kind == Kind.CYCLE for entry in recorded) > 15
    place = [at for at, entry in enumerate(recorded) if entry.kind == Kind.RECEIVED][-3]
    entry = recorded[place]
    recorded[place] = dataclasses.replace(
        entry, payload=entry.payload[:-1] + bytes([entry.payload[-1] ^ 1])
    )
    emulator.begin(0)
    result = replay(Incident(recorded, []), emulator, seed=0)
    assert (
        f"arm, record {entry.number}, byte {len(entry.payload) - 1} of {len(entry.payload)}: got "
        in result.difference
    )


def test_a_log_that_does_not_reach_back_to_the_opening_of_the_ports_is_not_replayed(
    emulator: FriEmulator,
) -> None:
    far = Monitoring(sequence=200_000).to_bytes(VERSION)
    with pytest.raises(
        ValueError,
        match="arm: the log begins with message 200000; it must begin with the opening of",
    ):
        replay(Incident([Entry(Kind.RECEIVED, 0, 1, 0, far)], []), emulator)
    with pytest.raises(
        ValueError, match="go to emulators only; 192.170.10.1:30200 is not on 127.0.0.1"
    ):
        FriReplayLine("arm", "192.170.10.1:30200", lambda: None)


def test_a_controller_advances_by_nudges_except_in_an_episode(
    emulator: FriEmulator,
) -> None:
    emulator.reboot(patient=True)
    for _ in range(3):
        emulator.nudge("arm")
    assert emulator.report()["arm"].periods == 3
    with pytest.raises(EmulatorError, match="no arm 'amr'. Did you mean 'arm'"):
        emulator.nudge("amr")
    with pytest.raises(EmulatorError, match="no operation .nugde.. Did you mean .nudge."):
        emulator._request({"operation": "nugde", "arm": "arm"})
    emulator.begin(0)
    with pytest.raises(EmulatorError, match="nudged in lock-step, before the first episode"):
        emulator.nudge("arm")
