"""What may go wrong over FRI, row by row: real datagrams, the device process's own loop, and an emulated controller."""

import dataclasses
import multiprocessing
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.policies.chunk import ActionChunk
from stringline.real_robot.device_loop import DeviceLoop
from stringline.real_robot.device_state import DeviceState, chunk_layout, chunk_record, state_layout
from stringline.real_robot.drivers.bars import Bar
from stringline.real_robot.drivers.fri.command import Command
from stringline.real_robot.drivers.fri.driver import FriDriver
from stringline.real_robot.drivers.fri.gripper import IoGripper
from stringline.real_robot.drivers.fri.monitoring import Monitoring
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.emulators.fri.axis_check import FriLine, axis_check
from stringline.real_robot.emulators.fri.captured import captured_in
from stringline.real_robot.emulators.fri.client import FriEmulator
from stringline.real_robot.emulators.fri.names import GRIPPER_INPUT, GRIPPER_OUTPUT
from stringline.real_robot.emulators.fri.replay import FriReplayLine
from stringline.real_robot.emulators.replay import replay
from stringline.real_robot.incident_format import Entry, Kind, scan
from stringline.real_robot.incident_log import IncidentLog
from stringline.real_robot.incident_reader import Incident
from stringline.real_robot.incident_ring import Ring, ring_memory
from stringline.real_robot.limits import SafetyLimits
from stringline.real_robot.mailbox import Mailbox, shared_memory
from stringline.real_robot.reasons import Mode, describe

Vector = NDArray[np.float64]

PERIOD = 0.01
VERSION = version_of("1.15")
GRIPPER = IoGripper(GRIPPER_OUTPUT, feedback=GRIPPER_INPUT)


class FriRig:
    """A device loop in the process of the test, in lock-step with emulated controllers."""

    def __init__(
        self, emulator: FriEmulator, folder: Path, body: Embodiment, limits: SafetyLimits | None = None, *, logged: bool = False
    ) -> None:
        self.emulator, self.body, self._folder = emulator, body, folder
        self.limits = limits or SafetyLimits.of(body, soft_start_s=0.0, acceleration=30.0)
        emulator.begin(0)
        emulator.reboot()
        grippers = dict.fromkeys(body.arms, GRIPPER)
        self.driver = FriDriver(emulator.ports, grippers=grippers, together=True, answer_timeout_s=0.02)
        context, joints = multiprocessing.get_context("spawn"), len(body.joints)
        layouts = chunk_layout(joints), state_layout(joints, len(self.driver.servos), len(self.driver.arms))
        memories = [shared_memory(context, layout, 8) for layout in layouts]
        self._chunks, self._states = (Mailbox(memory, layout) for memory, layout in zip(memories, layouts, strict=True))
        ends = [Mailbox(memory, layout) for memory, layout in zip(memories, layouts, strict=True)]
        log = None
        if logged:
            self._ring = ring_memory(context, 1 << 21)
            log = IncidentLog(self._ring, layouts[1], joints)
            self.driver.tap([log.tap(place) for place in range(len(self.driver.arms))])
        self.loop = DeviceLoop(
            self.driver, body, self.limits, PERIOD, chunks=ends[0], states=ends[1], state_layout=layouts[1], log=log
        )
        self.now, self.session = 0.0, 0
        self.driver.connect()
        self.driver.arm()
        self.new_world()
        self.begin()

    def new_world(self) -> None:
        self.emulator.begin(0)
        self._before = self.driver.writes

    def begin(self) -> None:
        self.session += 1
        self.loop.begin(self.session, self.clock)

    def rest(self) -> None:
        """Brings the arms to rest, as the device process does before an episode begins."""
        self.loop.brake()
        for _ in range(40):
            self.cycle()
            if self.loop.at_rest:
                return

    def clock(self) -> float:
        return self.now

    def send(self, target: Vector, count: int = 50) -> None:
        due = self.now + 0.02 * np.arange(count, dtype=np.float64)
        chunk = ActionChunk(due, np.tile(target, (count, 1)).astype(np.float32))
        self._chunks.put(chunk_record(chunk, self.session, len(self.body.joints)))

    def cycle(self, count: int = 1) -> DeviceState:
        for _ in range(count):
            self.loop.observe(self.clock)
            self.loop.act(self.now)
            self.emulator.advance(dict(zip(self.driver.arms, (self.driver.writes - self._before).tolist(), strict=True)))
            self.now += PERIOD
        return self.state

    @property
    def state(self) -> DeviceState:
        record = self._states.newest()
        assert record is not None
        return DeviceState.of(record)

    def until(self, wanted: Callable[[DeviceState], bool], cycles: int) -> int:
        for cycle in range(1, cycles + 1):
            if wanted(self.cycle()):
                return cycle
        raise AssertionError(f"Not within {cycles} cycles: {self.state.mode!r} {self.state.reasons!r} {self.words()}")

    def moving(self, joint: int = 0, by: float = 0.8) -> None:
        goal = self.state.arms.position.copy()
        goal[joint] += by
        self.send(goal)
        self.until(lambda state: state.mode is Mode.RUN, 3)
        self.cycle(8)

    def words(self) -> str:
        state = self.state
        return " ".join(
            describe(
                state.reasons | state.fault_reasons,
                servos=self.driver.servos,
                arms=self.driver.arms,
                servo_error=state.arms.servo_error,
                servo_misses=state.arms.servo_misses,
                lost=state.arms.lost,
                barred=state.arms.barred,
            )
        )

    def log(self) -> list[Entry]:
        """Returns what was noted so far."""
        return [entry for entry in scan(Ring(self._ring).read(0)[0]) if isinstance(entry, Entry)]

    def captured(self, arm: str) -> Path:
        """Returns the file of what arrived at a controller."""
        return self._folder / f"{arm}.bin"

    def segments(self, arm: str = "arm") -> list[tuple[Vector, Vector]]:
        """Returns periods (T,) and positions (T, 7) of the commands that an arm took, a pair for each time it was let go."""
        found: list[list[tuple[int, tuple[float, ...]]]] = [[]]
        for one in captured_in(self.captured(arm).read_bytes()):
            if one.active and one.taken:
                found[-1].append((one.period, Command.of(VERSION, one.data).position))
            elif not one.active and found[-1]:
                found.append([])
        parts = [part for part in found if part]
        return [(np.array([period for period, _ in part]), np.array([q for _, q in part])) for part in parts]

    def assert_within_limits(self) -> None:
        """Holds all commands that arms took against the limits, whatever happened to datagrams between them.

        However long an arm was without a command, the next is one of a single period, and one from rest.
        """
        for index, arm in enumerate(self.body.arms):
            joints = slice(8 * index, 8 * index + 7)
            for periods, path in self.segments(arm):
                assert np.isfinite(path).all()
                assert (path >= self.limits.lower[joints] - 1e-9).all()
                assert (path <= self.limits.upper[joints] + 1e-9).all()
                assert (np.diff(periods) > 0).all()
                steps = np.diff(path, axis=0)
                before = np.concatenate([np.zeros((1, 7)), steps])[:-1]
                before[np.diff(periods) > 1] = 0.0
                assert (np.abs(steps) <= self.limits.velocity[joints] * PERIOD + 1e-9).all()
                assert (np.abs(steps - before) <= self.limits.acceleration[joints] * PERIOD**2 + 1e-9).all()
            check = axis_check(self.body, arm, self.limits, PERIOD)
            FriLine(self.captured(arm), VERSION, check).take(0)
            assert check.violations == 0
            assert check.goals == sum(len(path) for _, path in self.segments(arm))

    def close(self) -> None:
        self.driver.close()


