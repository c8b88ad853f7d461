"""The KUKA puts objects into the tray; success needs a released object at rest in the tray."""

import numpy as np
import pytest
from tests.sim.episodes import place_at, stay

from stringline.datasets.embodiments.iiwa14 import IIWA14
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.environment.environment import StepResult, TaskEnvironment
from stringline.sim.experts.kuka_experts import KukaPlaceExpert
from stringline.sim.tasks.kuka_tasks import KukaPlace
from stringline.sim.tasks.success import in_frame

X, Y, Z = np.eye(3)
FLOOR = 0.006
TASK = KukaPlace.name
WORLD = {"cameras": (), "time_limit_s": 30.0}


FIRST: dict[str, int] = {}  # First seeds with an object of a name, found so far.


def begin_with(world: TaskEnvironment, task: KukaPlace, name: str, height: float = 0.0) -> None:
    """Begins the first episode that has an object of that name."""
    for seed in range(FIRST.get(name, 0), 400):
        world.begin(seed, {"table_height": height})
        FIRST.setdefault(task.object.name, seed)
        if task.object.name == name:
            return
    raise AssertionError(name)


def put(world: TaskEnvironment, task: KukaPlace, T_tray_object: Matrix) -> StepResult:
    """Puts the object somewhere relative to the tray, and waits."""
    place_at(world, task.object, task.tray, T_tray_object)
    return stay(world)


@pytest.mark.parametrize(
    ("name", "T_tray_object", "height", "success"),
    [
        ("cube", pose((0.0, 0.0, FLOOR + 0.0235)), 0.0, True),
        (
            "cube",
            pose((0.07, -0.07, FLOOR + 0.0235), rotation_about(X, np.pi / 2)),
            -0.1,
            True,
        ),  # In its corner, on a side.
        ("can", pose((0.03, 0.03, FLOOR + 0.046)), 0.1, True),
        ("beam", pose((0.0, 0.0, FLOOR + 0.016), rotation_about(Z, np.pi / 4)), 0.0, True),
        ("cube", pose((0.15, 0.0, 0.0235)), 0.0, False),  # Beside it.
        ("cube", pose((0.1, 0.0, 0.04)), 0.0, False),  # On its rim.
        ("beam", pose((0.09, 0.0, 0.045), rotation_about(Y, 0.2)), 0.0, False),  # Across its rim.
        (
            "can",
            pose((0.095, 0.0, 0.06), rotation_about(Y, 0.35)),
            0.0,
            False,
        ),  # Leaning over its rim.
    ],
)
def test_success_needs_the_whole_object_in_the_tray(
    world: TaskEnvironment,
    task: KukaPlace,
    name: str,
    T_tray_object: Matrix,
    height: float,
    success: bool,
) -> None:
    begin_with(world, task, name, height)
    result = put(world, task, T_tray_object)
    assert result.success is success
    assert (result.stage == 4) is success
    assert task.reached(world.physics) is success


def test_an_object_above_the_trays_floor_is_not_in_the_tray(
    world: TaskEnvironment, task: KukaPlace
) -> None:
    begin_with(world, task, "cube")
    for rise, inside in ((0.001, True), (0.006, False)):
        T = task.pose(world.physics, task.tray) @ pose((0.0, 0.0, FLOOR + 0.0225 + rise))
        task.place(world.physics, task.object, T)
        assert task.reached(world.physics) is inside


def test_a_held_object_in_the_tray_does_not_count(world: TaskEnvironment, task: KukaPlace) -> None:
    expert = KukaPlaceExpert(paces=(0.8, 0.8))
    world.begin(0)
    expert.reset(world, np.random.default_rng(0))
    action = IIWA14.home
    while (result := world.advance(action)).stage < 3:
        action = expert.act(world)
        assert not result.expired
    for _ in range(60):
        result = world.advance(action)
    assert task.contact_state(world.physics).by_arm("arm", task.object.name)
    assert (result.success, result.stage) == (False, 3)


def test_object_and_tray_start_apart_and_within_their_ranges(
    world: TaskEnvironment, task: KukaPlace
) -> None:
    trays = []
    for seed in range(60):
        world.begin(seed)
        T_tray, T_item = task.pose(world.physics, task.tray), task.pose(world.physics, task.object)
        trays.append(T_tray[:2, 3])
        points = in_frame(T_tray, T_item, task.object.points)
        assert (
            np.abs(points[:, :2]).max(axis=1) - task.object.radii > task.tray.outer + 0.025
        ).all(), seed
    assert (np.min(trays, axis=0) >= (0.48, -0.2)).all()
    assert (np.max(trays, axis=0) <= (0.64, 0.2)).all()
    assert (np.ptp(trays, axis=0) > (0.12, 0.3)).all()
    world.advance(IIWA14.home)
    assert task.at_rest(world.physics)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "slip_m", "height"), [(1, 0.02, 0.1), (3, 0.0, -0.1)])
def test_the_expert_puts_objects_into_the_tray(
    world: TaskEnvironment, seed: int, slip_m: float, height: float
) -> None:
    recording = record_episode(
        world, KukaPlaceExpert(), seed, slip_m=slip_m, options={"table_height": height}
    )
    assert recording.success, recording.error
    stages = recording.arrays["stage"].tolist()
    assert set(stages) >= {0, 1, 3}
    assert stages == sorted(stages)
