"""The stages of the safety filter, one by one.

Effort is in `test_effort.py`, what holds for all streams in `test_filter_properties.py`.
"""

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.filter_rig import LIMITS, PERIOD, Run, chunk, moved, state

from stringline import ALOHA, ActionChunk, SafetyLimits
from stringline.real_robot.safety.clearance import Clearance
from stringline.real_robot.safety.reasons import NO_FOLLOWING_ERROR, Mode, Reason
from stringline.real_robot.safety.stage_context import Freshness

Vector = NDArray[np.float64]


FAR = moved(left__waist=1.0)


def test_a_near_target_is_passed_unchanged() -> None:
    run, target = Run(), moved(left__waist=0.005)
    for _ in range(5):
        run.step(target)
    assert np.allclose(run.path[-1], target)
    assert run.filter.mode is Mode.RUN
    assert run.filter.reasons == Reason(0)


@pytest.mark.parametrize(
    "bad", [np.full(14, np.nan), np.full(14, np.inf), np.zeros(13), np.zeros((14, 1))]
)
def test_an_invalid_target_brakes_the_arms(bad: Vector) -> None:
    run = Run()
    for _ in range(10):
        run.step(moved(left__waist=2.0))
    assert run.speed() > 1.0
    for _ in range(10):
        run.step(bad)
        assert run.filter.mode is Mode.HOLD
        assert Reason.BAD_TARGET in run.filter.reasons
    assert run.speed() == 0.0


def test_without_a_target_the_arms_hold_until_one_comes() -> None:
    run = Run()
    run.step(None)
    assert run.filter.mode is Mode.HOLD
    assert run.filter.reasons == Reason.STARVED
    run.step(moved(left__waist=0.001))
    assert run.filter.mode is Mode.RUN


def test_targets_beyond_the_joint_limits_are_moved_inside_and_reported() -> None:
    run = Run()
    for _ in range(200):
        run.step(moved(left__wrist_rotate=9.0))
    assert Reason.POSITION in run.filter.reasons
    assert run.path[-1][5] == pytest.approx(ALOHA.upper[5] - 0.01)


def test_a_target_does_not_run_away_from_an_arm_that_is_stuck() -> None:
    run = Run()
    for _ in range(150):
        run.step(moved(left__waist=2.5), position=ALOHA.home)
    assert Reason.TRACKING in run.filter.reasons
    assert run.path[-1][0] == pytest.approx(LIMITS.tracking[0], abs=1e-6)


def test_the_arms_stop_over_the_table() -> None:
    run, clearance = Run(), Clearance(ALOHA)
    for _ in range(300):
        run.step(moved(left__shoulder=1.3, left__elbow=-0.2, left__wrist_angle=1.0))
    heights = np.array([clearance.measure(q).heights.min() for q in run.path])
    assert run.filter.counts[Reason.TABLE] > 0
    assert heights.min() >= -1e-9
    assert heights[-1] < 0.03


@pytest.mark.slow
def test_the_arms_stop_before_each_other() -> None:
    run, clearance = (
        Run(SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0, arm_clearance=0.02)),
        Clearance(ALOHA),
    )
    forward = {
        f"{arm}__{joint}": value
        for arm in ALOHA.arms
        for joint, value in (("shoulder", 1.56), ("elbow", -0.9))
    }
    for _ in range(300):
        run.step(moved(**forward))
    gaps = np.array([clearance.measure(q).between.min() for q in run.path])
    assert run.filter.counts[Reason.OTHER_ARM] > 0
    assert gaps.min() >= 0.02 - 1e-9


def test_a_soft_start_grows_from_a_tenth() -> None:
    run = Run(SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=2.0))
    speeds = []
    for _ in range(230):
        run.step(moved(left__waist=2.5, right__waist=-2.5))
        speeds.append(run.speed())
    ramp = 0.1 + 0.9 * np.minimum(np.arange(230) * PERIOD / 2.0, 1.0)
    assert (np.array(speeds) <= np.pi * ramp + 1e-9).all()
    assert max(speeds[:20]) > 0.2


