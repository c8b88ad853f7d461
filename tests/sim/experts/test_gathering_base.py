"""FruitBowl and StorageBin: experts put all objects away; success needs all, released, at rest."""

import numpy as np
import pytest
from tests.sim.episodes import assert_smooth, stay
from tests.sim.gatherings import X, put, stow

from stringline.datasets.embodiments.aloha import ARMS
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.datasets.embodiments.transforms import pose, rotation_about
from stringline.sim.environment.environment import StepResult, TaskEnvironment
from stringline.sim.experts.expert_registry import Expert, make_expert
from stringline.sim.tasks.gathering_tasks import APART_M, GatheringTask, distance
from stringline.sim.tasks.task_registry import make_task

WORLD = {"cameras": (), "time_limit_s": 45.0}


@pytest.fixture(scope="module", params=["fruit_bowl", "storage_bin"])
def task(request: pytest.FixtureRequest) -> GatheringTask:
    built = make_task(request.param)
    assert isinstance(built, GatheringTask)
    return built


@pytest.mark.slow
def test_the_expert_gathers_all_objects_smoothly_and_retakes_a_moved_one(
    world: TaskEnvironment, task: GatheringTask
) -> None:
    expert = make_expert(task.name)
    world.begin(0)
    expert.reset(world, np.random.default_rng(0))
    results = list[StepResult]()
    targets = list[Vector]()
    moved = False
    working = set[frozenset[str]]()
    while not results or not (results[-1].success or results[-1].expired):
        targets.append(expert.act(world))
        results.append(world.advance(targets[-1]))
        contacts = task.contact_state(world.physics)
        assert not contacts.between(*ARMS)
        working.add(
            frozenset(arm for arm in ARMS if any(contacts.held(arm, name) for name in task.props))
        )
        if not moved and results[-1].stage == 2:
            item = next(item for item in task.objects if task.inside(world.physics, item))
            task.place(world.physics, item.prop, pose((0.24, -0.2, 0.0)) @ task.lying(item))
            moved = True
    assert results[-1].success
    stages = [result.stage for result in results]
    assert stages == sorted(stages)
    assert set(range(3)) < set(stages)
    assert frozenset(ARMS) in working  # Both work at the same time.
    assert_smooth(np.stack(targets), 20)


def _act_for(world: TaskEnvironment, expert: Expert[TaskEnvironment], steps: int) -> None:
    for _ in range(steps):
        world.advance(expert.act(world))


@pytest.mark.slow
def test_the_expert_names_objects_out_of_reach(world: TaskEnvironment, task: GatheringTask) -> None:
    world.begin(0)
    lost = task.objects[-1].prop
    stow(world, task, but=lost.name)
    task.place(world.physics, lost, pose((0.0, 0.9, 0.0)) @ task.lying(task.objects[-1]))
    expert = make_expert(task.name)
    expert.reset(world, np.random.default_rng(0))
    with pytest.raises(
        OutOfReachError, match=f"Neither arm can put {lost.name} into the container"
    ):
        _act_for(world, expert, 400)


@pytest.mark.slow
def test_the_expert_refuses_other_tasks() -> None:
    world = TaskEnvironment(make_task("hand_over_banana"), cameras=())
    with pytest.raises(ValueError, match="This expert does 'fruit_bowl'"):
        make_expert("fruit_bowl").reset(world, np.random.default_rng(0))
    world.close()


@pytest.mark.parametrize("height", [0.0, 0.06])
def test_all_inside_is_success_after_half_a_second(
    world: TaskEnvironment, task: GatheringTask, height: float
) -> None:
    world.begin(1, {"table_height": height})
    stow(world, task)
    result = stay(world, seconds=2.5)
    assert result.success
    assert result.time >= 0.5
    assert task.stages[result.stage] == "success"


@pytest.mark.parametrize("index", range(3))
def test_all_objects_must_be_inside(
    world: TaskEnvironment, task: GatheringTask, index: int
) -> None:
    world.begin(2)
    stow(world, task, but=task.objects[index].prop.name)
    result = stay(world, seconds=1.5)
    assert (result.success, task.stages[result.stage]) == (False, "two_in")


@pytest.mark.parametrize("index", range(3))
def test_objects_beside_the_wall_do_not_count(
    world: TaskEnvironment, task: GatheringTask, index: int
) -> None:
    world.begin(2)
    item = task.objects[index]
    stow(world, task, but=item.prop.name)
    away = task.container.prop.reach + 0.03 if task.name == "fruit_bowl" else 0.12
    put(
        world,
        task,
        item.prop,
        pose((away, 0.0, 0.001), rotation_about((0.0, 0.0, 1.0), np.pi / 2)) @ task.lying(item),
    )
    assert not stay(world).success
    assert not task.inside(world.physics, item)


def test_a_container_that_stands_askew_or_in_the_air_holds_nothing(
    world: TaskEnvironment, task: GatheringTask
) -> None:
    for askew in (
        pose((0.0, 0.0, 0.03)),
        pose((0.0, 0.0, 0.05), rotation_about(X, np.radians(12))),
    ):
        world.begin(3)
        task.place(world.physics, task.container.prop, askew)
        stow(world, task)
        assert not any(task.inside(world.physics, item) for item in task.objects)


def test_objects_that_move_inside_count_once_they_rest(
    world: TaskEnvironment, task: GatheringTask
) -> None:
    world.begin(4)
    stow(world, task)
    stay(world, seconds=0.3)
    prop = task.objects[0].prop
    results = list[StepResult]()
    for _ in range(40):
        prop.set_velocity(world.physics, np.array([0.0, 0.0, 0.1]), np.zeros(3))
        results.append(stay(world, seconds=0.02))
    assert not any(result.success for result in results)
    assert task.stages[results[-1].stage] == "all_in"
    assert stay(world, seconds=2.0).success


def test_starts_fill_their_ranges(world: TaskEnvironment, task: GatheringTask) -> None:
    container, places, sides = [], [], list[float]()
    for seed in range(30):
        world.begin(seed)
        T = task.pose(world.physics, task.container.prop)
        container.append((*T[:2, 3], np.degrees(np.arctan2(T[1, 0], T[0, 0]))))
        at = [task.pose(world.physics, item.prop) for item in task.objects]
        places += [(abs(T[0, 3]), T[1, 3]) for T in at]
        sides.append(sum(np.sign(T[0, 3]) for T in at))
        everything = [(task.container, T), *zip(task.objects, at, strict=True)]
        gaps = [distance(*a, *b) for i, a in enumerate(everything) for b in everything[:i]]
        assert min(gaps) > APART_M - 1e-6
        assert all(abs(task.lowest(world.physics, item)) < 1e-6 for item in task.objects)
    assert set(sides) == {-1, 1}
    for found, ranges in (
        (container, ((-0.04, 0.04), (-0.04, 0.04), (-15, 15))),
        (places, ((0.18, 0.32), (-0.17, 0.17))),
    ):
        low, high = np.array(ranges).T
        assert (np.min(found, axis=0) >= low - 1e-6).all()
        assert (np.max(found, axis=0) <= high + 1e-6).all()
        assert (np.ptp(found, axis=0) > 0.75 * (high - low)).all()


def test_objects_at_rest_stay_at_rest(world: TaskEnvironment, task: GatheringTask) -> None:
    world.begin(5)
    before = [task.pose(world.physics, prop) for prop in task.props.values()]
    stay(world, seconds=0.6)
    for prop, was in zip(task.props.values(), before, strict=True):
        np.testing.assert_allclose(task.pose(world.physics, prop), was, atol=0.003)
    assert task.at_rest(world.physics)
