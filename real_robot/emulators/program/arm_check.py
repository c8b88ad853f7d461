"""Checks the goals that arrived at an arm against limits, in constant memory, from captured bytes.

Emulated servos capture goals in whole ticks. So a position may be half a tick beyond its limit, a
step one tick longer than velocity allows, and the change of steps two ticks larger than
acceleration allows. Commands over FRI are checked from the capture of the emulated controller, and
commands over LCM from that of its driver program.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.aloha import ALOHA, FOLLOWER
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.protocol import Instruction, Packet, Parser
from stringline.real_robot.drivers.fri.fri_arm import CHANGE_SHARE, SPEED_SHARE
from stringline.real_robot.drivers.fri.messages import Command
from stringline.real_robot.drivers.fri.versions import FriVersion
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS
from stringline.real_robot.drivers.lcm.drake_messages import IIWA_COMMAND
from stringline.real_robot.drivers.lcm.lcm_link import LcmDecodeError
from stringline.real_robot.emulators.program.capture_file import (
    Captured,
    CapturedRecords,
    arrivals_in,
)
from stringline.real_robot.safety.limits import SafetyLimits

Goals = NDArray[np.float64]

_ROUNDING = 1e-9


class ArmCheck:
    """Counts goals, and those outside a limit. Vectors are (n,), rad and openings.

    Args:
        lower: Smallest goal.
        upper: Largest goal.
        step: Largest step from one goal to the next.
        change: Largest change of the step.

    Attributes:
        goals: Number of goals.
        violations: Number of goals outside a limit.
        velocity: Largest step as a share of the allowed one.
        acceleration: Largest change of the step as a share of the allowed one.
        beyond: Largest distance of a goal from `lower` and `upper`; negative inside.
        resumed: Largest step at the beginning of an episode.
    """

    def __init__(self, lower: Goals, upper: Goals, step: Goals, change: Goals) -> None:
        self._lower = lower
        self._upper = upper
        self._step = step
        self._change = change
        self._last: Goals | None = None
        self._moved = np.zeros_like(lower)
        self._begins = False
        self._may_rest = False
        self.goals = 0
        self.violations = 0
        self.velocity = 0.0
        self.acceleration = 0.0
        self.resumed = 0.0
        self.beyond = -np.inf

    @property
    def last(self) -> Goals | None:
        """The last goal (n,), or None before the first."""
        return self._last

    @property
    def fits_rest(self) -> bool:
        """Whether the last step may have been one from rest."""
        return bool((np.abs(self._moved) <= self._change * (1 + _ROUNDING)).all())

    def take(self, goals: Goals, *, begins: bool, departed: bool = False) -> None:
        """Checks further goals (T, n).

        `begins`: an episode begins with them, at rest. `departed`: its first goal may already be a
        step away from its beginning. That step is unknown, so the next change may be larger by one
        step.
        """
        if not len(goals):
            return
        last = self._last
        if begins and last is not None:
            self.resumed = max(self.resumed, float(np.abs(goals[0] - last).max()))
        if begins or last is None:
            last = goals[0]
            self._moved = np.zeros_like(self._lower)
            self._begins = begins and departed
        path = np.concatenate([last[None], goals])
        moved = np.concatenate([self._moved[None], np.diff(path, axis=0)])
        outside = np.maximum(self._lower - goals, goals - self._upper).max(axis=1)
        fast = (np.abs(moved[1:]) / self._step).max(axis=1)
        sudden = (np.abs(np.diff(moved, axis=0)) / self._change).max(axis=1)
        if self._may_rest:
            sudden[0] = min(sudden[0], float((np.abs(moved[1]) / self._change).max()))
            self._may_rest = False
        first = 1 if begins else 0
        if self._begins and first < len(goals):
            sudden[first] = max(sudden[first] - 1.0, 0.0)
            self._begins = False
        bad = ~((outside <= _ROUNDING) & (fast <= 1 + _ROUNDING) & (sudden <= 1 + _ROUNDING))
        self.goals += len(goals)
        self.violations += int(bad.sum())
        self.beyond = max(self.beyond, float(outside.max()))
        self.velocity = max(self.velocity, float(fast.max()))
        self.acceleration = max(self.acceleration, float(sudden.max()))
        self._last = path[-1]
        self._moved = moved[-1]

    def halt(self) -> None:
        """Notes that the arm came to rest without a goal: the next step is one from rest."""
        self._moved = np.zeros_like(self._moved)

    def may_halt(self) -> None:
        """Notes that the arm may have come to rest, as the sender of its goals saw it.

        The next step is one from rest, or continues the last one.
        """
        self._may_rest = True


SERVO_JOINTS = 7  # Joints of an arm, the gripper last.
_OPENING_PER_RAD = 0.9  # The linkage of the gripper opens by at most that.
_HEAD = table.GOAL_POSITION.address.to_bytes(2, "little") + table.GOAL_POSITION.size.to_bytes(
    2, "little"
)
_ENTRY = 1 + table.GOAL_POSITION.size


def goals_of(packets: list[Packet]) -> Vector:
    """Returns the goals (T, 7) in packets to an arm: rad, and the opening of the gripper."""
    written = []
    for packet in packets:
        if packet.instruction == Instruction.SYNC_WRITE and packet.parameters[:4] == _HEAD:
            entries = packet.parameters[4:]
            ticks = [
                int.from_bytes(entries[at + 1 : at + _ENTRY], "little", signed=True)
                for at in range(0, _ENTRY * SERVO_JOINTS, _ENTRY)
            ]
            written.append([table.angle_of_ticks(tick) for tick in ticks])
    angles = np.array(written, dtype=np.float64).reshape(-1, SERVO_JOINTS)
    angles[:, -1] = FOLLOWER.opening(angles[:, -1])
    return angles


class CapturedGoals:
    """The goals of an arm in a file that grows.

    Args:
        file: File that the emulator captures; see its `--capture`.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._at = 0
        self._before_s = np.nan
        self._parser = Parser()

    def fresh(self) -> tuple[Vector, Vector]:
        """Returns the goals (T, 7) since the last call, and when each was sent (T, 2).

        That is the earliest and the latest time, in seconds: a goal was sent after the arrival of
        the bytes before it, with which it would have arrived otherwise, and before its own. A busy
        emulator notes arrivals late, but a driver sends a goal only after the emulator has answered
        the read of the same cycle. NaN where the emulator recorded no times, as in lock-step.
        """
        with self._file.open("rb") as stream:
            stream.seek(self._at)
            data = stream.read()
        start = self._at
        self._at += len(data)
        ends = [(end, when) for end, when in arrivals_in(self._file) if start < end < self._at]
        goals: list[Vector] = []
        times: list[tuple[float, float]] = []
        for end, when in [*ends, (self._at, self._time_of(self._at))]:
            found = goals_of(self._parser.feed(data[: end - start]))
            data = data[end - start :]
            start = end
            goals.append(found)
            times += [(self._before_s, when)] * len(found)
            self._before_s = when
        return np.concatenate(goals), np.array(times).reshape(-1, 2)

    def _time_of(self, count: int) -> float:
        return next((when for end, when in arrivals_in(self._file) if end >= count), np.nan)


