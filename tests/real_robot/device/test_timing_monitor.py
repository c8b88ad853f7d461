"""The timing monitor of a device process, and the limits of goals on the wire."""

from pathlib import Path

import numpy as np
import pytest

from stringline import ALOHA, IIWA14, IIWA14_BIMANUAL, ActionChunk, SafetyLimits
from stringline.datasets.embodiments.aloha import FOLLOWER
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import state_layout
from stringline.real_robot.device.process_monitor import RunningQuantiles, TimingMonitor
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel import protocol
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.drivers.dynamixel.control_table import VIPERX
from stringline.real_robot.drivers.fri.messages import Command
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.emulated_evaluation.real_time_runner import (
    ServoLine,
    WireCheck,
    wire_lines,
)
from stringline.real_robot.emulators.program.arm_check import (
    CapturedGoals,
    FriLine,
    axis_check,
    goals_of,
    servo_check,
)
from stringline.real_robot.emulators.program.capture_file import ArrivalFile, Captured
from stringline.real_robot.incidents.incident_log import IncidentLog, cycle_layout
from stringline.real_robot.incidents.incident_records import ring_memory
from stringline.real_robot.robots.backends import ServoBackend
from stringline.real_robot.safety.reasons import Mode, Reason

PERIOD = 0.01
LIMITS = SafetyLimits.of(ALOHA, cartesian_speed=None)
STATE = state_layout(14, 18, 2)
MASTERS = [servo.ident for servo in VIPERX if servo.master is None]


class Device:
    """Writes the records of a device process to a ring, and the bytes of its arms to files."""

    def __init__(self, folder: Path) -> None:
        memory = ring_memory(1 << 20)
        self.log, self.watch = (
            IncidentLog(memory, STATE, 14),
            TimingMonitor(memory, cycle_layout(STATE, 14), PERIOD),
        )
        self._files = [folder / f"{arm}.bin" for arm in ALOHA.arms]
        self._tick, self._sent, self.now = 0, 0, 0.0
        self.arrive(ALOHA.home)  # With which torque is turned on.

    def arrive(self, goal: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        for file, part in zip(self._files, np.split(goal, 2), strict=True):
            ticks = [
                table.ticks_of_angle(float(angle)) for angle in (*part[:6], FOLLOWER.angle(part[6]))
            ]
            values = {
                ident: table.GOAL_POSITION.pack(tick)
                for ident, tick in zip(MASTERS, ticks, strict=True)
            }
            with file.open("ab") as stream:
                stream.write(protocol.sync_write(table.GOAL_POSITION.address, values))

    def cycle(
        self,
        waist: float = 0.0,
        *,
        session: int = 1,
        after_s: float = PERIOD,
        mode: Mode = Mode.RUN,
        late: int = 0,
        plan: int = 0,
    ) -> None:
        """Sends the home pose with the waist of the left arm turned."""
        self._tick, self._sent, self.now = self._tick + 1, self._sent + 1, self.now + after_s
        goal = ALOHA.home.copy()
        goal[0] += waist
        record = np.zeros((), STATE)
        record["session"], record["tick"], record["late"], record["mode"] = (
            session,
            self._tick,
            late,
            mode,
        )
        record["writes"], record["reasons"] = self._sent, Reason.STARVED if mode is Mode.HOLD else 0
        self.log.cycle(record, self.now, plan, None, {})
        self.arrive(goal)


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path)


def test_time_is_counted_cycle_by_cycle(device: Device) -> None:
    device.cycle()
    device.log.chunk(ActionChunk(np.array([device.now, 1.0]), np.zeros((2, 14), np.float32)), 1, 1)
    refused = ActionChunk(np.array([-9.0, 1.0]), np.zeros((2, 14), np.float32))
    device.log.chunk(refused, 1, 0)
    for _ in range(97):
        device.cycle(plan=1)
    device.cycle(after_s=0.05, late=4, mode=Mode.HOLD)
    device.cycle(mode=Mode.HOLD, late=4)
    device.watch.update()
    device.cycle(late=4)
    # The time between two episodes is not a cycle.
    device.cycle(session=2, after_s=3.0, mode=Mode.FAULT, late=4)
    device.cycle(session=2, mode=Mode.FAULT, late=4)
    device.watch.update()
    seen = device.watch
    counts = (seen.cycles, seen.late, seen.holds, seen.held, seen.faults, seen.lost)
    assert counts == (103, 4, 1, 4, 1, 0)
    assert seen.acted == {Reason.STARVED: 2}
    assert seen.cycle.count == 101
    assert seen.cycle.quantile(0.5) == pytest.approx(PERIOD, abs=3e-5)
    assert seen.cycle.largest == pytest.approx(0.05)
    assert seen.jitter.quantile(0.95) < 3e-5
    assert seen.jitter.largest == pytest.approx(0.04)
    assert seen.age.count == 97
    assert seen.age.largest == pytest.approx(0.97)
    assert seen.age.quantile(0.5) == pytest.approx(0.49, abs=2e-3)
    assert "103 cycles, 4 deadlines missed, 1 holds, 4 cycles held, 1 faults." in seen.lines()
    found = seen.to_dict()
    assert found["acted"] == {"starved": 2}
    assert (found["cycle"]["count"], found["jitter"]["largest_ms"]) == (101, 40.0)


