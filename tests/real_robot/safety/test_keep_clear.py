"""Clearance of the table, walls and the other arm: no arm comes too close, and arms slide along."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.real_robot.filter_rig import Run

from stringline import ALOHA, IIWA14, IIWA14_BIMANUAL, Embodiment, SafetyLimits
from stringline.real_robot.safety.clearance import Clearance
from stringline.real_robot.safety.reasons import Reason

Vector = NDArray[np.float64]

BODIES = {"aloha": ALOHA, "iiwa14": IIWA14, "iiwa14_bimanual": IIWA14_BIMANUAL}
LIMITS = {
    name: SafetyLimits.of(
        body,
        cartesian_speed=None,
        soft_start_s=0.0,
        acceleration=60.0,
        arm_clearance=0.02,
        table_clearance=0.003,
    )
    for name, body in BODIES.items()
}
BOX = np.array(
    [[-1.1, -0.45, -1.0], [1.1, 0.45, 1.5]]
)  # Around the hands at home, and wide of the arms.
# Braking takes longer, so that the rest is farther from the next pose.
WALLED = {
    name: dataclasses.replace(limits, box=BOX, acceleration=limits.acceleration / 3)
    for name, limits in LIMITS.items()
}


def spare(body: Embodiment, limits: SafetyLimits, path: list[Vector]) -> Vector:
    """Returns the least room beyond the required one (T,) at poses, metres."""
    room = Clearance.of(body, limits).measure(np.array(path))
    kept = (
        room.heights - limits.table_clearance,
        room.walls,
        room.between - limits.arm_clearance,
        room.own - limits.self_clearance,
        room.obstacles - limits.cell_clearance,
    )
    return np.min([space.min(axis=(-2, -1)) for space in kept], axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_no_target_leads_an_arm_too_near_to_an_obstacle(
    name: str, number: int, cycles: list[int]
) -> None:
    body, limits, random = BODIES[name], WALLED[name], np.random.default_rng(number)
    run = Run(limits, body)
    assert spare(body, limits, [body.home])[0] > 0
    for count in cycles:
        target = (
            random.uniform(body.lower, body.upper)
            if random.random() < 0.5
            else body.home + random.normal(0, 0.5, len(body.joints))
        )
        for _ in range(count):
            run.step(target)
    for _ in range(20):
        run.step(None)
    assert spare(body, limits, run.path).min() >= -1e-9


def reaching(body: Embodiment, q: Vector, arm: str, place: Vector) -> Vector:
    """Returns the pose with the gripper of an arm at a position (3,), by Newton's method."""
    q, revolute = q.copy(), body.revolute_joints[arm]
    for _ in range(50):
        now = body.forward_kinematics(q)[arm][:3, 3]
        near = body.forward_kinematics(q + 1e-6 * np.eye(len(q))[revolute])[arm][:, :3, 3]
        q[revolute] += np.clip(np.linalg.pinv((near - now).T / 1e-6) @ (place - now), -0.1, 0.1)
    assert body.forward_kinematics(q)[arm][:3, 3] == pytest.approx(place, abs=1e-4)
    return q


def pressed(body: Embodiment, depth: float, arms: Sequence[str] = ()) -> Vector:
    """Returns a pose with grippers, by default all, below home, metres under the table."""
    q = body.home.copy()
    for arm in arms or body.arms:
        q = reaching(
            body, q, arm, body.forward_kinematics(q)[arm][:3, 3] * (1, 1, 0) - (0, 0, depth)
        )
    return q


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(("depth", "over"), [(0.0, 1e-3), (0.03, 1e-2)])
def test_an_arm_pressed_on_the_table_comes_to_rest_on_it(
    name: str, depth: float, over: float
) -> None:
    body, limits, wanted = BODIES[name], LIMITS[name], pressed(BODIES[name], depth)
    run = Run(limits, body)
    run.step(wanted)
    lowest = (Clearance(body).measure(wanted).heights.min() - limits.table_clearance).item()
    assert run.filter.amounts[Reason.TABLE] == pytest.approx(-lowest)
    for _ in range(120):
        run.step(wanted)
    assert run.speed() == 0.0
    assert 0 <= spare(body, limits, [run.path[-1]])[0] < over
    for arm, T_base_gripper in body.forward_kinematics(run.path[-1]).items():
        aside = T_base_gripper[:2, 3] - body.forward_kinematics(wanted)[arm][:2, 3]
        assert np.abs(aside).max() < -0.2 * lowest


@pytest.mark.parametrize("name", BODIES)
def test_an_arm_pressed_on_the_table_slides_along_it(name: str) -> None:
    body, limits, wanted = BODIES[name], LIMITS[name], pressed(BODIES[name], 0.03)
    run, turning = Run(limits, body), [body.revolute_joints[arm][0] for arm in body.arms]
    for _ in range(120):
        run.step(wanted)
    for _ in range(80):
        wanted[turning] += 0.004
        run.step(wanted)
        assert Reason.TABLE in run.filter.reasons
    assert run.path[-1][turning] == pytest.approx(wanted[turning], abs=0.05)
    assert spare(body, limits, run.path).min() >= -1e-9


