"""The expert hands the banana over; success needs the hand-over and a released banana."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.sim.episodes import assert_smooth, follow, place_at, stay

from stringline.datasets.embodiments.aloha import ALOHA, START_POSE
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, between, pose, rotation_about
from stringline.sim.environment.environment import StepResult, TaskEnvironment
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.experts.hand_over_experts import HandOverBananaExpert
from stringline.sim.tasks.hand_over_tasks import HandOverBanana

X, Z = (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)
LYING = rotation_about(Z, np.radians(-90.0))
TASK = HandOverBanana.name
WORLD = {"cameras": ()}


def hand_over(
    world: TaskEnvironment,
    seed: int,
    *,
    until: Callable[[StepResult], bool] = lambda result: result.success,
    **options: float,
) -> tuple[list[StepResult], Vector]:
    """Runs the expert until a condition or the end; returns the results and the targets (T, 14)."""
    return follow(world, HandOverBananaExpert(), seed, until, **options)


def lay(world: TaskEnvironment, task: HandOverBanana, T_bowl_banana: Matrix) -> None:
    """Puts the banana somewhere relative to the bowl."""
    place_at(world, task.banana, task.bowl, T_bowl_banana)


@pytest.mark.parametrize(("seed", "height"), [(0, 0.0), (1, -0.03), (2, 0.04), (3, 0.0)])
def test_the_expert_succeeds_smoothly_and_passes_all_stages(
    world: TaskEnvironment, seed: int, height: float
) -> None:
    results, targets = hand_over(world, seed, table_height=height)
    assert results[-1].success
    assert results[-1].time < 9.0
    stages = [result.stage for result in results]
    assert sorted(set(stages)) == [0, 1, 2, 3, 4]
    assert stages == sorted(stages)
    assert_smooth(targets, 12.5)
    grippers = targets[:, [joint.kind == "gripper" for joint in ALOHA.joints]]
    assert np.abs(np.diff(grippers, axis=0) * 50).max() < 2.0


def test_the_expert_succeeds_at_the_highest_table(world: TaskEnvironment) -> None:
    assert hand_over(world, 5, table_height=0.08)[0][-1].success


def test_the_expert_is_a_function_of_seed_and_world(world: TaskEnvironment) -> None:
    first, again = (
        hand_over(world, 6, until=lambda result: result.stage == 1)[1] for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)


def test_a_banana_in_the_bowl_without_a_hand_over_does_not_count(
    world: TaskEnvironment, task: HandOverBanana
) -> None:
    world.begin(0)
    lay(world, task, pose((0.0, 0.0, 0.03), LYING))
    result = stay(world, seconds=1.5)
    assert task.inside(task.pose(world.physics, task.banana), task.pose(world.physics, task.bowl))
    assert (result.success, result.stage) == (False, 0)


def test_a_held_banana_in_the_bowl_does_not_count(world: TaskEnvironment) -> None:
    results, targets = hand_over(world, 0, until=lambda result: result.stage == 3)
    assert results[-1].stage == 3
    result = stay(world, targets[-1], 1.5)
    assert (result.success, result.stage) == (False, 3)


def test_a_moving_banana_in_the_bowl_counts_once_it_rests(
    world: TaskEnvironment, task: HandOverBanana
) -> None:
    results, targets = hand_over(world, 1, until=lambda result: result.stage == 2)
    away = START_POSE.copy()
    stay(world, targets[-1], 0.1)
    for _ in range(40):
        lay(world, task, pose((0.0, 0.0, 0.03), LYING))
        task.banana.set_velocity(world.physics, np.array([0.05, 0.0, 0.0]), np.zeros(3))
        results.append(world.advance(away))
    assert (results[-1].success, results[-1].stage) == (False, 3)
    assert stay(world, away, 1.5).success


def test_a_banana_beside_the_bowl_must_be_handed_over_again(
    world: TaskEnvironment, task: HandOverBanana
) -> None:
    hand_over(world, 1, until=lambda result: result.stage == 2)
    lay(world, task, pose((0.0, 0.2, 0.018), LYING))
    result = stay(world, seconds=1.5)
    assert (result.success, result.stage) == (False, 2)
    lay(world, task, pose((0.0, 0.0, 0.03), LYING))
    assert not stay(world, seconds=1.5).success


@pytest.mark.parametrize("seed", range(6))
def test_a_banana_that_falls_into_the_bowl_comes_to_rest(
    world: TaskEnvironment, task: HandOverBanana, seed: int
) -> None:
    """With stiff contacts a banana that is wedged between the walls would rattle without end."""
    rng = np.random.default_rng(seed)
    world.begin(seed)
    askew = rotation_about(Z, rng.uniform(-np.pi, np.pi)) @ rotation_about(
        X, rng.uniform(-0.25, 0.25)
    )
    lay(world, task, pose((*rng.uniform(-0.025, 0.025, 2), 0.04), askew))
    stay(world, seconds=1.0)
    for _ in range(25):
        world.advance(START_POSE)
        assert max(task.speed(world.physics, prop) for prop in (task.banana, task.bowl)) < 0.01


@pytest.mark.parametrize(
    ("T_bowl_banana", "inside"),
    [
        (pose((0.0, 0.0, 0.024), LYING), True),
        (pose((0.02, 0.02, 0.04), LYING), True),
        (pose((0.06, 0.0, 0.03), LYING), False),  # One end beyond the rim.
        (pose((0.0, 0.0, 0.07), LYING), False),  # On the rim.
        (pose((0.0, 0.0, 0.09), rotation_about(X, np.pi / 2)), False),  # Upright.
        (pose((0.3, 0.0, 0.02), LYING), False),
        (pose((0.0, 0.0, -0.01), LYING), False),
    ],
)
def test_a_banana_is_inside_if_its_whole_axis_is(
    task: HandOverBanana, T_bowl_banana: Matrix, inside: bool
) -> None:
    T_base_bowl = pose((-0.15, 0.05, 0.02))
    assert task.inside(T_base_bowl @ T_bowl_banana, T_base_bowl) is inside


def test_a_tipped_bowl_holds_nothing(task: HandOverBanana) -> None:
    tipped = pose((0.0, 0.0, 0.1), rotation_about(X, np.radians(30)))
    assert not task.inside(tipped @ pose((0.0, 0.0, 0.03), LYING), tipped)


def test_starts_fill_their_ranges(world: TaskEnvironment, task: HandOverBanana) -> None:
    places = []
    for seed in range(60):
        world.begin(seed)
        banana, bowl = (task.pose(world.physics, prop) for prop in (task.banana, task.bowl))
        places.append(
            (*banana[:2, 3], np.degrees(np.arctan2(banana[1, 0], banana[0, 0])), *bowl[:2, 3])
        )
    low, high = np.min(places, axis=0), np.max(places, axis=0)
    lowest = np.array([0.12, -0.1, -108, -0.18, -0.1])
    highest = np.array([0.18, 0.1, -72, -0.12, 0.1])
    assert (low >= lowest - 1e-6).all()
    assert (high <= highest + 1e-6).all()
    assert (high - low > 0.8 * (highest - lowest)).all()


def test_unknown_experts_are_refused() -> None:
    with pytest.raises(ValueError, match="There is no expert for the task 'hand_over'"):
        make_expert("hand_over")


def test_poses_are_interpolated_on_a_line_and_about_one_axis() -> None:
    start, goal = pose((0.0, 0.0, 0.0)), pose((1.0, 2.0, 3.0), rotation_about((0.0, 1.0, 0.0), 1.2))
    np.testing.assert_allclose(between(start, goal, 0.0), start, atol=1e-12)
    np.testing.assert_allclose(between(start, goal, 1.0), goal, atol=1e-12)
    half = pose((0.5, 1.0, 1.5), rotation_about((0.0, 1.0, 0.0), 0.6))
    np.testing.assert_allclose(between(start, goal, 0.5), half, atol=1e-12)