def test_quantiles_are_those_of_numpy_up_to_a_bin() -> None:
    values = np.random.default_rng(0).exponential(0.01, 500)
    spread = RunningQuantiles(1e-4, 0.04)
    assert str(spread) == "none"
    assert spread.to_dict()["q50_ms"] is None
    for value in values:
        spread.add(float(value))
    for share in (0.1, 0.5, 0.9):
        assert spread.quantile(share) == pytest.approx(
            np.quantile(values, share, method="inverted_cdf"), abs=1e-4
        )
    assert spread.quantile(1.0) == spread.largest == values.max()


def test_a_jump_on_the_wire_is_found_unless_an_episode_begins_with_it(
    device: Device, tmp_path: Path
) -> None:
    check = WireCheck(device.watch, wire_lines(ServoBackend({}), tmp_path, LIMITS, PERIOD))
    left, right = check.arms["left"], check.arms["right"]
    for waist in (0.0, 0.005, 0.015, 0.03):  # Faster and faster, within 60 rad/s^2.
        device.cycle(waist)
        check.look()
    assert (check.goals, check.violations) == (10, 0)
    device.cycle(0.5, session=2)
    device.cycle(0.5, session=2)
    check.look()
    assert (check.violations, left.goals, right.goals) == (0, 7, 7)
    assert left.resumed == pytest.approx(0.47, abs=2e-3)
    assert right.resumed == 0.0
    device.cycle(0.6, session=2)
    check.look()
    assert (left.violations, right.violations) == (1, 0)
    assert left.velocity > 3.0
    device.cycle(0.6, session=2)  # Now it stands still at once, which is as sudden.
    device.arrive(ALOHA.home)  # The device process has not recorded this one yet.
    check.look()
    assert (left.violations, left.goals) == (2, 9)


@pytest.mark.parametrize("together", [True, False])
def test_the_first_goal_of_an_episode_may_be_a_step_away(together: bool) -> None:
    """A plan before the first cycle is followed in it; the start of the arm is not on the wire."""
    change = LIMITS.acceleration[0] * PERIOD**2
    for speeds, expected in (((2, 3, 4), 0), ((0, 1, 2), 0), ((3.2, 3, 4), 1), ((2, 3.9, 4), 1)):
        check, goals = (
            servo_check("left", LIMITS, PERIOD),
            np.tile(ALOHA.home[:7], (len(speeds) + 1, 1)),
        )
        check.take(np.tile(goals[0] + 0.1 * np.eye(7)[0], (3, 1)), begins=False)
        goals[1:, 0] += change * np.cumsum(speeds)
        for number, part in enumerate([goals] if together else np.split(goals, len(goals))):
            check.take(part, begins=number == 0, departed=True)
        assert check.violations == expected


def test_one_tick_is_rounding_and_two_are_not() -> None:
    step, tick = LIMITS.velocity[0] * PERIOD, table.TICK_RAD
    home = ALOHA.home[:7]
    for extra, expected in ((0.9, 0), (2.1, 1)):
        check = servo_check("left", LIMITS, PERIOD)
        ramp = np.cumsum(np.concatenate([np.arange(0.0, step, 0.004), [step, step + extra * tick]]))
        path = np.tile(home, (len(ramp), 1))
        path[:, 0] += ramp - 1.0
        check.take(path, begins=True)
        assert check.violations == expected
    beyond = np.tile(home, (1, 1))
    for extra, expected in ((0.4, 0), (0.6, 1)):
        check = servo_check("left", LIMITS, PERIOD)
        beyond[0, 1] = LIMITS.upper[1] + extra * tick
        check.take(beyond, begins=True)
        assert check.violations == expected
    assert servo_check("right", LIMITS, PERIOD).beyond == -np.inf


