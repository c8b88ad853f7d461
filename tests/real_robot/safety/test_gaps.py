"""Gaps in the commands: the limits of motion hold by the time stamps of what was sent."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.real_robot.filter_rig import LIMITS, PERIOD, Run, moved

from stringline.real_robot.device.device_loop import SuspensionClock
from stringline.real_robot.safety.reasons import Mode, Reason
from stringline.real_robot.safety.stage_context import Freshness

Vector = NDArray[np.float64]

FAR = moved(left__waist=2.0, right__waist=-1.5, left__elbow=0.4)


def moving(cycles: int = 8) -> Run:
    """Returns a filter whose arms move."""
    run = Run()
    for _ in range(cycles):
        run.step(FAR)
    assert run.speed() > 3 * LIMITS.acceleration[0] * PERIOD
    return run


def assert_starts_from_rest(run: Run) -> None:
    """Asserts that the last command is at most one step of acceleration from rest."""
    step = np.abs(run.path[-1] - run.path[-2])
    assert (step <= LIMITS.acceleration * PERIOD**2 + 1e-9).all()


@pytest.mark.parametrize("gap_s", [0.03, 0.1, 0.3])
def test_a_stopped_device_process_holds_and_starts_again_from_rest(gap_s: float) -> None:
    run = moving()
    run.now += gap_s - PERIOD
    run.step(FAR)
    assert (run.filter.mode, run.filter.reasons) == (Mode.HOLD, Reason.GAP)
    assert run.filter.amounts[Reason.GAP] == pytest.approx(gap_s)
    assert run.speed() == 0.0
    run.step(FAR)
    assert run.filter.mode is Mode.RUN
    assert run.speed() > 0.0
    assert_starts_from_rest(run)


def test_a_long_stop_is_a_fault_that_only_a_reset_ends() -> None:
    run = moving()
    run.now += 3.0
    run.step(FAR)
    assert (run.filter.mode, run.filter.fault_reasons) == (Mode.FAULT, Reason.GAP)
    assert run.speed() == 0.0
    run.step(FAR)
    assert run.filter.mode is Mode.FAULT
    assert run.filter.at_rest


def test_a_late_cycle_is_no_hold_but_starts_from_rest() -> None:
    run = moving()
    run.now += PERIOD
    run.step(FAR)
    assert run.filter.mode is Mode.RUN
    assert_starts_from_rest(run)


def test_commands_in_even_periods_continue_although_their_decisions_are_not_even() -> None:
    """Each one waits for its time, so a decision may come six milliseconds early or at once."""
    run = moving()
    due_s = run.now
    for early_s in (0.006, 0.0, 0.006, 0.0, 0.006, 0.006, 0.0):
        run.now = due_s - early_s
        before = run.path[-1] - run.path[-2]
        run.step(FAR, freshness=Freshness(ahead_s=early_s))
        change = run.path[-1] - run.path[-2] - before
        assert (np.abs(change) <= LIMITS.acceleration * PERIOD**2 + 1e-9).all()
        due_s += PERIOD


@pytest.mark.parametrize(("between", "stands"), [(1.2, False), (1.49, False), (1.51, True)])
def test_a_gap_begins_when_the_last_command_was_sent(between: float, stands: bool) -> None:
    """A command that was sent half a period after its decision moves the arms from then on."""
    run = moving()
    delayed_s = 0.5 * PERIOD
    run.now += delayed_s + (between - 1.0) * PERIOD
    before = run.path[-1] - run.path[-2]
    run.step(FAR, freshness=Freshness(delayed_s=delayed_s))
    change = run.path[-1] - run.path[-2] - before
    if stands:
        assert_starts_from_rest(run)
    else:
        assert (np.abs(change) <= LIMITS.acceleration * PERIOD**2 + 1e-9).all()


def test_the_delay_of_a_command_is_that_of_the_arms_that_it_was_sent_to() -> None:
    """An arm that took no command in the last cycle has stood since the one before."""
    run = moving()
    run.step(FAR, accepts=np.array([True, False]))
    run.now += 0.4 * PERIOD
    before = run.path[-1] - run.path[-2]
    run.step(FAR, freshness=Freshness(delayed_s=0.9 * PERIOD))
    left, right = np.split(run.path[-1] - run.path[-2] - before, 2)
    largest = LIMITS.acceleration * PERIOD**2 + 1e-9
    assert (np.abs(left) <= largest[:7]).all()
    assert (np.abs(right) <= largest[7:]).all()
    assert np.abs(run.path[-1] - run.path[-2])[7:].any()


def test_a_suspension_of_the_computer_counts_although_the_clock_stands_still() -> None:
    run = moving()
    run.step(FAR, freshness=Freshness(suspended_s=60.0))
    assert (run.filter.mode, run.filter.fault_reasons) == (Mode.FAULT, Reason.GAP)
    assert run.speed() == 0.0


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.3, 40.0), min_size=5, max_size=40), st.integers(0, 2**32 - 1))
def test_speed_and_acceleration_by_time_stamps_stay_within_the_limits(
    periods: list[float], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    run = moving()
    before = run.path[-1] - run.path[-2]
    last = np.full(len(before), run.now - PERIOD)
    for gap in periods:
        run.now += (gap - 1) * PERIOD
        now = run.now
        # An arm without a link gets no command, as if messages were lost.
        accepts = np.repeat(rng.uniform(size=2) < 0.8, 7)
        target = FAR + rng.uniform(-1.0, 1.0)
        sent = run.step(target, accepts=accepts[::7]) - run.path[-2]
        assert not sent[~accepts].any()
        assert (np.abs(sent) <= LIMITS.velocity * PERIOD + 1e-9).all()
        # An arm that got no command for more than one and a half periods stands.
        change = sent - np.where(now - last > 1.5 * PERIOD, 0.0, before)
        largest = LIMITS.acceleration * PERIOD**2 + 1e-9
        assert (np.abs(change) <= largest)[accepts].all()
        before = np.where(accepts, sent, before)
        last = np.where(accepts, now, last)


def test_a_suspension_is_measured_once() -> None:
    clocks = {"awake": 10.0, "passed": 50.0}
    clock = SuspensionClock(lambda: clocks["awake"], lambda: clocks["passed"])
    for name in clocks:
        clocks[name] += 1.0
    assert clock.elapsed_s() == 0.0
    clocks["passed"] += 7.0
    assert clock.elapsed_s() == pytest.approx(7.0)
    assert clock.elapsed_s() == 0.0


def test_the_clocks_of_this_computer_agree_while_it_is_awake() -> None:
    clock = SuspensionClock()
    assert clock.elapsed_s() == 0.0


def test_an_arm_without_commands_for_too_long_is_a_fault() -> None:
    run = Run()
    target = moved(left__waist=0.3)
    run.step(target, freshness=Freshness(unsent_s=LIMITS.longest_gap_s))
    assert run.filter.mode is Mode.RUN
    run.step(target, freshness=Freshness(unsent_s=LIMITS.longest_gap_s + 0.01))
    assert run.filter.mode is Mode.FAULT
    assert run.filter.fault_reasons == Reason.UNSENT
    assert run.filter.amounts[Reason.UNSENT] == pytest.approx(LIMITS.longest_gap_s + 0.01)
