"""The speed of gripper, elbow, links and tools: no target makes a point faster than the limit."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.real_robot.filter_rig import PERIOD, Run, fastest, state, wrist_cameras

from stringline import ALOHA, IIWA14, IIWA14_BIMANUAL, Embodiment, SafetyLimits
from stringline.real_robot.safety.clearance import Clearance
from stringline.real_robot.safety.keep_clear import KeepClear
from stringline.real_robot.safety.limits import REDUCED_SPEED
from stringline.real_robot.safety.reasons import Mode, Reason
from stringline.real_robot.safety.stage_context import StageContext

Vector = NDArray[np.float64]

BODIES = {"aloha": ALOHA, "iiwa14": IIWA14, "iiwa14_bimanual": IIWA14_BIMANUAL}
LIMITS = {
    "aloha": SafetyLimits.of(ALOHA, soft_start_s=0.0, speed_share=0.5, arm_clearance=0.005),
    "iiwa14": SafetyLimits.of(IIWA14, soft_start_s=0.0, acceleration=5.0),
    "iiwa14_bimanual": SafetyLimits.of(
        IIWA14_BIMANUAL, soft_start_s=0.0, acceleration=5.0, arm_clearance=0.02
    ),
}


def shares(limits: SafetyLimits, path: list[Vector]) -> tuple[float, float]:
    """Returns the largest shares of the limits of velocity and acceleration, from rest on."""
    poses = np.array([path[0], *path])
    speed = np.abs(np.diff(poses, axis=0)) / PERIOD / limits.velocity
    change = np.abs(np.diff(poses, n=2, axis=0)) / PERIOD**2 / limits.acceleration
    return float(speed.max()), float(change.max())


def spare(body: Embodiment, limits: SafetyLimits, path: list[Vector]) -> float:
    """Returns the least clearance beyond the required one, metres."""
    room = Clearance(body, limits.table_height).measure(np.array(path))
    kept = (room.heights - limits.table_clearance, room.between - limits.arm_clearance)
    return float(min(space.min() for space in kept))


def draw(body: Embodiment, random: np.random.Generator, before: Vector | None) -> Vector | None:
    """Draws a target: none, far, near the table, at the ends of the joints, or a small step."""
    kind = random.integers(5)
    if kind == 0:
        return None
    if kind == 1:
        return random.uniform(body.lower, body.upper)
    if kind == 2:
        return body.home + random.normal(0, 0.5, len(body.joints))
    if kind == 3:
        return np.where(random.random(len(body.joints)) < 0.5, body.lower, body.upper)
    return (body.home if before is None else before) + random.normal(0, 0.1, len(body.joints))


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
@settings(max_examples=4, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 30), min_size=3, max_size=6))
def test_no_target_makes_a_point_too_fast_within_all_other_limits(
    name: str, number: int, cycles: list[int]
) -> None:
    body, random = BODIES[name], np.random.default_rng(number)
    limits = dataclasses.replace(LIMITS[name], soft_start_s=float(random.choice([0.0, 0.5])))
    run, target = Run(limits, body), None
    for count in cycles:
        target = draw(body, random, target)
        for _ in range(count):
            run.step(target)
    assert fastest(body, run.path).max() <= REDUCED_SPEED * (1 + 1e-6)
    assert max(shares(limits, run.path)) <= 1 + 1e-6
    assert spare(body, limits, run.path) >= -1e-9


@pytest.mark.parametrize("name", BODIES)
def test_an_arm_moves_steadily_at_the_limit_and_comes_to_rest_at_its_target(name: str) -> None:
    body, limits, run = BODIES[name], LIMITS[name], Run(LIMITS[name], BODIES[name])
    target = body.home.copy()
    for revolute in body.revolute_joints.values():
        target[revolute[0]] += 0.9
    for _ in range(100):
        run.step(target)
    assert Reason.CARTESIAN_SPEED in run.filter.reasons
    assert run.filter.amounts[Reason.CARTESIAN_SPEED] > REDUCED_SPEED
    assert run.filter.mode is Mode.RUN
    speeds = fastest(body, run.path)[50:]
    assert speeds.min() > 0.98 * REDUCED_SPEED
    # A reduced speed is no sequence of full acceleration and braking.
    changes = np.abs(np.diff(np.array(run.path[50:]), n=2, axis=0)) / PERIOD**2
    assert (changes < 0.2 * limits.acceleration).all()
    for _ in range(600):
        run.step(target)
    assert run.path[-1] == pytest.approx(target, abs=1e-6)


def test_hinges_that_turn_against_each_other_stay_slow_while_they_brake() -> None:
    """Without the joints that come to rest first, axis 6 would move the gripper at 0.45 m/s."""
    limits = LIMITS["iiwa14"]
    end = np.array([-0.31, -0.7, 0.75, -1.78, 0.49, -0.04, 0.56, 0.7])
    speed = np.array([0.0, 0.0, 0.29, -0.52, 0.0, -2.04, 0.93, 0.0])
    cycles = 60
    start = end - speed * cycles * PERIOD / 2
    run = Run(limits, IIWA14)
    run.filter.start(state(start), 0)
    run.path = [start]
    for cycle in range(1, cycles + 1):
        run.step(start + speed * PERIOD * cycle * (cycle + 1) / 2 / cycles)
    assert run.speed() > 1.0
    for _ in range(40):
        run.step(None)
    assert run.speed() == 0.0
    assert fastest(IIWA14, run.path).max() <= REDUCED_SPEED * (1 + 1e-6)
    assert max(shares(limits, run.path)) <= 1 + 1e-6


def test_near_an_obstacle_a_slower_motion_that_is_not_clear_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    near = float(Clearance(IIWA14).measure(IIWA14.home).heights.min()) - 0.001
    limits = SafetyLimits.of(IIWA14, soft_start_s=0.0, acceleration=20.0, table_height=near)
    target = IIWA14.home.copy()
    target[0] += 1.0
    moving, refused = Run(limits, IIWA14), Run(limits, IIWA14)
    for _ in range(20):
        moving.step(target)
    assert fastest(IIWA14, moving.path)[-2:].min() > 0.98 * REDUCED_SPEED
    monkeypatch.setattr(KeepClear, "is_clear", lambda *_: False)
    for _ in range(20):
        refused.step(target)
    # It brakes in between, and the other one does not.
    assert np.diff(fastest(IIWA14, refused.path)).min() < -0.1 * REDUCED_SPEED
    assert np.diff(fastest(IIWA14, moving.path)).min() > -0.01 * REDUCED_SPEED


def test_an_arm_that_cannot_be_sent_a_command_continues_within_the_limit() -> None:
    run, random = Run(LIMITS["aloha"]), np.random.default_rng(3)
    target = ALOHA.home
    for cycle in range(200):
        if cycle % 20 == 0:
            target = ALOHA.home + random.normal(0, 0.6, 14)
        run.step(target, accepts=random.uniform(size=2) < 0.8)
    assert fastest(ALOHA, run.path).max() <= REDUCED_SPEED * (1 + 1e-6)


@pytest.mark.parametrize("name", BODIES)
def test_the_points_are_those_of_the_kinematics_and_within_reach(name: str) -> None:
    body, random = BODIES[name], np.random.default_rng(0)
    context = StageContext(body, LIMITS[name], PERIOD)
    q = random.uniform(body.lower, body.upper, (20, len(body.joints)))
    found = context.surroundings.measure(q).points
    opened = q.copy()
    opened[:, list(body.grippers.values())] = 1.0
    moving = [place for place, mount in enumerate(body.capsule_mounts) if mount.link >= 0]
    first = 0
    for arm, chain in enumerate(body.chains):
        points = context.link_points[arm]
        own = slice(first, first + len(points.places))
        first = own.stop
        ends = body.capsule_axes(opened)[:, arm, moving].reshape(20, -1, 3)
        gripper = body.forward_kinematics(q)[chain.arm][:, None, :3, 3]
        camera = wrist_cameras(body, q)[chain.arm][:, None]
        expected = np.concatenate([ends, camera, gripper], axis=1)
        assert found[:, own] == pytest.approx(expected, abs=1e-12)
        nudged = q[:, None] + 1e-6 * np.eye(len(body.joints))[points.revolute_joints]
        moved = context.surroundings.measure(nudged.reshape(-1, q.shape[1])).points[:, own]
        changes = moved.reshape(20, -1, *found[0, own].shape) - found[:, None, own]
        slopes = np.linalg.norm(changes, axis=-1).max(axis=(0, 2)) / 1e-6
        assert (slopes <= points.reach + 1e-5).all()
    assert first == found.shape[1]


def test_without_a_limit_commands_are_those_of_the_other_stages() -> None:
    free = dataclasses.replace(LIMITS["aloha"], cartesian_speed=None)
    slow, fast = Run(LIMITS["aloha"]), Run(free)
    for _ in range(30):
        slow.step(ALOHA.upper)
        fast.step(ALOHA.upper)
    assert fastest(ALOHA, fast.path).max() > 2 * REDUCED_SPEED
    assert fastest(ALOHA, slow.path).max() <= REDUCED_SPEED * (1 + 1e-6)
    assert Reason.CARTESIAN_SPEED not in fast.filter.counts


@pytest.mark.parametrize("speed", [250, 250.0, 0.0, -0.1, float("nan"), float("inf"), "0.2", True])
def test_a_speed_in_another_unit_is_refused(speed: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^cartesian_speed is .*; allowed: above 0, up to 3 \(m/s\)\.$"
    ):
        SafetyLimits.of(ALOHA, cartesian_speed=speed)
