"""Commands that a driver did not send: holds that are counted, and a fault if they last."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.conftest import Rig
from tests.real_robot.device_rig import PERIOD
from tests.real_robot.filter_rig import state as measured

from stringline import ALOHA, ActionChunk, SafetyLimits
from stringline.real_robot.device.device_loop import DeviceLoop
from stringline.real_robot.device.device_state import chunk_layout, chunk_record, state_layout
from stringline.real_robot.driver_interface.driver import SafeCommand
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.ipc.mailbox import Mailbox, shared_memory
from stringline.real_robot.operator.live_status import LiveStatus, report_counts
from stringline.real_robot.safety.reasons import NO_FOLLOWING_ERROR, Mode, Reason

Vector = NDArray[np.float64]
BOTH = np.array([True, True])
SLOW_LIMITS = SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0, acceleration=10.0)


class Swallowing(AlohaDriver):
    """A driver that sends some commands to no arm, or to one of them only.

    Attributes:
        swallows: (2,) the arms to which it sends nothing; it says so.
        tells: Whether `write` says what it sent.
    """

    swallows, tells = np.array([False, False]), True

    def write(self, command: SafeCommand) -> Any:
        if self.swallows.all():
            return ~BOTH if self.tells else None
        lines = [arm.bus for arm in self._arms]
        for line, swallowed in zip(lines, self.swallows, strict=True):
            line.send = (lambda _: None) if swallowed else type(line).send.__get__(line)  # type: ignore[method-assign]
        before = self._writes.copy()
        super().write(command)
        for line in lines:
            line.send = type(line).send.__get__(line)  # type: ignore[method-assign]
        self._writes = np.where(self.swallows, before, self._writes)
        return ~self.swallows


class SwallowingRig(Rig):
    """A rig with such a driver."""

    DRIVER = Swallowing

    @property
    def swallowing(self) -> Swallowing:
        assert isinstance(self.driver, Swallowing)
        return self.driver


@pytest.fixture
def rig(waiting_emulator: Emulator, tmp_path: Path) -> Iterator[SwallowingRig]:
    limits = SafetyLimits.of(
        ALOHA, cartesian_speed=None, soft_start_s=0.0, acceleration=10.0, speed_share=0.5
    )
    made = SwallowingRig(waiting_emulator, tmp_path, limits)
    yield made
    made.close()


def moving(rig: SwallowingRig) -> Vector:
    """Moves the waist of both arms; returns the target."""
    goal = ALOHA.home.copy()
    goal[[0, 7]] += 1.0
    rig.want(goal, 200)
    rig.cycle(25)
    assert np.diff([path[0] for path in rig.goals()[0][-2:]])[0] > 0.01
    return goal


def test_a_command_that_was_not_sent_is_a_hold_and_the_next_starts_from_rest(
    rig: SwallowingRig,
) -> None:
    moving(rig)
    sent = [len(path) for path in rig.goals()]
    before = rig.state.command
    rig.swallowing.swallows = BOTH
    state = rig.cycle()
    assert state.mode is Mode.HOLD
    assert state.reasons & Reason.UNSENT
    assert state.counts[Reason.UNSENT] == 1
    np.testing.assert_allclose(state.command, before)
    rig.swallowing.swallows = ~BOTH
    assert rig.cycle(10).mode is Mode.RUN
    for path, count in zip(rig.goals(), sent, strict=True):
        steps = np.diff(path[count - 1 :, 0])
        assert len(steps) == 10
        assert steps[0] <= rig.limits.acceleration[0] * PERIOD**2 + 0.0016, "from rest"
        assert steps[-1] > 0.004


def test_only_the_arm_that_was_not_sent_its_command_stands(rig: SwallowingRig) -> None:
    moving(rig)
    sent = [len(path) for path in rig.goals()]
    rig.swallowing.swallows = np.array([True, False])
    for _ in range(5):
        state = rig.cycle()
        assert state.mode is Mode.HOLD
    rig.swallowing.swallows = ~BOTH
    assert rig.cycle(10).mode is Mode.RUN
    left, right = (path[count - 1 :, 0] for path, count in zip(rig.goals(), sent, strict=True))
    assert (len(left), len(right)) == (11, 16)
    assert np.diff(left)[0] <= rig.limits.acceleration[0] * PERIOD**2 + 0.0016
    changes = np.abs(np.diff(right, n=2))
    assert changes.max() <= rig.limits.acceleration[0] * PERIOD**2 + 2 * 0.0016
    assert np.diff(right).min() > 0.01, "it did not stop"


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("swallows", [BOTH, np.array([False, True])])
def test_an_arm_without_commands_is_a_fault_with_its_reason(
    rig: SwallowingRig, swallows: NDArray[np.bool_], *, tells: bool
) -> None:
    """Also where a driver does not tell what it sent."""
    moving(rig)
    rig.swallowing.swallows, rig.swallowing.tells = swallows, tells
    cycles = rig.until(lambda state: state.mode is Mode.FAULT, 40)
    assert cycles * PERIOD == pytest.approx(rig.limits.longest_gap_s, abs=3 * PERIOD)
    assert rig.state.fault_reasons == Reason.UNSENT
    assert "a command was not sent" in rig.words()
    rig.swallowing.swallows = ~BOTH
    assert rig.cycle(5).mode is Mode.FAULT, "until an operator resets it"
    rig.begin()
    rig.want(ALOHA.home, 100)
    assert rig.cycle(3).mode is Mode.RUN


def test_the_share_of_unsent_commands_is_shown(
    rig: SwallowingRig, capsys: pytest.CaptureFixture[str]
) -> None:
    moving(rig)
    shown: list[str] = []
    with LiveStatus(10.0) as status:
        status._bar.set_description_str = lambda text, **_: shown.append(text)  # type: ignore[method-assign]
        status.show(rig.cycle(), 0.1)
        for cycle in range(40):
            rig.swallowing.swallows = BOTH if cycle % 4 == 0 else ~BOTH
            status.show(rig.cycle(), 0.2)
    assert "unsent" not in shown[0]
    assert shown[-1].startswith("RUN 24% unsent")
    report_counts(rig.state.counts, 66, NO_FOLLOWING_ERROR)
    assert "a command was not sent, not in time, or lost" in (out := capsys.readouterr().out)
    assert "(15.2% of the cycles)" in out


class Slow:
    """A driver without arms whose reads take a while, and the time."""

    arms, servos, clocked_by_robot = ("left", "right"), (), False
    writes = np.zeros(2, np.int64)

    def __init__(self) -> None:
        self.now, self.takes, self.longer_s, self.written = 5.0, 0.0, 0.0, list[float]()
        self.path = list[Vector]()

    def clock(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds + self.longer_s

    def read(self, clock: Callable[[], float]) -> Any:
        self.now += self.takes
        return measured(time=self.now)

    def write(self, command: SafeCommand) -> NDArray[np.bool_]:
        self.written.append(self.now)
        self.path.append(command.position)
        return BOTH


@pytest.fixture
def slow() -> tuple[Any, DeviceLoop]:
    """A driver and its loop, whose first episode has begun."""
    slow: Any = Slow()
    layouts = chunk_layout(14), state_layout(14, 18, 2)
    chunks, states = (Mailbox(shared_memory(one, 8), one) for one in layouts)
    loop = DeviceLoop(
        slow,
        ALOHA,
        SLOW_LIMITS,
        PERIOD,
        chunks=chunks,
        states=states,
        state_layout=layouts[1],
        wait=slow.wait,
    )
    loop.begin(0, slow.clock)
    return slow, loop


def test_a_command_whose_wait_was_interrupted_is_not_sent(slow: tuple[Any, DeviceLoop]) -> None:
    """As by a suspension of the process: the arms have come to rest meanwhile."""
    driver, loop = slow
    for longer_s, sent in ((0.0, 1), (0.0, 2), (0.1, 2)):
        driver.longer_s = longer_s
        loop.observe(driver.clock)
        loop.act(driver.clock)
        assert len(driver.written) == sent
    assert Reason.GAP in loop._filter.reasons
    assert loop._filter.mode is Mode.HOLD


def test_commands_are_spaced_by_the_time_of_the_last_one(slow: tuple[Any, DeviceLoop]) -> None:
    """Cycles that begin a period apart, whose reads take 0 to 6 ms."""
    driver, loop = slow
    random = np.random.default_rng(0)
    for cycle in range(200):
        driver.now = max(driver.now, 6.0 + cycle * PERIOD)
        driver.takes = float(random.uniform(0.0, 0.006))
        loop.observe(driver.clock)
        loop.act(driver.clock)
    gaps = np.diff(driver.written)
    assert gaps.min() >= 0.98 * PERIOD - 1e-9
    assert gaps.mean() == pytest.approx(PERIOD, rel=0.01), "without a drift"


def test_spaced_commands_stay_within_acceleration_although_reads_are_uneven(
    slow: tuple[Any, DeviceLoop],
) -> None:
    """A command that waited for its time, and the next after a slow read, have no gap between."""
    driver, loop = slow
    way = np.tile(ALOHA.home, (100, 1))
    way[:, 0] += 0.25
    plan = ActionChunk(driver.now + 0.02 * np.arange(100.0), way.astype(np.float32))
    loop._chunks.put(chunk_record(plan, 0, 14))
    for cycle in range(35):
        driver.now = max(driver.now, 5.0 + cycle * PERIOD)
        driver.takes = 0.0 if cycle % 10 else 0.006
        loop.observe(driver.clock)
        loop.act(driver.clock)
    changes = np.abs(np.diff(driver.path, n=2, axis=0))
    assert np.ptp([command[0] for command in driver.path]) > 0.05
    assert (changes <= SLOW_LIMITS.acceleration * PERIOD**2 + 1e-9).all()