def emulated(folder: Path, *arguments: str) -> FriEmulator:
    return FriEmulator(["--lock-step", "--time-limit", "1e9", "--capture", str(folder), *arguments])


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., FriRig]]:
    folder, made = tmp_path_factory.mktemp("one"), []
    with emulated(folder) as emulator:

        def make(*, logged: bool = False) -> FriRig:
            while made:
                made.pop().close()
            made.append(FriRig(emulator, folder, IIWA14, logged=logged))
            return made[-1]

        yield make
        while made:
            made.pop().close()


@pytest.fixture
def rig(one: Callable[..., FriRig]) -> FriRig:
    return one()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[FriRig]:
    with emulated(tmp_path, "--arms", "two") as emulator:
        rig = FriRig(emulator, tmp_path, IIWA14_BIMANUAL)
        yield rig
        rig.close()


def assert_goes_on_from_where_it_stands(rig: FriRig, old_goal: float) -> None:
    """Waits until the controller takes commands again, resets, and looks at the first commands after that."""
    before = len(rig.segments())
    rig.until(lambda state: state.arms.barred.max() == 0 and not state.arms.lost.any(), 80)
    assert rig.state.mode is Mode.FAULT
    stands = rig.state.arms.position[:7]
    rig.begin()
    goal = rig.state.arms.position.copy()
    goal[0] -= 0.3
    rig.send(goal)
    rig.until(lambda state: state.mode is Mode.RUN, 2)
    rig.cycle(5)
    paths = [path for _, path in rig.segments()[before:]]
    assert len(paths) == 1
    assert np.allclose(paths[0][0], stands, atol=1e-9)
    assert np.abs(paths[0] - stands).max() < 0.08
    assert np.abs(paths[0][:, 0] - old_goal).min() > 0.1
    assert rig.state.command[0] < stands[0]
    rig.assert_within_limits()


