"""ALOHA on lines that lose and delay packets: at the servos no limit is exceeded.

The judge compares goals, whole ticks, with the limits of the filter: what a rounded goal may differ
by is allowed, which is a fifth of the largest step here.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.device_rig import PERIOD, DeviceRig
from tests.real_robot.served_arms import Served

from stringline import ALOHA, ActionChunk, SafetyLimits
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.control_table import VIPERX
from stringline.real_robot.drivers.dynamixel.protocol import Instruction, Packet
from stringline.real_robot.drivers.dynamixel.servo_arm import ReportedGoal
from stringline.real_robot.emulators.dynamixel.dynamixel_line import EmulatedLine
from stringline.real_robot.safety.reasons import Mode, Reason

Vector = NDArray[np.float64]
LIMITS = SafetyLimits.of(
    ALOHA, cartesian_speed=None, acceleration=5.0, speed_share=0.25, margin_rad=0.02
)
JOINTS = tuple(servo.ident for servo in VIPERX if servo.master is None)[:-1]
ROUNDING = table.TICK_RAD / 2
# A joint without a command for longer than that stands.
STANDS_S = 1.5 * PERIOD


@dataclass
class Judge:
    """What the servos of one arm are commanded, without the gripper.

    Attributes:
        velocity: Largest step as a share of the limit, but for rounding.
        acceleration: Largest change of the step as a share of the limit, but for rounding.
        moved: Sum of all steps of the fastest joint, rad.
    """

    velocity: float = 0.0
    acceleration: float = 0.0
    moved: float = 0.0
    _place: Vector | None = None
    _at: Vector = field(default_factory=lambda: np.zeros(len(JOINTS)))
    _step: Vector = field(default_factory=lambda: np.zeros(len(JOINTS)))

    def take(self, goal: Vector, got: NDArray[np.bool_], now: float) -> None:
        """Takes the goals (6,), rad, at a time; those of the joints `got` (6,) have arrived now."""
        limits = LIMITS.velocity[: len(goal)] * PERIOD, LIMITS.acceleration[: len(goal)] * PERIOD**2
        if self._place is None:
            self._place, self._at = goal, np.full(len(goal), now)
            return
        gap = now - self._at
        step = goal - self._place
        change = np.where(got, step - np.where(gap > STANDS_S, 0.0, self._step), 0.0)
        allowed = limits[0] * np.minimum(gap / PERIOD, 1.0)
        speed = np.maximum(np.abs(step) - 2 * ROUNDING, 0.0) / allowed
        # The first step from rest has one rounding less than the others.
        jerk = np.maximum(np.abs(change) - 4 * ROUNDING, 0.0) / limits[1]
        self.velocity = max(self.velocity, float(speed.max()))
        self.acceleration = max(self.acceleration, float(jerk.max()))
        self.moved += float(np.abs(step).max())
        self._place = goal
        self._at = np.where(got, now, self._at)
        self._step = np.where(got, step, self._step)

    def begins_anew(self) -> None:
        """Notes that a person has put the arms back into motion, from where they are."""
        self._place = None


class PoorLines:
    """Both lines, of which goals are lost on the way to the servos.

    Attributes:
        loss: Share of the packets with goals that is lost.
        spoilt: Share of the goals of single servos that is lost.
        lost: Lost packets by arm.
        answers_lost: Share of the reads that no servo answers.
    """

    def __init__(self, seed: int) -> None:
        self.served = Served()
        self.judges = {arm: Judge() for arm in ALOHA.arms}
        self.loss = self.spoilt = self.answers_lost = 0.0
        self.lost = dict.fromkeys(ALOHA.arms, 0)
        self.now = -1.0  # The goals of the bring-up arrive before the first cycle.
        self._random = np.random.default_rng(seed)
        for arm, line in self.served.lines.items():
            self._spoil(arm, line)

    def _spoil(self, arm: str, line: EmulatedLine) -> None:
        execute = line._execute

        def passed(packet: Packet) -> bytes:
            if packet.instruction == Instruction.SYNC_READ:
                answer = execute(packet)
                return b"" if self._random.random() < self.answers_lost else answer
            if not is_goal(packet):
                return execute(packet)
            if self._random.random() < self.loss:
                self.lost[arm] += 1
                return b""
            if self._random.random() < self.spoilt:
                packet = without_one(packet, self._random)
            answer = execute(packet)
            got = np.isin(JOINTS, list(packet.parameters[4::5]))
            self.judges[arm].take(goals(line), got, self.now)
            return answer

        line._execute = passed  # type: ignore[method-assign]

    def begin(self, seed: int) -> None:
        """The arms stay where they are."""

    def advance(self, writes: dict[str, int]) -> None:
        """Waits until all goals have arrived or are lost, and lets the world go on."""
        deadline = time.monotonic() + 20.0
        while any(
            self.lost[arm] + line.goal_writes < writes[arm] + 1
            for arm, line in self.served.lines.items()
        ):
            assert time.monotonic() < deadline
            time.sleep(1e-4)
        self.served.arms.advance()


def is_goal(packet: Packet) -> bool:
    register = table.GOAL_POSITION.address.to_bytes(2, "little")
    return packet.instruction == Instruction.SYNC_WRITE and packet.parameters[:2] == register


def without_one(packet: Packet, random: np.random.Generator) -> Packet:
    """Returns a packet that one servo did not understand."""
    entries = packet.parameters[4:]
    place = 5 * int(random.integers(len(entries) // 5))
    kept = entries[:place] + entries[place + 5 :]
    return Packet(packet.ident, packet.instruction, packet.parameters[:4] + kept)


def goals(line: EmulatedLine) -> Vector:
    ticks = [line.servos[ident].get(table.GOAL_POSITION) for ident in JOINTS]
    return np.array([table.angle_of_ticks(float(tick)) for tick in ticks])


class Rig(DeviceRig):
    """A device loop with a program that is late at times.

    Attributes:
        late_s: Longest time by which an answer comes later.
    """

    late_s = 0.0

    def __init__(self, lines: PoorLines) -> None:
        self.lines = lines
        emulator: Any = lines
        super().__init__(emulator, lines.served.driver(), ALOHA, LIMITS)
        self.loop._wait = self._wait
        self._random = np.random.default_rng(5)

    def clock(self) -> float:
        self.lines.now = self.now
        return self.now

    def _wait(self, seconds: float) -> None:
        self.now += seconds

    def swing(self, seconds: float) -> list[Reason]:
        """Swings the waists, resets each fault after a while, and returns the faults."""
        faults: list[Reason] = []
        end, held, sent_s = self.now + seconds, 0, -np.inf
        while self.now < end:
            start = self.now
            if abs(self.now - sent_s) > 0.3:
                sent_s = self.now
                self.send(self._swing())
            self.loop.observe(self.clock)
            self.now += float(self._random.uniform(0.0, self.late_s))
            self.loop.act(self.clock)
            self.emulator.advance(self.writes())
            # Cycles begin in even periods.
            self.now = start + PERIOD * max(1.0, np.ceil((self.now - start) / PERIOD - 1e-9))
            held = held + 1 if self.state.mode is Mode.FAULT else 0
            if held == 1:
                faults.append(self.state.fault_reasons)
            if held == 60:
                for judge in self.lines.judges.values():
                    judge.begins_anew()
                self.session += 1
                self.loop.begin(self.session, self.clock, ~Reason(0))
                sent_s = -np.inf
        return faults

    def _swing(self) -> ActionChunk:
        due = self.now + 0.02 * np.arange(50, dtype=np.float64)
        way = np.tile(self.body.home, (50, 1))
        way[:, (0, 7)] += 0.6 * np.sin(2 * np.pi * 0.25 * due)[:, None]
        return ActionChunk(due, way.astype(np.float32))

    def assert_within_limits(self) -> None:
        for judge in self.lines.judges.values():
            assert judge.velocity <= 1.0 + 1e-6
            assert judge.acceleration <= 1.0 + 1e-6


Make = Callable[..., Rig]


@pytest.fixture
def make() -> Iterator[Make]:
    rigs: list[Rig] = []

    def build(seed: int = 0) -> Rig:
        rigs.append(Rig(PoorLines(seed)))
        return rigs[-1]

    yield build
    for rig in rigs:
        rig.close()
        rig.lines.served.close()


def test_a_good_line_moves_the_arms_within_the_limits(make: Make) -> None:
    rig = make()
    assert rig.swing(3.0) == []
    assert all(judge.velocity > 0.75 and judge.moved > 0.8 for judge in rig.lines.judges.values())
    assert rig.state.counts[Reason.UNSENT] == 0
    rig.assert_within_limits()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("loss", [0.1, 0.3])
def test_lost_goals_exceed_no_limit_at_the_servos(make: Make, loss: float, seed: int) -> None:
    rig = make(seed)
    rig.swing(1.0)
    rig.lines.loss = loss
    rig.swing(4.0)
    rig.assert_within_limits()
    assert all(lost > 20 for lost in rig.lines.lost.values())
    assert rig.state.counts[Reason.UNSENT] > 20, "each is counted"
    assert all(judge.moved > 0.2 for judge in rig.lines.judges.values()), "they still move"


@pytest.mark.slow
@pytest.mark.parametrize("late_s", [0.008, 0.012, 0.03])
def test_a_late_program_exceeds_no_limit_at_the_servos(make: Make, late_s: float) -> None:
    rig = make()
    rig.swing(1.0)
    rig.late_s = late_s
    rig.swing(3.0)
    rig.lines.loss = 0.1
    rig.swing(3.0)
    rig.assert_within_limits()


@pytest.mark.slow
@pytest.mark.parametrize("jump_s", [0.02, 0.05, 0.5, 10.0])
def test_a_clock_that_jumps_exceeds_no_limit_at_the_servos(make: Make, jump_s: float) -> None:
    """As after a suspension; the clock of the device process is never set back."""
    rig = make()
    rig.swing(2.0)
    rig.now += jump_s
    faults = rig.swing(3.0)
    rig.assert_within_limits()
    if jump_s > 1:
        assert faults, "the operator learns of it"


def test_a_servo_that_takes_no_goals_is_a_fault(make: Make) -> None:
    rig = make()
    rig.swing(1.0)
    rig.lines.loss = 1.0
    faults = rig.swing(0.6)
    assert faults == [Reason.UNSENT]
    assert "was not sent, not in time, or lost" in rig.words()


def test_goals_of_one_servo_are_continued_where_it_is(make: Make) -> None:
    """The others, which have got their goals, go on."""
    rig = make()
    rig.swing(1.0)
    rig.lines.spoilt = 0.3
    rig.swing(3.0)
    rig.assert_within_limits()


def test_an_old_answer_is_no_lost_goal() -> None:
    """It follows a read without an answer, or repeats the last one; later ones may be old, too."""
    for begin in (b"", b"1"):
        goal = ReportedGoal()
        goal.note(10)
        goal.note(11)
        goal.take(b"1", 11, moves=True)
        goal.note(12)
        goal.take(begin, 11, moves=True)
        assert goal.kept is None
        for late in range(12, 15):
            goal.note(late + 1)
            goal.take(b"%d" % late, late, moves=True)
            assert goal.kept is None
        goal.note(20)
        goal.take(b"20", 20, moves=True)
        goal.note(21)
        goal.take(b"21", 20, moves=True)
        assert goal.kept == 20
        goal.note(20)
        goal.take(b"22", 20, moves=True)
        assert goal.kept is None


def test_before_a_goal_is_sent_none_can_be_lost() -> None:
    goal = ReportedGoal()
    goal.take(b"1", 5, moves=True)
    goal.take(b"2", 6, moves=True)
    assert goal.kept is None


def test_a_servo_that_stands_may_answer_the_same_again() -> None:
    goal = ReportedGoal()
    goal.note(10)
    goal.note(11)
    goal.take(b"1", 11, moves=False)
    goal.note(12)
    goal.take(b"1", 11, moves=False)
    assert goal.kept == 11