def test_the_soft_start_does_not_pass_while_hold_to_run_is_released() -> None:
    limits = SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=1.0)
    run = Run(limits)
    for _ in range(200):
        run.step(FAR, freshness=Freshness(permission_age_s=9.0))
    for _ in range(10):
        run.step(FAR)
    assert 0 < run.speed() <= 0.2 * limits.velocity.max()


def test_bad_chunks_are_rejected_and_many_of_them_are_a_fault() -> None:
    run = Run()
    bad = [
        chunk(np.nan),
        ActionChunk(np.zeros(5), np.zeros((5, 14), np.float32)),
        ActionChunk(np.arange(5, dtype=np.float64), np.zeros((5, 13), np.float32)),
        chunk(start=1e6),
    ]
    assert [run.filter.admit(one, 0, 0.0) for one in bad] == [False] * 4
    run.step(ALOHA.home)
    assert run.filter.mode is Mode.RUN
    assert not run.filter.admit(chunk(), 7, 0.0)  # Of another episode.
    run.step(ALOHA.home)
    assert run.filter.mode is Mode.FAULT
    assert run.filter.fault_reasons == Reason.BAD_CHUNK


def test_a_good_chunk_makes_up_for_bad_ones() -> None:
    run = Run()
    for _ in range(10):
        run.filter.admit(chunk(np.nan), 0, 0.0)
        run.filter.admit(chunk(), 0, 0.0)
    run.step(ALOHA.home)
    assert run.filter.mode is Mode.RUN


def test_an_old_plan_is_not_followed() -> None:
    run = Run()
    for age_s in (LIMITS.oldest_plan_s + 0.1, LIMITS.oldest_plan_s - 0.1):
        run.step(moved(left__waist=1.0), freshness=Freshness(plan_age_s=age_s))
        assert (run.filter.reasons & Reason.OLD_PLAN == Reason.OLD_PLAN) == (
            age_s > LIMITS.oldest_plan_s
        )
        assert (run.speed() == 0.0) == (age_s > LIMITS.oldest_plan_s)


def test_a_late_plan_is_refused_although_its_actions_are_due_now() -> None:
    run = Run()
    late = ActionChunk(10.0 + np.arange(5) / 50, np.tile(ALOHA.home, (5, 1)).astype(np.float32))
    assert not run.filter.admit(late, 0, 10.0, observed_s=10.0 - LIMITS.oldest_plan_s - 0.01)
    assert run.filter.counts[Reason.OLD_PLAN] == 1
    assert run.filter.admit(late, 0, 10.0, observed_s=10.0 - LIMITS.oldest_plan_s + 0.01)
    for observed_s in (np.nan, 10.0 + LIMITS.oldest_plan_s + 0.01):
        assert not run.filter.admit(late, 0, 10.0, observed_s=observed_s)
    assert run.filter.counts[Reason.BAD_CHUNK] == 2


@pytest.mark.parametrize(("age_s", "mode"), [(0.19, Mode.RUN), (0.21, Mode.HOLD)])
def test_an_action_is_valid_for_a_fifth_of_a_second(age_s: float, mode: Mode) -> None:
    run = Run()
    run.step(ALOHA.home, freshness=Freshness(action_age_s=age_s))
    assert run.filter.mode is mode
    assert (Reason.STARVED in run.filter.reasons) == (mode is Mode.HOLD)


def test_a_silent_supervisor_makes_the_arms_hold_until_its_next_heartbeat() -> None:
    run = Run()
    for _ in range(10):
        run.step(moved(left__waist=2.0))
    for _ in range(10):
        run.step(moved(left__waist=2.0), freshness=Freshness(supervisor_age_s=0.6))
    assert run.filter.reasons == Reason.SUPERVISOR
    assert run.speed() == 0.0
    run.step(moved(left__waist=2.0), freshness=Freshness(supervisor_age_s=0.1))
    assert run.filter.mode is Mode.RUN


def test_an_external_stop_is_a_fault_that_only_a_reset_ends() -> None:
    run = Run()
    for _ in range(8):
        run.step(FAR, freshness=Freshness(stop_line_age_s=0.09))
    assert run.filter.mode is Mode.RUN
    run.step(FAR, freshness=Freshness(stop_line_age_s=0.11))
    assert (run.filter.mode, run.filter.fault_reasons) == (Mode.FAULT, Reason.EXTERNAL_STOP)
    for _ in range(20):
        run.step(FAR)
    assert run.filter.mode is Mode.FAULT
    assert run.filter.at_rest