def test_arms_come_up_at_the_measured_pose_and_follow_a_plan_with_their_gripper(rig: FriRig) -> None:
    goal = IIWA14.home.copy()
    goal[[0, 7]] = 0.2, 0.0
    first = [Command.of(VERSION, one.data) for one in captured_in(rig.captured("arm").read_bytes())]
    assert all(np.allclose(command.position, IIWA14.home[:7]) for command in first)
    rig.send(goal, count=100)
    rig.cycle(120)
    assert np.allclose(rig.state.arms.position, goal, atol=1e-3)
    rig.assert_within_limits()
    assert rig.emulator.report()["arm"].stops == ()


@pytest.mark.parametrize("fault", ["drop", "duplicate", "reorder", "corrupt", "late", "answer_drop", "answer_duplicate"])
def test_after_one_datagram_that_goes_astray_the_arm_goes_on_from_where_it_stands(rig: FriRig, fault: str) -> None:
    rig.moving()
    before = rig.state.command[0]
    rig.emulator.fault("arm", fault)
    seen = [rig.cycle() for _ in range(8)]
    held = [int(state.arms.barred.max()) for state in seen if state.mode is not Mode.RUN]
    assert held == ([] if "duplicate" in fault else [Bar.MISSED])
    assert rig.state.command[0] > before
    inbox = rig.driver._arms[0].inbox
    assert inbox.stale == (fault in ("duplicate", "reorder", "late"))
    assert inbox.broken == (fault == "corrupt")
    rig.assert_within_limits()
    assert rig.emulator.report()["arm"].stops == ()


def test_a_few_lost_messages_make_the_arm_hold_and_it_goes_on_by_itself(rig: FriRig) -> None:
    rig.moving()
    rig.emulator.fault("arm", "drop", 4)
    assert rig.until(lambda state: state.mode is Mode.HOLD, 5) <= 4
    assert "a servo does not answer (arm/controller" in rig.words()
    rig.until(lambda state: state.mode is Mode.RUN, 4)
    rig.cycle(5)
    rig.assert_within_limits()
    assert rig.emulator.report()["arm"].stops == ()


def test_what_answers_that_were_lost_commanded_is_not_caught_up_with(rig: FriRig) -> None:
    rig.moving()
    rig.emulator.fault("arm", "answer_drop", 3)
    rig.cycle(12)
    periods, path = rig.segments()[-1]
    (gap,) = np.flatnonzero(np.diff(periods) > 1)
    assert periods[gap + 1] - periods[gap] == 4
    assert path[gap, 0] - path[gap - 1, 0] > 0.01
    assert np.array_equal(path[gap + 1], path[gap])
    assert path[-1, 0] > path[gap, 0]
    rig.assert_within_limits()


def test_a_motion_that_ends_and_begins_anew_within_one_burst_of_messages_is_a_fault(rig: FriRig) -> None:
    rig.moving()
    rig.new_world()  # Which ends the motions of all arms, and lets them go again.
    assert rig.cycle().mode is Mode.FAULT
    assert "the session is MONITORING_READY" in rig.words()
    rig.rest()
    rig.new_world()
    rig.begin()  # What happened before an episode is not held against it.
    rig.moving(by=-0.8)
    assert rig.state.mode is Mode.RUN


def test_a_pulled_cable_is_a_fault_and_afterwards_the_arm_goes_on_from_where_it_stands(rig: FriRig) -> None:
    rig.moving()
    goal = rig.state.arms.position[0] + 0.8
    rig.emulator.fault("arm", "cut")
    assert rig.until(lambda state: state.mode is Mode.HOLD, 5) <= 4
    rig.until(lambda state: state.mode is Mode.FAULT, 12)
    assert "the port of an arm is gone (arm)." in rig.words()
    rig.cycle(5)
    rig.emulator.fault("arm", "mend")
    assert_goes_on_from_where_it_stands(rig, goal)


@pytest.mark.parametrize("fault", ["answer_drop", "answer_late", "answer_corrupt"])
def test_answers_that_do_not_come_in_time_end_the_session_which_is_a_fault(rig: FriRig, fault: str) -> None:
    rig.moving()
    goal = rig.state.arms.position[0] + 0.8
    rig.emulator.fault("arm", fault, 8)
    rig.until(lambda state: state.mode is Mode.FAULT, 10)
    assert "a controller has stopped its arm, or does not let it go (arm: the session is MONITORING_WAIT" in rig.words()
    assert_goes_on_from_where_it_stands(rig, goal)


