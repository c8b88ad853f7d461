"""Bowl, glass and plate go onto the rack, and nothing less than that counts."""

from collections.abc import Iterator

import numpy as np
import pytest

from stringline.datasets.embodiments.aloha import START_POSE
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.environment.environment import StepResult, TaskEnvironment
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.tasks.dish_tasks import BowlOnRack, DishTask, GlassOnRack

X, Y = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)
FLIPPED = rotation_about(X, np.pi)


@pytest.fixture(scope="module", params=[BowlOnRack, GlassOnRack], ids=lambda task: task.name)
def task(request: pytest.FixtureRequest) -> DishTask:
    built: DishTask = request.param()
    return built


@pytest.fixture(scope="module")
def world(task: DishTask) -> Iterator[TaskEnvironment]:
    world = TaskEnvironment(task, cameras=(), time_limit_s=25.0)
    yield world
    world.close()


def put(world: TaskEnvironment, task: DishTask, T_rack_dish: Matrix) -> None:
    """Puts the dish somewhere relative to the rack."""
    T_table_dish = task.pose(world.physics, task.rack) @ T_rack_dish
    T_table_dish[2, 3] -= task.table_height
    task.place(world.physics, task.dish, T_table_dish)


def stay(world: TaskEnvironment, seconds: float = 1.2) -> StepResult:
    """Keeps the arms where they start, and returns the last result; success on the way counts."""
    result = world.advance(START_POSE)
    for _ in range(round(seconds * 50) - 1):
        if not result.success:
            result = world.advance(START_POSE)
    return result


def in_bay(task: DishTask, above: float = 0.001) -> Matrix:
    """Returns the middle of the bay, some way above the floor."""
    return pose((*task.rack.bay.mean(axis=0), task.rack.floor + above))


@pytest.mark.parametrize("height", [0.0, 0.06])
def test_standing_in_the_bay_is_success(
    world: TaskEnvironment, task: DishTask, height: float
) -> None:
    world.begin(0, {"table_height": height})
    put(world, task, in_bay(task))
    result = stay(world)
    assert result.success
    assert 0.5 <= result.time < 0.8
    assert task.stages[result.stage] == "success"


@pytest.mark.parametrize(
    ("x", "y", "turn"),
    [
        (0.0, 0.11, FLIPPED),
        (
            0.0,
            0.11,
            rotation_about(X, np.radians(110)),
        ),  # The glass lies, the bowl falls onto its rim.
        (-0.16, 0.11, rotation_about(Y, np.radians(-50))),  # Leaning on the wall.
        (0.0, 0.215, None),  # On the wall.
        (-0.26, 0.11, None),  # On the table in front of it.
        (0.03, -0.11, None),  # Among the tines.
    ],
)
def test_near_misses_are_refused(
    world: TaskEnvironment, task: DishTask, x: float, y: float, turn: Matrix | None
) -> None:
    world.begin(1)
    put(world, task, pose((x, y, 0.13), turn))
    assert not stay(world, 1.8).success
    assert task.stage == 0


def test_fallen_from_above_it_must_come_to_rest_first(
    world: TaskEnvironment, task: DishTask
) -> None:
    world.begin(2)
    put(world, task, in_bay(task, 0.05))
    assert not stay(world, 0.5).success
    assert task.stage in (0, 3)


def test_in_a_tipped_rack_is_refused(world: TaskEnvironment, task: DishTask) -> None:
    world.begin(2)
    for _ in range(40):
        task.place(
            world.physics, task.rack, pose((0.0, 0.25, 0.05), rotation_about(X, np.radians(8)))
        )
        put(world, task, in_bay(task, 0.0))
        assert not world.advance(START_POSE).success


@pytest.mark.parametrize("seed", [1])
def test_the_expert_passes_all_stages(world: TaskEnvironment, task: DishTask, seed: int) -> None:
    expert = make_expert(task.name)
    world.begin(seed)
    expert.reset(world, np.random.default_rng(seed))
    results = [world.advance(expert.act(world))]
    while not (results[-1].success or results[-1].expired):
        results.append(world.advance(expert.act(world)))
    stages = [result.stage for result in results]
    assert results[-1].success
    assert sorted(set(stages)) == [0, 1, 2, 3, 4]
    # While it was held above the floor, the task was not done; nor at once when it was let go.
    assert results[stages.index(3)].time > 0.45 + results[stages.index(2)].time


def test_where_things_start(world: TaskEnvironment, task: DishTask) -> None:
    places, gaps = [], []
    for seed in range(60):
        world.begin(seed)
        rack, dish = (task.pose(world.physics, prop) for prop in (task.rack, task.dish))
        places.append((*rack[:2, 3], np.degrees(np.arctan2(rack[1, 0], rack[0, 0])), *dish[:2, 3]))
        rim = task.rim_points @ dish[:3, :3].T + dish[:3, 3] - rack[:3, 3]
        gaps.append((np.abs(rim @ rack[:3, :3])[:, :2] - task.rack.half).max(axis=1).min())
        assert not task.contact_state(world.physics).by_any_arm(task.props)
    low, high = np.min(places, axis=0), np.max(places, axis=0)
    lowest = np.array([-0.1, 0.18, -93.6, task.dish_x[0], task.dish_y[0]])
    highest = np.array([0.1, 0.25, -86.4, task.dish_x[1], task.dish_y[1]])
    assert (low >= lowest - 1e-6).all()
    assert (high <= highest + 1e-6).all()
    assert (high - low > 0.6 * (highest - lowest)).all()
    assert min(gaps) > 0.008


def test_no_free_place_is_said(
    task: DishTask, world: TaskEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "dish_y", (0.2, 0.21))
    monkeypatch.setattr(task, "dish_x", (0.0, 0.01))
    message = f"None of 40 tries has found a place for {task.dish.name} beside the rack"
    with pytest.raises(RuntimeError, match=message):
        world.begin(0)
