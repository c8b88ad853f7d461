"""What may go wrong over FRI, row by row: real datagrams, the device process's own loop, and an emulated controller."""

import multiprocessing
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
from stringline.real_robot.drivers.fri.command import Command
from stringline.real_robot.drivers.fri.driver import FriDriver
from stringline.real_robot.drivers.fri.gripper import IoGripper
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.emulators.fri.client import FriEmulator
from stringline.real_robot.emulators.fri.names import GRIPPER_INPUT, GRIPPER_OUTPUT
from stringline.real_robot.emulators.fri.server import CAPTURED
from stringline.real_robot.limits import SafetyLimits
from stringline.real_robot.mailbox import Mailbox, shared_memory
from stringline.real_robot.reasons import Mode, describe

Vector = NDArray[np.float64]

PERIOD = 0.01
VERSION = version_of("1.15")
GRIPPER = IoGripper(GRIPPER_OUTPUT, feedback=GRIPPER_INPUT)


class FriRig:
    """A device loop in the process of the test, in lock-step with emulated controllers."""

    def __init__(self, emulator: FriEmulator, folder: Path, body: Embodiment, limits: SafetyLimits | None = None) -> None:
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
        self.loop = DeviceLoop(self.driver, body, self.limits, PERIOD, chunks=ends[0], states=ends[1], state_layout=layouts[1])
        self.now, self.session = 0.0, 0
        self.driver.connect()
        self.driver.arm()
        emulator.begin(0)
        self._before = self.driver.writes
        self.begin()

    def begin(self) -> None:
        self.session += 1
        self.loop.begin(self.session, self.clock)

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

    def sent(self, arm: str = "arm") -> list[tuple[int, bool, Command]]:
        """Returns period, whether commands moved the arm, and command of all that arrived at a controller."""
        data, at, found = (self._folder / f"{arm}.bin").read_bytes(), 0, []
        while at < len(data):
            period, active, size = CAPTURED.unpack_from(data, at)
            at += CAPTURED.size
            found.append((period, bool(active), Command.of(VERSION, data[at : at + size])))
            at += size
        return found

    def segments(self, arm: str = "arm") -> list[tuple[Vector, Vector]]:
        """Returns periods (T,) and positions (T, 7) of the commands that moved an arm, a pair for each time it was let go."""
        found: list[list[tuple[int, tuple[float, ...]]]] = [[]]
        for period, active, command in self.sent(arm):
            if active:
                found[-1].append((period, command.position))
            elif found[-1]:
                found.append([])
        parts = [part for part in found if part]
        return [(np.array([period for period, _ in part]), np.array([q for _, q in part])) for part in parts]

    def assert_within_limits(self) -> None:
        """Holds all commands that moved arms against the limits, whatever happened to datagrams between them."""
        for index, arm in enumerate(self.body.arms):
            joints = slice(8 * index, 8 * index + 7)
            for periods, path in self.segments(arm):
                assert np.isfinite(path).all()
                assert (path >= self.limits.lower[joints] - 1e-9).all()
                assert (path <= self.limits.upper[joints] + 1e-9).all()
                passed = np.diff(periods)[:, None] * PERIOD
                assert (passed > 0).all()
                assert (np.abs(np.diff(path, axis=0)) <= self.limits.velocity[joints] * passed + 1e-9).all()

    def close(self) -> None:
        self.driver.close()


def emulated(folder: Path, *arguments: str) -> FriEmulator:
    return FriEmulator(["--lock-step", "--time-limit", "1e9", "--capture", str(folder), *arguments])


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], FriRig]]:
    folder, made = tmp_path_factory.mktemp("one"), []
    with emulated(folder) as emulator:

        def make() -> FriRig:
            while made:
                made.pop().close()
            made.append(FriRig(emulator, folder, IIWA14))
            return made[-1]

        yield make
        while made:
            made.pop().close()


@pytest.fixture
def rig(one: Callable[[], FriRig]) -> FriRig:
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
    first = [command for _, _, command in rig.sent()]
    assert all(np.allclose(command.position, IIWA14.home[:7]) for command in first)
    rig.send(goal, count=100)
    rig.cycle(120)
    assert np.allclose(rig.state.arms.position, goal, atol=1e-3)
    rig.assert_within_limits()
    assert rig.emulator.report()["arm"].stops == ()


@pytest.mark.parametrize("fault", ["drop", "duplicate", "reorder", "corrupt", "late", "answer_drop", "answer_duplicate"])
def test_one_datagram_that_goes_astray_changes_nothing_but_a_counter(rig: FriRig, fault: str) -> None:
    rig.moving()
    before = rig.state.command[0]
    rig.emulator.fault("arm", fault)
    for _ in range(6):
        assert rig.cycle().mode is Mode.RUN
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
    rig.assert_within_limits()
    assert rig.emulator.report()["arm"].stops == ()


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


FAULTS = ("drop", "late", "duplicate", "reorder", "corrupt", "answer_drop", "answer_late", "answer_reorder", "leave", "stop")
STEP = st.tuples(
    st.sampled_from(("plan", "plan", "jumps", "wait", "begin", *FAULTS)), st.integers(0, 2**32 - 1), st.integers(1, 12)
)


def test_whatever_happens_what_arrives_is_within_the_limits_and_gives_no_cause_for_a_stop(rig: FriRig) -> None:
    moved = []

    @settings(max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(STEP, min_size=3, max_size=8))
    def play(steps: list[tuple[str, int, int]]) -> None:
        for event in ("release", "restart"):
            rig.emulator.fault("arm", event)
        rig.loop.brake()
        rig.cycle(20)
        rig.begin()
        for kind, number, cycles in steps:
            random = np.random.default_rng(number)
            if kind in FAULTS:
                rig.emulator.fault("arm", kind, cycles)
            elif kind == "begin":
                rig.begin()
            elif kind != "wait":
                spread = 9.0 if kind == "jumps" else 0.5
                rig.send((IIWA14.home + random.uniform(-spread, spread, 8)).astype(np.float64))
            rig.cycle(cycles)
        moved.append(np.ptp(rig.segments()[-1][1], axis=0).max())

    play()
    rig.assert_within_limits()
    assert set(rig.emulator.report()["arm"].stops) <= {"by script"}
    assert max(moved) > 0.2