@pytest.mark.parametrize(
    ("fault", "end", "words"),
    [
        ("stop", "release", "its safety controller has stopped it"),
        ("leave", "restart", "the session is MONITORING_READY"),
        ("t2", "t1", "its operation mode was changed, or is not allowed"),
    ],
)
def test_a_stop_is_a_fault_at_once_and_afterwards_the_arm_goes_on_from_where_it_stands(
    rig: FriRig, fault: str, end: str, words: str
) -> None:
    rig.moving()
    goal = rig.state.arms.position[0] + 0.8
    rig.emulator.fault("arm", fault)
    rig.until(lambda state: state.mode is Mode.FAULT, 2)
    assert words in rig.words()
    rig.cycle(15)
    assert rig.state.mode is Mode.FAULT
    rig.begin()  # A reset while the cause lasts is none.
    assert rig.cycle().mode is Mode.FAULT
    rig.emulator.fault("arm", end)
    if fault != "t2":  # That alone does not end the motion.
        assert_goes_on_from_where_it_stands(rig, goal)


def test_when_one_arm_is_stopped_the_other_one_brakes_on_its_way(pair: FriRig) -> None:
    goal = IIWA14_BIMANUAL.home.copy()
    goal[[0, 8]] += 0.5
    pair.send(goal)
    pair.cycle(8)
    pair.emulator.fault("right", "stop")
    pair.until(lambda state: state.mode is Mode.FAULT, 2)
    assert "(right: its safety controller has stopped it)" in pair.words()
    pair.cycle(15)
    left = pair.state.command[0]
    assert left > pair.state.command[8]
    assert pair.cycle().command[0] == left
    pair.assert_within_limits()
    assert {arm: report.stops for arm, report in pair.emulator.report().items()} == {"left": (), "right": ("by script",)}


ASTRAY = ("drop", "late", "duplicate", "reorder", "corrupt", "answer_drop", "answer_late", "answer_reorder", "answer_corrupt")
# Where to, what goes wrong meanwhile and how often, and for how many cycles.
STEP = st.tuples(
    st.sampled_from(("near", "near", "far", "nowhere", "begin")),
    st.sampled_from((*ASTRAY, *ASTRAY, "nothing", "leave", "stop")),
    st.integers(1, 5),
    st.integers(1, 16),
)


def recover(rig: FriRig) -> None:
    """Does what an operator would after a fault, and waits until nothing more goes wrong."""
    for event in ("release", "restart"):
        rig.emulator.fault("arm", event)
    rig.rest()
    for _ in range(3):
        rig.until(lambda state: not (state.arms.barred.any() or state.arms.lost.any() or state.arms.servo_misses.any()), 150)
    rig.begin()


def test_whatever_happens_what_arrives_is_within_the_limits_and_gives_no_cause_for_a_stop(rig: FriRig) -> None:
    gaps = []

    @settings(max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(STEP, min_size=3, max_size=8), st.randoms(use_true_random=False))
    def play(steps: list[tuple[str, str, int, int]], draw: random.Random) -> None:
        recover(rig)
        for where, fault, count, cycles in steps:
            spread = {"near": 0.5, "far": 9.0}.get(where)
            if spread is not None:
                rig.send(IIWA14.home + np.array([draw.uniform(-spread, spread) for _ in range(8)]))
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


def test_what_was_recorded_is_answered_again_byte_for_byte(one: Callable[..., FriRig]) -> None:
    rig = one(logged=True)
    rig.moving()
    rig.cycle(10)
    rig.driver.close()
    recorded = rig.log()
    rig.emulator.begin(0)
    result = replay(Incident(recorded, []), rig.emulator, seed=0)
    assert result.difference == ""
    sizes = {kind: sum(len(entry.payload) for entry in recorded if entry.kind == kind) for kind in (Kind.SENT, Kind.RECEIVED)}
    assert (result.sent, result.equal) == (sizes[Kind.SENT], sizes[Kind.RECEIVED])
    assert sum(entry.kind == Kind.CYCLE for entry in recorded) > 15
    place = [at for at, entry in enumerate(recorded) if entry.kind == Kind.RECEIVED][-3]
    entry = recorded[place]
    recorded[place] = dataclasses.replace(entry, payload=entry.payload[:-1] + bytes([entry.payload[-1] ^ 1]))
    rig.emulator.begin(0)
    result = replay(Incident(recorded, []), rig.emulator, seed=0)
    assert f"arm, record {entry.number}, byte {len(entry.payload) - 1} of {len(entry.payload)}: got " in result.difference


def test_a_log_that_does_not_reach_back_to_the_opening_of_the_ports_is_not_replayed(rig: FriRig) -> None:
    rig.driver.close()
    far = Monitoring(sequence=200_000).to_bytes(VERSION)
    with pytest.raises(ValueError, match="arm: the log begins with message 200000: it lacks the opening of the ports"):
        replay(Incident([Entry(Kind.RECEIVED, 0, 1, 0, far)], []), rig.emulator)
    with pytest.raises(ValueError, match="go to emulators only; 192.170.10.1:30200 is not on 127.0.0.1"):
        FriReplayLine("arm", "192.170.10.1:30200", lambda: None)
