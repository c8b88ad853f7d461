"""The pen is handed over and stands in the holder; the experts that hand over vary and recover."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from stringline.datasets.embodiments.aloha import START_POSE
from stringline.datasets.embodiments.rigid import Matrix, inverse, pose, rotation_about
from stringline.datasets.store import EpisodeStore
from stringline.sim.collection import COLLECTION_FILE, Collection, Outcome, Recipe
from stringline.sim.environment import StepResult, TaskEnvironment
from stringline.sim.experts.expert import make_expert
from stringline.sim.experts.hand_over_banana import HandOverBananaExpert
from stringline.sim.experts.hand_over_pen import HandOverPenExpert
from stringline.sim.experts.varied_hand_over_banana import VariedHandOverBananaExpert
from stringline.sim.record import record_episode
from stringline.sim.tasks.hand_over_banana import HandOverBanana
from stringline.sim.tasks.hand_over_pen import HandOverPen

X, Y, Z = np.eye(3)
TIP_UP, TIP_DOWN = rotation_about(X, np.pi / 2), rotation_about(X, -np.pi / 2)
ON_FLOOR = 0.005 + 0.0925


@pytest.fixture(scope="module")
def task() -> HandOverPen:
    return HandOverPen()


@pytest.fixture(scope="module")
def world(task: HandOverPen) -> Iterator[TaskEnvironment]:
    world = TaskEnvironment(task, cameras=(), time_limit_s=40.0)
    yield world
    world.close()


def run(world: TaskEnvironment, seed: int, until: Callable[[StepResult], bool]) -> None:
    """Runs the expert until something holds."""
    expert = HandOverPenExpert(paces=(0.75, 0.75))
    world.begin(seed)
    expert.reset(world, np.random.default_rng(seed))
    while not until(result := world.advance(expert.act(world))):
        assert not result.expired


def put(world: TaskEnvironment, task: HandOverPen, T_holder_pen: Matrix, seconds: float = 1.2) -> StepResult:
    """Puts the pen somewhere relative to the holder, sends the arms home and waits; success on the way counts."""
    task.place(world.physics, task.pen, task.pose(world.physics, task.holder) @ T_holder_pen)
    result = world.advance(START_POSE)
    for _ in range(round(seconds * 50) - 1):
        if not result.success:
            result = world.advance(START_POSE)
    return result


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
def test_inside_means_that_it_stands_in_the_holder(task: HandOverPen, T_holder_pen: Matrix, inside: bool) -> None:
    T_base_holder = pose((-0.15, 0.05, 0.02), rotation_about(Z, 1.0))
    assert task.inside(T_base_holder @ T_holder_pen, T_base_holder) is inside
    tipped = pose((0.0, 0.0, 0.1), rotation_about(X, np.radians(30)))
    assert not task.inside(tipped @ T_holder_pen, tipped)


def test_in_the_holder_without_a_hand_over_is_no_success(world: TaskEnvironment, task: HandOverPen) -> None:
    world.begin(0)
    result = put(world, task, pose((0.0, 0.0, ON_FLOOR), TIP_UP))
    assert task.inside(task.pose(world.physics, task.pen), task.pose(world.physics, task.holder))
    assert (result.success, result.stage) == (False, 0)


def test_after_the_hand_over_only_the_holder_counts(world: TaskEnvironment, task: HandOverPen) -> None:
    run(world, 1, lambda result: result.stage == 2)
    state = world.physics.get_state()
    result = put(world, task, pose((0.02, 0.01, ON_FLOOR), rotation_about(Y, 0.1) @ TIP_UP), seconds=3.0)
    assert (result.success, result.stage) == (True, 4)
    run(world, 1, lambda result: result.stage == 2)
    np.testing.assert_array_equal(world.physics.get_state(), state)
    beside = put(world, task, pose((0.0, 0.15, 0.008)))
    assert (beside.success, beside.stage) == (False, 2)
    assert not put(world, task, pose((0.0, 0.0, ON_FLOOR), TIP_UP)).success  # It was on the table in between.


def test_still_held_in_the_holder_is_no_success(world: TaskEnvironment) -> None:
    expert = HandOverPenExpert(paces=(0.75, 0.75))
    world.begin(0)
    expert.reset(world, np.random.default_rng(0))
    action = START_POSE
    while (result := world.advance(action)).stage < 3:
        action = expert.act(world)
        assert not result.expired
    for _ in range(60):
        result = world.advance(action)
    assert (result.success, result.stage) == (False, 3)


def test_where_things_start(world: TaskEnvironment, task: HandOverPen) -> None:
    places = []
    for seed in range(60):
        world.begin(seed)
        pen, holder = (task.pose(world.physics, prop) for prop in (task.pen, task.holder))
        places.append((*pen[:2, 3], np.degrees(np.arctan2(pen[1, 0], pen[0, 0])), *holder[:2, 3]))
    low, high = np.min(places, axis=0), np.max(places, axis=0)
    lowest, highest = np.array([0.12, -0.1, -108, -0.18, -0.1]), np.array([0.18, 0.1, -72, -0.12, 0.1])
    assert (low >= lowest - 1e-6).all()
    assert (high <= highest + 1e-6).all()
    assert (high - low > 0.8 * (highest - lowest)).all()
    world.advance(START_POSE)
    assert task.at_rest(world.physics)


@pytest.mark.parametrize(("seed", "slip_m", "height"), [(2, 0.02, 0.0), (4, 0.0, 0.04)])
def test_the_expert_stands_the_pen_in_the_holder(world: TaskEnvironment, seed: int, slip_m: float, height: float) -> None:
    recording = record_episode(world, HandOverPenExpert(), seed, slip_m=slip_m, options={"table_height": height})
    assert recording.success, recording.trouble
    stages = recording.arrays["stage"].tolist()
    assert set(stages) >= {0, 1, 2, 3}
    assert stages == sorted(stages)


def test_the_banana_is_taken_in_many_ways_and_again_after_a_slip() -> None:
    task = HandOverBanana()
    world = TaskEnvironment(task, cameras=(), time_limit_s=40.0)
    ways = set()
    for seed in range(12):
        expert = VariedHandOverBananaExpert(paces=(0.75, 0.75))
        world.begin(0)
        expert.reset(world, np.random.default_rng(seed))
        while not task.touching(world.physics).held("right", task.banana.name):
            assert not world.advance(expert.act(world)).expired
        T_banana_gripper = inverse(task.pose(world.physics, task.banana)) @ world.state()["T_base_gripper/right"]
        lean = np.degrees(np.arcsin(T_banana_gripper[1, 0]))
        ways.add((T_banana_gripper[1, 3] > 0, round(lean / 25)))
    assert {end for end, _ in ways} == {True, False}
    assert {lean for _, lean in ways} == {-1, 0, 1}
    recording = record_episode(world, VariedHandOverBananaExpert(), 2, slip_m=0.02)
    world.close()
    assert recording.success, recording.trouble


def test_a_recipe_without_the_choice_is_one_of_the_plain_expert(tmp_path: Path) -> None:
    assert isinstance(make_expert("hand_over_banana"), VariedHandOverBananaExpert)
    assert isinstance(make_expert("hand_over_banana", varied=False), HandOverBananaExpert)
    with pytest.raises(ValueError, match="There is no plain expert for the task 'hand_over_pen'"):
        make_expert("hand_over_pen", varied=False)
    store = EpisodeStore.create(tmp_path)
    plain = Recipe(varied=False)
    Collection(store, plain).add(outcome := Outcome(3, success=True, stage=4, steps=9))
    path = tmp_path / COLLECTION_FILE
    stored = json.loads(path.read_text())
    del stored[plain.task]["recipe"]["varied"]
    path.write_text(json.dumps(stored))
    assert Collection(store, plain).outcomes == [outcome]
    with pytest.raises(ValueError, match=r"was collected with varied=False \(now True\)"):
        Collection(store, Recipe())
