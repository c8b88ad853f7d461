"""Bowl, glass and plate on the rack are success; dishes elsewhere are not."""

import numpy as np
import pytest
from tests.sim.episodes import follow, place_at, stay

from stringline import Matrix, TaskEnvironment, make_expert, pose, rotation_about
from stringline.datasets.embodiments.aloha import START_POSE
from stringline.sim.tasks.dish_tasks import BowlOnRack, DishTask, GlassOnRack

X, Y = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)
FLIPPED = rotation_about(X, np.pi)
WORLD = {"cameras": (), "time_limit_s": 25.0}


@pytest.fixture(scope="module", params=[BowlOnRack, GlassOnRack], ids=lambda task: task.name)
def task(request: pytest.FixtureRequest) -> DishTask:
    built: DishTask = request.param()
    return built


def put(world: TaskEnvironment, task: DishTask, T_rack_dish: Matrix) -> None:
    """Puts the dish somewhere relative to the rack."""
    place_at(world, task.dish, task.rack, T_rack_dish)


def in_bay(task: DishTask, above: float = 0.001) -> Matrix:
    """Returns the middle of the bay, some way above the floor."""
    return pose((*task.rack.bay.mean(axis=0), task.rack.floor + above))


@pytest.mark.parametrize("height", [0.0, 0.06])
def test_a_dish_that_stands_in_the_bay_counts(
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
    assert not stay(world, seconds=1.8).success
    assert task.stage == 0


def test_a_fallen_dish_counts_once_it_rests(world: TaskEnvironment, task: DishTask) -> None:
    world.begin(2)
    put(world, task, in_bay(task, 0.05))
    assert not stay(world, seconds=0.5).success
    assert task.stage in (0, 3)


def test_a_tipped_rack_is_refused(world: TaskEnvironment, task: DishTask) -> None:
    world.begin(2)
    for _ in range(40):
        task.place(
            world.physics, task.rack, pose((0.0, 0.25, 0.05), rotation_about(X, np.radians(8)))
        )
        put(world, task, in_bay(task, 0.0))
        assert not world.advance(START_POSE).success


@pytest.mark.parametrize("seed", [1])
def test_the_expert_passes_all_stages(world: TaskEnvironment, task: DishTask, seed: int) -> None:
    results, _ = follow(world, make_expert(task.name), seed)
    stages = [result.stage for result in results]
    assert results[-1].success
    assert sorted(set(stages)) == [0, 1, 2, 3, 4]
    # Neither a held dish above the floor nor a dish released just now is success.
    assert results[stages.index(3)].time > 0.45 + results[stages.index(2)].time


def test_starts_fill_their_ranges(world: TaskEnvironment, task: DishTask) -> None:
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


def test_an_error_reports_that_no_place_is_free(
    task: DishTask, world: TaskEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "dish_y", (0.2, 0.21))
    monkeypatch.setattr(task, "dish_x", (0.0, 0.01))
    message = f"None of 40 tries has found a place for {task.dish.name} beside the rack"
    with pytest.raises(RuntimeError, match=message):
        world.begin(0)
