"""The soft start: the limits grow while a plan is followed, anew after every stop by a hold."""

from typing import Any

import numpy as np
import pytest
from tests.real_robot.filter_rig import PERIOD, Run, moved

from stringline import ALOHA, SafetyLimits
from stringline.real_robot.safety.reasons import Mode
from stringline.real_robot.safety.stage_context import Freshness

FAR = moved(left__waist=2.8)
SOFT = SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=1.0)


def starts_softly(run: Run) -> bool:
    """Follows a far target; returns whether speed and acceleration grow from a tenth."""
    for cycle in range(60):
        run.step(FAR)
        share = 0.1 + 0.9 * cycle * PERIOD / SOFT.soft_start_s
        speeds = np.diff(np.array(run.path[max(len(run.path) - 3, 0) :]), axis=0) / PERIOD
        soft = (np.abs(speeds) <= share * SOFT.velocity + 1e-9).all()
        changes = np.abs(np.diff(speeds, axis=0)) / PERIOD
        if not soft or not (changes <= share * SOFT.acceleration + 1e-6).all():
            return False
    return bool(max(np.abs(np.diff(np.array(run.path[-61:]), axis=0)).max(axis=1)) > 0.2 * PERIOD)


@pytest.mark.parametrize(
    "waiting",
    [
        {},
        {"freshness": Freshness(permission_age_s=9.0)},
        {"servo_misses": np.full(18, 5, np.int32)},
    ],
)
def test_the_soft_start_counts_only_cycles_that_follow_a_plan(waiting: dict[str, Any]) -> None:
    """A slow first answer of a policy, or one after a reconnection, does not use it up."""
    run = Run(SOFT)
    for _ in range(250):
        run.step(FAR if waiting else None, **waiting)
    assert starts_softly(run)


@pytest.mark.parametrize(
    "held",
    [
        {"freshness": Freshness(image_ages_s=(9.0,))},
        {"freshness": Freshness(supervisor_age_s=9.0)},
        {"freshness": Freshness(permission_age_s=9.0)},
        {"servo_misses": np.full(18, 5, np.int32)},
        {"time": -9.0},
    ],
)
def test_after_a_hold_the_soft_start_begins_anew(held: dict[str, Any]) -> None:
    run = Run(SOFT)
    for _ in range(150):
        run.step(moved(left__waist=0.6))
    for _ in range(40):
        run.step(FAR, **held)
    assert run.speed() == 0.0
    assert run.filter.mode is Mode.HOLD
    assert starts_softly(run)


def test_after_a_command_that_was_not_sent_the_soft_start_begins_anew() -> None:
    run = Run(SOFT)
    for _ in range(150):
        run.step(moved(left__waist=0.6))
    run.step(FAR)
    run.filter.withdraw(2 * PERIOD)
    run.path[-1] = run.path[-2]
    assert starts_softly(run)


@pytest.mark.parametrize(("wait_s", "soft"), [(0.5, False), (2.5, True)])
def test_a_short_wait_for_the_next_plan_is_no_hold(wait_s: float, *, soft: bool) -> None:
    run = Run(SOFT)
    for _ in range(150):
        run.step(moved(left__waist=0.6))
    for _ in range(round(wait_s / PERIOD)):
        run.step(None)
    assert run.speed() == 0.0
    assert starts_softly(run) is soft


def test_a_hold_that_ends_in_motion_keeps_the_limits_of_acceleration() -> None:
    run = Run(SOFT)
    for _ in range(70):
        run.step(FAR)
    fast = run.speed()
    for _ in range(2):
        run.step(FAR, freshness=Freshness(image_ages_s=(9.0,)))
    for _ in range(40):
        run.step(FAR)
    speeds = np.diff(np.array(run.path[-45:]), axis=0) / PERIOD
    assert fast > 1.0
    assert (np.abs(np.diff(speeds, axis=0)) / PERIOD <= SOFT.acceleration + 1e-6).all()