class Axes:
    """Writes into a file what an emulated controller would capture."""

    def __init__(self, folder: Path, arm: str = "left") -> None:
        self._file, self._limits = (
            folder / f"{arm}.bin",
            SafetyLimits.of(IIWA14_BIMANUAL, cartesian_speed=None, acceleration=20.0),
        )
        self._file.touch()
        check = axis_check(IIWA14_BIMANUAL, arm, self._limits, PERIOD)
        self.line = FriLine(self._file, version_of("1.15"), check)
        self.step, self.change = (
            self._limits.velocity[0] * PERIOD,
            self._limits.acceleration[0] * PERIOD**2,
        )
        self.period, self.place = 0, 0.0

    def arrive(self, *steps: float, active: bool = True, taken: bool = True) -> int:
        """Moves the first axis by steps, a period each, and returns the number of violations."""
        for step in steps:
            self.period += 1
            position = (IIWA14.home[0] + self.place + step, *IIWA14.home[1:7])
            self.place += step if taken else 0.0
            data = Command(self.period, self.period, position).to_bytes(version_of("1.15"))
            with self._file.open("ab") as stream:
                stream.write(Captured(self.period, active, data, taken).to_bytes())
        self.line.take(0)
        return self.line.check.violations

    def ramp(self, count: int) -> list[float]:
        """Returns steps that grow as fast as they may."""
        return [self.change * step for step in range(1, count + 1)]


def test_commands_over_fri_are_checked_against_the_limits_by_period(tmp_path: Path) -> None:
    axes = Axes(tmp_path)
    assert (
        axes.arrive(9.0, active=False, taken=False) == 0
    )  # While the controller holds its arm nothing moves.
    assert axes.arrive(0.0, *axes.ramp(6)) == 0
    assert axes.arrive(9.0, 9.0, taken=False) == 0  # Nor does what is lost.
    assert axes.arrive(*axes.ramp(7)) == 0  # After a gap, from rest.
    assert axes.line.check.acceleration == pytest.approx(1.0)
    assert axes.arrive(axes.change * 9.1) == 1
    axes.arrive(0.0, active=False, taken=False)
    assert axes.arrive(0.0) == 1
    axes.period += 1
    assert axes.arrive(axes.change * 1.1) == 2  # After a gap the limits are the same.
    assert axes.line.check.goals == 17
    assert axes.arrive(*axes.ramp(8), axes.step * 1.01) > 3


def test_an_arm_with_its_own_clock_may_change_its_speed_slightly_more(tmp_path: Path) -> None:
    first, second = Axes(tmp_path), Axes(tmp_path, "right")
    for axes, expected in ((first, 1), (second, 0)):
        assert axes.arrive(0.0, axes.change * 1.02) == expected
    assert second.arrive(second.change * 9.0) == 1


def test_arms_that_cannot_be_checked_are_refused(tmp_path: Path) -> None:
    class Others:
        embodiment = ALOHA

    with pytest.raises(
        ValueError,
        match="Goals can be checked for arms on serial lines, over FRI and over LCM only",
    ):
        wire_lines(Others(), tmp_path, LIMITS, PERIOD)  # type: ignore[arg-type]


def test_goals_are_found_among_other_packets(device: Device, tmp_path: Path) -> None:
    device.cycle(0.25)
    data = (tmp_path / "left.bin").read_bytes()
    line = protocol.sync_read(132, 4, MASTERS) + data + b"\xff\xff" + protocol.ping(1)
    goals = goals_of(protocol.Parser().feed(line))
    assert goals.shape == (2, 7)
    assert goals[1, 0] - goals[0, 0] == pytest.approx(0.25, abs=table.TICK_RAD)


def test_a_device_process_without_a_log_has_no_monitor() -> None:
    driver = AlohaDriver({"left": "/dev/left", "right": "/dev/right"})
    with (
        DeviceProcess(driver, ALOHA, LIMITS) as silent,
        pytest.raises(ValueError, match="needs a device process with an incident log"),
    ):
        TimingMonitor.of(silent, ALOHA, PERIOD)