def test_arms_move_only_while_hold_to_run_is_held() -> None:
    run = Run()
    for _ in range(8):
        run.step(FAR, freshness=Freshness(permission_age_s=0.19))
    assert run.filter.mode is Mode.RUN
    for _ in range(20):
        run.step(FAR, freshness=Freshness(permission_age_s=0.21))
    assert (run.filter.mode, run.filter.reasons) == (Mode.HOLD, Reason.RELEASED)
    assert run.filter.at_rest
    run.step(FAR)
    assert run.filter.mode is Mode.RUN


def test_plans_from_old_images_are_refused_but_no_fault() -> None:
    run = Run()
    assert run.filter.admit(chunk(), 0, 0.0, image_age_s=0.14)
    for age_s in [0.16, 5.0, np.inf, np.nan] * 3:
        assert not run.filter.admit(chunk(), 0, 0.0, image_age_s=age_s)
    run.step(ALOHA.home)
    assert run.filter.counts[Reason.OLD_IMAGES] == 12
    assert run.filter.mode is Mode.RUN


def test_the_arms_stop_before_the_walls_of_their_box() -> None:
    box = [[-0.9, -0.5, -0.1], [0.9, 0.3, 0.9]]
    run, clearance = (
        Run(SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0, box=box)),
        Clearance(ALOHA, box=np.array(box)),
    )
    spare = [clearance.measure(ALOHA.home).walls.min()]
    assert spare[0] > 0.0
    for _ in range(300):
        run.step(moved(left__waist=2.8, right__waist=-1.2, left__shoulder=0.8, left__elbow=-0.8))
        spare.append(clearance.measure(run.path[-1]).walls.min())
    assert run.filter.counts[Reason.BOX] > 0
    assert min(spare) >= -1e-9


def test_it_reports_by_how_much_it_acted() -> None:
    run = Run()
    run.step(moved(left__wrist_angle=9.0))
    beyond = ALOHA.home[4] + 9.0 - LIMITS.upper[4]
    assert run.filter.amounts[Reason.POSITION] == pytest.approx(beyond)
    assert run.filter.amounts[Reason.MOTION] == pytest.approx(
        LIMITS.tracking[4] - abs(run.path[-1][4] - ALOHA.home[4])
    )
    run.step(ALOHA.home, servo_misses=np.eye(18, dtype=np.int32)[4] * 7)
    assert run.filter.amounts == {Reason.SERVO_SILENT: 7}


def test_the_following_error_is_that_of_the_hinges_over_the_cycles_with_fast_targets() -> None:
    run = Run()
    run.step(moved(left__waist=0.0001))
    assert run.filter.following == NO_FOLLOWING_ERROR
    target = moved(left__waist=0.5, left__gripper=-1.0)
    behind = [float(target[0] - run.step(target)[0]) for _ in range(8)]
    assert run.filter.counts[Reason.MOTION] == len(behind)
    assert run.filter.following.total_rad == pytest.approx(sum(behind))
    assert run.filter.following.largest_rad == pytest.approx(max(behind))
    run.filter.start(state(run.path[-1]), 1)
    assert run.filter.following == NO_FOLLOWING_ERROR


def test_the_arms_hold_while_a_camera_has_no_new_image() -> None:
    run = Run()
    run.step(moved(left__waist=0.5), freshness=Freshness(image_ages_s=(0.0, LIMITS.oldest_image_s)))
    assert run.filter.mode is Mode.RUN
    for _ in range(20):
        run.step(
            moved(left__waist=0.5),
            freshness=Freshness(image_ages_s=(0.0, LIMITS.oldest_image_s + 0.01)),
        )
    assert run.filter.mode is Mode.HOLD
    assert run.filter.reasons == Reason.CAMERA
    assert run.filter.amounts[Reason.CAMERA] == pytest.approx(0.16)
    assert run.speed() == 0.0
    run.step(moved(left__waist=0.5), freshness=Freshness(image_ages_s=(0.0, 0.0)))
    assert run.filter.mode is Mode.RUN