def servo_check(arm: str, limits: SafetyLimits, period_s: float) -> ArmCheck:
    """Returns the check of an arm's goals by the limits of both arms."""
    own = [index for index, joint in enumerate(ALOHA.joints) if joint.arm == arm]
    tick = np.full(SERVO_JOINTS, table.TICK_RAD)
    tick[-1] *= _OPENING_PER_RAD
    return ArmCheck(
        limits.lower[own] - tick / 2,
        limits.upper[own] + tick / 2,
        limits.velocity[own] * period_s + tick,
        limits.acceleration[own] * period_s**2 + 2 * tick,
    )


class FriLine:
    """Checks the commands that moved an arm, in a file that grows.

    Its controller expects an answer to each message. Each time that it releases its arm, a path
    begins, at rest. Where it lacked an answer the arm stood still, and the next step is one from
    rest.

    Args:
        file: File that the emulator captures; see its `--capture`.
        check: Limits of the arm's joints.
    """

    def __init__(self, file: Path, version: FriVersion, check: ArmCheck) -> None:
        self._records = CapturedRecords(file)
        self._version = version
        self.check = check
        self._period = 0
        self._run: list[tuple[float, ...]] = []
        self._begins = True

    def begins_at(self, start: int) -> None:
        """Does nothing: the first command of an episode continues the last of the one before."""

    def take(self, sent: int) -> None:
        """Checks the commands that were added."""
        for one in self._records.fresh():
            if not one.active:
                self._check_run()
                self._begins = True
            elif one.taken:
                self._step(one)
        self._check_run()

    def _step(self, one: Captured) -> None:
        if not self._begins and one.period != self._period + 1:
            self._check_run()
            self.check.halt()
        self._run.append(Command.of(self._version, one.data).position)
        self._period = one.period
        if self._begins:
            self._check_run()

    def _check_run(self) -> None:
        if self._run:
            self.check.take(np.array(self._run), begins=self._begins)
            self._run = []
            self._begins = False