@pytest.mark.parametrize(
    ("steps", "periods", "after_read", "violations"),
    [
        ([3, 3, 3], [1.0, 1.0, 1.0], 0.1, 0),
        ([3, 0, 0], [1.0, 1.0, 1.0], 0.1, 1),  # A sudden stop.
        ([3, 1, 2], [1.0, 1.0, 1.0], 0.1, 1),
        ([3, 5, 5], [1.0, 1.0, 1.0], 0.1, 1),  # A jump is one at any time of sending.
        ([3, 5, 5], [1.0, 2.2, 1.0], 0.9, 1),
        ([3, 5, 5], [1.0, 9.0, 1.0], 8.9, 2),  # And the next step is not one from rest.
        ([3, 1, 2], [1.0, 2.2, 1.0], 0.1, 0),  # From rest after a gap.
        ([3, 3, 3], [1.0, 2.2, 1.0], 0.1, 0),  # Late only on its way.
        ([3, 3, 3], [1.0, 2.7, 1.0], 0.1, 1),  # At the speed from before a gap.
        ([3, 3, 3], [1.0, 9.0, 1.0], 0.1, 1),
        ([3, 3, 1], [1.0, 9.0, 1.0], 0.1, 2),
        ([3, 1, 2], [1.0, 9.0, 1.0], 0.1, 0),
        ([3, 1, 2], [1.0, 9.0, 1.0], 8.9, 0),
        ([3, 3, 1], [1.0, 9.0, 1.0], 8.9, 0),  # A pause after the decision on the goal.
        ([3, 3, 3], [1.0, 9.0, 0.1], 8.9, 1),  # Even if the next goal follows at once.
        ([3, 3, 3], [1.0, 9.0, 9.0], 8.9, 1),
        ([3, 3, 1], [1.0, 1.2, 1.1], 0.1, 1),
        ([3, 3, 1], [1.0, 1.2, 1.1], 0.5, 0),  # The goal before was sent that much earlier.
    ],
)
def test_goals_of_servos_are_judged_by_the_times_at_which_they_were_sent(
    device: Device,
    tmp_path: Path,
    steps: list[int],
    periods: list[float],
    after_read: float,
    violations: int,
) -> None:
    """Each goal arrives some periods after the read of its cycle, at most as many as given."""
    limits = SafetyLimits.of(ALOHA, cartesian_speed=None, acceleration=60.0)
    change = 60.0 * PERIOD**2
    file = tmp_path / "left.bin"
    times = ArrivalFile(file)
    times.note(file.stat().st_size, 0.0)
    seconds = place = 0.0
    for step, gap in zip([0, 1, 2, *steps], [1.0, 1.0, 1.0, *periods], strict=True):
        place += step * change
        with file.open("ab") as stream:
            read = protocol.sync_read(132, 4, MASTERS)
            stream.write(read)
        times.note(len(read), seconds + (gap - min(after_read, 0.99 * gap)) * PERIOD)
        seconds += gap * PERIOD
        goal = ALOHA.home.copy()
        goal[0] += place
        size = file.stat().st_size
        device.arrive(goal)
        times.note(file.stat().st_size - size, seconds)
    times.close()
    line = ServoLine(file, servo_check("left", limits, PERIOD), PERIOD)
    line.take(1 << 40)
    assert line.check.goals == 7
    assert line.check.violations == violations


@pytest.mark.parametrize("parts", [[1], [2, 1], [1, 2]])
def test_a_goal_was_sent_between_the_bytes_before_it_and_its_arrival(
    device: Device, tmp_path: Path, parts: list[int]
) -> None:
    """Bytes that arrived together may have been sent at any time since the bytes before them."""
    file = tmp_path / "left.bin"
    times = ArrivalFile(file)
    captured = CapturedGoals(file)
    times.note(file.stat().st_size, 0.0)
    for number, count in enumerate(parts, 1):
        size = file.stat().st_size
        for _ in range(count):
            device.arrive(ALOHA.home)
        times.note(file.stat().st_size - size, float(number))
    times.close()
    goals, sent = captured.fresh()
    assert goals.shape == (1 + sum(parts), 7)
    expected = [
        (number - 1.0, float(number)) for number, count in enumerate(parts, 1) for _ in range(count)
    ]
    assert np.isnan(sent[0, 0])
    assert sent[0, 1] == 0.0
    assert sent[1:].tolist() == [list(pair) for pair in expected]
