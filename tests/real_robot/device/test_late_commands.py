"""A device process that stops between the decision of a command and its sending."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from tests.real_robot.conftest import Rig
from tests.real_robot.device_rig import PERIOD

from stringline import ALOHA, SafetyLimits
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.safety.reasons import Mode, Reason


@pytest.fixture
def slow_to_start(make_rig: Callable[..., Rig]) -> Rig:
    """A rig whose arms need many periods to reach their speed."""
    limits = SafetyLimits.of(
        ALOHA, cartesian_speed=None, soft_start_s=0.0, acceleration=5.0, speed_share=0.5
    )
    return make_rig(limits)


def stopped(rig: Rig, gap_s: float) -> Callable[[], float]:
    """Returns a clock whose first time is that of the decision, and whose second is later."""
    times = itertools.chain([rig.now], itertools.repeat(rig.now + gap_s))
    return lambda: next(times)


@pytest.mark.parametrize("gap_s", [1.1 * PERIOD, 0.3])
def test_a_command_is_not_sent_after_its_period(slow_to_start: Rig, gap_s: float) -> None:
    rig = slow_to_start
    target = ALOHA.home.copy()
    target[0] += 0.5
    rig.want(target)
    before = rig.cycle(20)
    assert np.diff(rig.goals()[0][-2:, 0])[0] > 2 * rig.limits.acceleration[0] * PERIOD**2
    sent = len(rig.goals()[0])
    rig.loop.observe(rig.clock)
    rig.loop.act(stopped(rig, gap_s))
    late = rig.state
    rig.now += gap_s
    rig.want(target)
    rig.cycle(60)
    assert late.mode is Mode.HOLD
    assert late.reasons & Reason.GAP
    assert late.arms.time > before.arms.time
    assert late.command == pytest.approx(before.command)
    assert late.writes.tolist() == before.writes.tolist()
    goals = rig.goals()[0][:, 0]
    assert goals[-1] - goals[sent] > 0.1
    assert (
        abs(goals[sent] - goals[sent - 1])
        <= rig.limits.acceleration[0] * PERIOD**2 + table.TICK_RAD
    )


@pytest.mark.parametrize("between", [1.0, 1.4])
def test_arms_go_on_after_a_command_that_was_sent_late(slow_to_start: Rig, between: float) -> None:
    """The next decision is later than usual after the last one, but not after its sending."""
    rig = slow_to_start
    target = ALOHA.home.copy()
    target[0] += 0.5
    rig.want(target)
    rig.cycle(20)
    late_s = 0.8 * PERIOD
    rig.loop.observe(rig.clock)
    rig.loop.act(stopped(rig, late_s))
    rig.now += late_s + between * PERIOD
    rig.cycle(2)
    steps = np.diff(rig.goals()[0][-6:, 0])
    assert (steps > 2 * rig.limits.acceleration[0] * PERIOD**2).all()
    most = rig.limits.acceleration[0] * PERIOD**2 + 2 * table.TICK_RAD
    assert (np.abs(np.diff(steps)) <= most).all()


def test_arms_that_wait_too_long_after_a_late_command_start_from_rest(slow_to_start: Rig) -> None:
    rig = slow_to_start
    target = ALOHA.home.copy()
    target[0] += 0.5
    rig.want(target)
    rig.cycle(20)
    late_s = 0.8 * PERIOD
    rig.loop.observe(rig.clock)
    rig.loop.act(stopped(rig, late_s))
    rig.now += late_s + 1.6 * PERIOD
    rig.cycle()
    step = np.diff(rig.goals()[0][-2:, 0])[0]
    assert abs(step) <= rig.limits.acceleration[0] * PERIOD**2 + table.TICK_RAD


def test_a_command_within_its_period_is_sent(rig: Rig) -> None:
    target = ALOHA.home.copy()
    target[0] += 0.5
    rig.want(target)
    before = rig.cycle(20)
    rig.loop.observe(rig.clock)
    rig.loop.act(stopped(rig, 0.9 * PERIOD))
    assert rig.state.mode is Mode.RUN
    assert (rig.state.writes == before.writes + 1).all()