def axis_check(embodiment: Embodiment, arm: str, limits: SafetyLimits, period_s: float) -> ArmCheck:
    """Returns the limits of an arm's seven joints, without a tolerance for rounding.

    Arms but the first have a clock of their own, by which the path of their commands is played: see
    `Playback`.
    """
    revolute = embodiment.revolute_joints[arm]
    assert len(revolute) == JOINTS
    step = limits.velocity[revolute] * period_s
    change = limits.acceleration[revolute] * period_s**2
    if arm != embodiment.arms[0]:
        change = CHANGE_SHARE * change + SPEED_SHARE * step
    return ArmCheck(limits.lower[revolute], limits.upper[revolute], step, change)


_MAY_BE_LATE = 1  # Periods.


def command_row(payload: bytes) -> tuple[float, ...]:
    """Returns the positions of all arms in an encoded command, or () if it cannot be decoded."""
    try:
        found = IIWA_COMMAND.decode(payload)["joint_position"]
    except LcmDecodeError:
        return ()
    assert isinstance(found, tuple)
    return found


class LcmLine:
    """Checks the commands of one arm, in a file that grows.

    Each time that the program releases its arms, a path begins, at rest. Where the program lacked
    commands for its periods the arms stood still, and the next step is one from rest. A command may
    arrive just after the period that it was sent for, so one missing command may be late.

    Args:
        file: File that the emulator captures; see its `--capture`.
        place: Index of the arm in the program.
        check: Limits of the arm's joints.
    """

    def __init__(self, file: Path, place: int, check: ArmCheck) -> None:
        self._records = CapturedRecords(file)
        self._own = slice(JOINTS * place, JOINTS * (place + 1))
        self.check = check
        self._begins = True
        self._period = 0
        self._data = b""

    def begins_at(self, start: int) -> None:
        """Does nothing: the first command of an episode continues the last of the one before."""

    def take(self, sent: int) -> None:
        """Checks the commands that were added."""
        for one in self._records.fresh():
            row = command_row(one.data)
            if not one.active or not row:
                self._begins = True
                continue
            if one.period == self._period and one.data == self._data:
                continue  # It was sent twice, as if it had been lost.
            missing = one.period - self._period - 1
            if missing > _MAY_BE_LATE:
                self.check.halt()
            elif missing > 0:
                self.check.may_halt()
            self.check.take(np.array(row[self._own])[None], begins=self._begins)
            self._begins = False
            self._period = one.period
            self._data = one.data


def lcm_check(embodiment: Embodiment, arm: str, limits: SafetyLimits, period_s: float) -> ArmCheck:
    """Returns the limits of an arm's seven joints, without a tolerance for rounding."""
    revolute = embodiment.revolute_joints[arm]
    step = limits.velocity[revolute] * period_s
    change = limits.acceleration[revolute] * period_s**2
    return ArmCheck(limits.lower[revolute], limits.upper[revolute], step, change)