def on_the_table(body: Embodiment, random: np.random.Generator) -> Vector:
    """Returns a random pose with the gripper of the first arm 1 cm under the table."""
    arm, q = body.arms[0], pressed(body, 0.0)
    q[body.revolute_joints[arm][-3:]] += random.uniform(-0.4, 0.4, 3)
    place = body.forward_kinematics(pressed(body, 0.0))[arm][:3, 3]
    return reaching(body, q, arm, np.append(place[:2] + random.uniform(-0.1, 0.1, 2), -0.01))


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("number", [7, 9])
def test_an_arm_pressed_on_the_table_reaches_another_place_on_it(name: str, number: int) -> None:
    """Independently moving joints would take the arm deeper on its way, where it would stop."""
    body, limits, random = BODIES[name], LIMITS[name], np.random.default_rng(number)
    run, revolute, alone = Run(limits, body), body.revolute_joints[body.arms[0]], Run(limits, body)
    first, second = on_the_table(body, random), on_the_table(body, random)
    for wanted in (first, second):
        for _ in range(120):
            run.step(wanted)
    assert run.speed() < 1e-6
    for _ in range(240):
        alone.step(second)
    assert np.abs(run.path[-1] - alone.path[-1])[revolute].max() < 0.02
    assert spare(body, limits, run.path).min() >= -1e-9


def test_a_pressed_arm_slides_into_a_corner_of_table_and_wall() -> None:
    """With a wrist camera, that would meet the wall before the hand is in the corner."""
    body, limits = dataclasses.replace(IIWA14, cameras=()), WALLED["iiwa14"]
    run, wanted = Run(limits, body), pressed(body, 0.01)
    for _ in range(200):
        wanted[0] = min(wanted[0] + 0.02, 1.2)
        run.step(wanted)
    assert run.speed() == 0.0
    room = Clearance.of(body, limits).measure(run.path[-1])
    assert 0 <= room.heights.min() - limits.table_clearance < 2e-3
    assert 0 <= room.walls.min() < 2e-3


@pytest.mark.parametrize("name", BODIES)
def test_an_arm_leaves_the_table_at_once(name: str) -> None:
    run, wanted = Run(LIMITS[name], BODIES[name]), pressed(BODIES[name], 0.03)
    for _ in range(120):
        run.step(wanted)
    for _ in range(120):
        run.step(BODIES[name].home)
    assert np.allclose(run.path[-1], BODIES[name].home)
    assert run.filter.reasons == Reason(0)


@pytest.mark.parametrize("opening", [0.0, 1.0])
def test_a_turned_hand_comes_to_rest_on_the_table_as_well(opening: float) -> None:
    wanted = pressed(ALOHA, 0.01)
    wanted[5] += 1.57  # Of the left wrist: one finger comes below the other.
    wanted[ALOHA.grippers["left"]] = opening
    run = Run(LIMITS["aloha"])
    for _ in range(120):
        run.step(wanted)
    lowest = (
        Clearance(ALOHA).measure(run.path[-1]).heights[0].min() - LIMITS["aloha"].table_clearance
    )
    assert 0 <= lowest < 2e-3
    assert run.path[-1][5] == pytest.approx(wanted[5], abs=0.5)


def test_a_standing_arm_is_not_moved_by_the_target_of_the_other() -> None:
    body = IIWA14_BIMANUAL
    run, there = (
        Run(LIMITS["iiwa14_bimanual"], body),
        body.forward_kinematics(body.home)["left"][:3, 3],
    )
    wanted = reaching(body, body.home, "right", there)
    for _ in range(120):
        run.step(wanted)
    assert Reason.OTHER_ARM in run.filter.reasons
    standing = [joint.arm == "left" for joint in body.joints]
    assert np.array_equal(run.path[-1][standing], body.home[standing])
    assert spare(body, LIMITS["iiwa14_bimanual"], run.path).min() >= -1e-9


def test_an_arm_slides_on_while_the_target_of_the_other_is_far_under_the_table() -> None:
    body = IIWA14_BIMANUAL
    run, wanted = Run(LIMITS["iiwa14_bimanual"], body), pressed(body, 0.01, ["right"])
    left, turning = [joint.arm == "left" for joint in body.joints], body.revolute_joints["right"][0]
    wanted[left] = pressed(body, 0.3, ["left"])[left]
    for _ in range(120):
        run.step(wanted)
    for _ in range(80):
        wanted[turning] += 0.003
        run.step(wanted)
    assert run.path[-1][turning] == pytest.approx(wanted[turning], abs=0.05)
    assert spare(body, LIMITS["iiwa14_bimanual"], run.path).min() >= -1e-9


@pytest.mark.slow
def test_an_arm_that_starts_too_near_may_stay_or_leave() -> None:
    table = float(Clearance(IIWA14).measure(IIWA14.home).heights.min()) + 0.02
    limits = SafetyLimits.of(IIWA14, cartesian_speed=None, soft_start_s=0.0, table_height=table)
    run = Run(limits, IIWA14)
    for _ in range(80):
        run.step(IIWA14.home.astype(np.float32).astype(np.float64))  # The precision of policies.
    assert np.allclose(run.path[-1], IIWA14.home, rtol=0, atol=1e-6)
    before = spare(IIWA14, limits, run.path)[-1]
    for _ in range(80):
        run.step(pressed(IIWA14, 0.03))
    assert spare(IIWA14, limits, run.path).min() >= before - 1e-6
    leaving = pressed(IIWA14, -table - 0.2)
    for _ in range(120):
        run.step(leaving)
    assert np.allclose(run.path[-1], leaving)
