"""The pen is handed over and stands in the holder; the experts that hand over vary and recover."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.sim.hand_overs import HandOvers, place_and_yaw

from stringline.datasets.embodiments.aloha import START_POSE
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.datasets.store.store import EpisodeStore
from stringline.sim.collection.collection_state import Collection, Outcome, Recipe
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.experts.hand_over_experts import (
    HandOverBananaExpert,
    HandOverPenExpert,
    VariedHandOverBananaExpert,
)
from stringline.sim.tasks.hand_over_tasks import HandOverBanana, HandOverPen

X, Y, Z = np.eye(3)
TIP_UP, TIP_DOWN = rotation_about(X, np.pi / 2), rotation_about(X, -np.pi / 2)
ON_FLOOR = 0.005 + 0.0925


@pytest.fixture(scope="module")
def pens() -> Iterator[HandOvers]:
    task = HandOverPen()
    world = TaskEnvironment(task, cameras=(), time_limit_s=40.0)
    yield HandOvers(world, task, HandOverPenExpert, START_POSE)
    world.close()


@pytest.mark.parametrize(
    ("T_holder_pen", "inside"),
    [
        (pose((0.0, 0.0, ON_FLOOR), TIP_UP), True),
        (pose((0.02, -0.02, ON_FLOOR), TIP_DOWN), True),
        (pose((0.0, 0.0, 0.09), rotation_about(Y, 0.3) @ TIP_UP), True),  # Leaning.
        (pose((0.0, 0.0, 0.16), TIP_UP), False),  # Held above the floor.
        (pose((0.0, 0.0, 0.115)), False),  # Across the rim.
        (pose((0.06, 0.0, 0.0925), TIP_UP), False),  # Beside it.
        (pose((0.05, 0.0, 0.12), rotation_about(Y, 0.9) @ TIP_UP), False),  # Through the wall.
        (pose((0.0, 0.0, 0.07), TIP_UP), False),  # Through the floor.
    ],
)
def test_a_pen_is_inside_if_it_stands_in_the_holder(
    pens: HandOvers, T_holder_pen: Matrix, inside: bool
) -> None:
    pens.assert_inside(pose((-0.15, 0.05, 0.02), rotation_about(Z, 1.0)), T_holder_pen, inside)


def test_a_pen_in_the_holder_without_a_hand_over_does_not_count(pens: HandOvers) -> None:
    pens.assert_nothing_without_a_hand_over(pose((0.0, 0.0, ON_FLOOR), TIP_UP))


@pytest.mark.slow
def test_after_the_hand_over_the_pen_must_be_in_the_holder(pens: HandOvers) -> None:
    leaning = pose((0.02, 0.01, ON_FLOOR), rotation_about(Y, 0.1) @ TIP_UP)
    pens.assert_only_the_container_counts(leaning, beside=pose((0.0, 0.15, 0.008)))


def test_a_held_pen_in_the_holder_does_not_count(pens: HandOvers) -> None:
    world, expert = pens.world, HandOverPenExpert(paces=(0.75, 0.75))
    world.begin(0)
    expert.reset(world, np.random.default_rng(0))
    action = START_POSE
    while (result := world.advance(action)).stage < 3:
        action = expert.act(world)
        assert not result.expired
    for _ in range(60):
        result = world.advance(action)
    assert (result.success, result.stage) == (False, 3)


def test_starts_fill_their_ranges(pens: HandOvers) -> None:
    lowest, highest = [0.12, -0.1, -108, -0.18, -0.1], [0.18, 0.1, -72, -0.12, 0.1]
    pens.assert_starts(
        lowest, highest, lambda pen, holder: [*place_and_yaw(pen), *place_and_yaw(holder)[:2]]
    )


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "slip_m", "height"), [(2, 0.02, 0.0), (4, 0.0, 0.04)])
def test_the_expert_stands_the_pen_in_the_holder(
    pens: HandOvers, seed: int, slip_m: float, height: float
) -> None:
    pens.assert_the_expert_succeeds(seed, slip_m, height)


@pytest.mark.slow
def test_the_banana_is_taken_in_many_ways_and_again_after_a_slip() -> None:
    task = HandOverBanana()
    world = TaskEnvironment(task, cameras=(), time_limit_s=40.0)
    ways = set()
    for seed in range(12):
        expert = VariedHandOverBananaExpert(paces=(0.75, 0.75))
        world.begin(0)
        expert.reset(world, np.random.default_rng(seed))
        while not task.contact_state(world.physics).held("right", task.banana.name):
            assert not world.advance(expert.act(world)).expired
        T_banana_gripper = (
            inverse(task.pose(world.physics, task.banana)) @ world.state()["T_base_gripper/right"]
        )
        lean = np.degrees(np.arcsin(T_banana_gripper[1, 0]))
        ways.add((T_banana_gripper[1, 3] > 0, round(lean / 25)))
    assert {end for end, _ in ways} == {True, False}
    assert {lean for _, lean in ways} == {-1, 0, 1}
    recording = record_episode(world, VariedHandOverBananaExpert(), 2, slip_m=0.02)
    world.close()
    assert recording.success, recording.error


def test_a_recipe_without_the_choice_is_one_of_the_plain_expert(tmp_path: Path) -> None:
    assert isinstance(make_expert("hand_over_banana"), VariedHandOverBananaExpert)
    assert isinstance(make_expert("hand_over_banana", varied=False), HandOverBananaExpert)
    assert isinstance(make_expert("hand_over_pen", varied=False), HandOverPenExpert)
    store = EpisodeStore.create(tmp_path)
    plain = Recipe(varied=False)
    Collection(store, plain).add(outcome := Outcome(3, success=True, stage=4, steps=9))
    assert Collection(store, plain).outcomes == [outcome]
    with pytest.raises(ValueError, match=r"was collected with varied=False \(now True\)"):
        Collection(store, Recipe())
