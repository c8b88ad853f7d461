"""Stages that check the reported state of the robot."""

import numpy as np
import pytest
from tests.real_robot.filter_rig import LIMITS, PERIOD, Run, chunk, moved, state

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.driver_interface.interlocks import Interlock
from stringline.real_robot.safety.reasons import Mode, Reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"servo_error": np.eye(18, dtype=np.uint8)[4] * 0x20}, Reason.SERVO_ERROR),
        ({"lost": np.array([False, True])}, Reason.LINK_LOST),
        (
            {"servo_misses": np.eye(18, dtype=np.int32)[4] * LIMITS.fault_after_misses},
            Reason.SERVO_SILENT,
        ),
    ],
)
def test_a_fault_holds_both_arms_until_a_reset(changes: dict[str, object], reason: Reason) -> None:
    run = Run()
    for _ in range(10):
        run.step(moved(left__waist=2.0, right__waist=2.0))
    run.step(moved(left__waist=2.0), **changes)
    assert run.filter.mode is Mode.FAULT
    for _ in range(20):
        run.step(moved(left__waist=2.0, right__waist=2.0))
    assert run.filter.fault_reasons == reason
    assert run.speed() == 0.0
    run.filter.start(state(run.path[-1]), 1)
    assert run.filter.admit(chunk(start=run.now), 1, run.now)
    run.step(run.path[-1])
    assert run.filter.mode is Mode.RUN


def test_a_few_missed_answers_do_not_matter_and_several_make_the_arms_hold() -> None:
    run, silent = Run(), np.eye(18, dtype=np.int32)[4]
    run.step(ALOHA.home, servo_misses=silent * (LIMITS.hold_after_misses - 1))
    assert run.filter.mode is Mode.RUN
    run.step(ALOHA.home, servo_misses=silent * LIMITS.hold_after_misses)
    assert run.filter.mode is Mode.HOLD
    run.step(ALOHA.home)
    assert run.filter.mode is Mode.RUN


def test_a_controller_without_commands_makes_all_arms_hold_until_it_accepts_them() -> None:
    run, elsewhere = Run(), moved(left__waist=0.7)
    for _ in range(10):
        run.step(moved(left__waist=2.0, right__waist=2.0))
    interlock, taken = np.array([Interlock.ENTERED, 0], np.uint8), np.array([0, 0], np.uint8)
    for _ in range(12):
        run.step(moved(left__waist=2.0, right__waist=2.0), interlock=interlock, commanded=elsewhere)
        assert run.filter.mode is Mode.HOLD
        assert run.filter.reasons == Reason.CONTROLLER_REFUSES
        assert np.array_equal(run.path[-1][:7], elsewhere[:7])
    assert run.path[-1][7] > 0.05  # The other arm has braked on its own way.
    assert run.path[-1][7] == run.path[-2][7]
    run.step(moved(left__waist=2.0, right__waist=2.0), interlock=taken, commanded=elsewhere)
    assert run.filter.mode is Mode.RUN
    assert 0.7 < run.path[-1][0] <= 0.7 + LIMITS.acceleration[0] * PERIOD**2 + 1e-9


def test_an_arm_with_a_poor_connection_brakes_on_its_way() -> None:
    run = Run()
    for _ in range(10):
        run.step(moved(left__waist=2.0))
    before = run.speed()
    run.step(
        moved(left__waist=2.0),
        interlock=np.array([Interlock.QUALITY, 0], np.uint8),
        commanded=ALOHA.home,
    )
    assert run.filter.reasons == Reason.CONTROLLER_REFUSES
    assert before - LIMITS.acceleration[0] * PERIOD - 1e-9 <= run.speed() < before


def test_an_arm_without_a_link_starts_again_from_rest_at_the_last_command_sent() -> None:
    run = Run()
    for _ in range(5):
        run.step(moved(left__waist=2.0, right__waist=2.0))
    steps = np.diff(np.array(run.path), axis=0)
    left, right = run.path[-1][0], run.path[-1][7]
    for _ in range(3):
        run.step(moved(left__waist=2.0, right__waist=2.0), accepts=np.array([False, True]))
        assert run.filter.mode is Mode.RUN
        assert run.path[-1][0] == left
    assert run.path[-1][7] > right + 3 * steps[-1][7]
    run.step(moved(left__waist=2.0, right__waist=2.0), accepts=np.array([True, True]))
    gained = LIMITS.acceleration[0] * PERIOD**2
    assert steps[-1][0] > gained
    assert 0.0 < run.path[-1][0] - left <= gained + 1e-9
    assert run.filter.mode is Mode.RUN


@pytest.mark.parametrize("bar", [Interlock.TRACKING_ERROR, Interlock.OPERATION_MODE])
def test_an_arm_that_still_follows_commands_is_braked_by_them_when_it_has_to_stop(
    bar: Interlock,
) -> None:
    run, interlock = Run(), np.array([bar, 0], np.uint8)
    for _ in range(10):
        run.step(moved(left__waist=2.0))
    before = run.speed()
    run.step(moved(left__waist=2.0), interlock=interlock, commanded=run.path[-1])
    assert run.filter.fault_reasons == Reason.STOPPED
    assert before - LIMITS.acceleration[0] * PERIOD - 1e-9 <= run.speed() < before
    run.step(
        moved(left__waist=2.0), interlock=interlock, commanded=moved(left__waist=0.7)
    )  # It has restarted elsewhere.
    assert run.path[-1][0] == pytest.approx(0.7)


def test_a_controller_that_has_stopped_its_arm_is_a_fault_until_a_reset() -> None:
    run, elsewhere = Run(), moved(left__waist=-0.5)
    run.step(moved(left__waist=2.0))
    run.step(
        moved(left__waist=2.0),
        interlock=np.array([Interlock.SAFETY, 0], np.uint8),
        commanded=elsewhere,
    )
    assert run.filter.fault_reasons == Reason.STOPPED
    run.step(moved(left__waist=2.0), commanded=elsewhere)
    assert run.filter.mode is Mode.FAULT
    run.filter.start(state(ALOHA.home, commanded=elsewhere), 1)
    assert run.filter.admit(chunk(start=run.now), 1, run.now)
    run.path.append(elsewhere)
    run.step(moved(left__waist=2.0))
    assert run.filter.mode is Mode.RUN
    assert -0.5 < run.path[-1][0] < -0.49


@pytest.mark.parametrize(
    ("temperature", "mode"), [(69, Mode.RUN), (70, Mode.HOLD), (78, Mode.FAULT)]
)
def test_a_warm_servo_makes_the_arms_hold_and_a_hot_one_is_a_fault(
    temperature: int, mode: Mode
) -> None:
    run, degrees = Run(), np.full(18, 40, np.uint8)
    degrees[3] = temperature
    run.step(ALOHA.home, temperature=degrees)
    assert run.filter.mode is mode
    assert run.filter.amounts.get(Reason.HOT, 0.0) == (0.0 if mode is Mode.RUN else temperature)


@pytest.mark.parametrize(("age_s", "mode"), [(3 * PERIOD, Mode.RUN), (3.1 * PERIOD, Mode.HOLD)])
def test_a_state_is_valid_for_three_periods(age_s: float, mode: Mode) -> None:
    run = Run()
    run.now = 0.5
    run.step(ALOHA.home, time=run.now - age_s)
    assert run.filter.mode is mode
    assert (Reason.OLD_STATE in run.filter.reasons) == (mode is Mode.HOLD)
