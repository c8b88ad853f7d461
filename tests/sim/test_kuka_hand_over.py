"""Two KUKA arms hand a bar over: it has to change hands, and all of it has to be in the bin."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from stringline.datasets.embodiments.iiwa14 import IIWA14_BIMANUAL
from stringline.datasets.embodiments.rigid import Matrix, pose, rotation_about
from stringline.datasets.validation import validate_observation
from stringline.sim.environment import StepResult, TaskEnvironment
from stringline.sim.experts.kuka_hand_over import KukaHandOverExpert
from stringline.sim.record import record_episode
from stringline.sim.tasks.kuka_hand_over import KukaHandOver

X, Y, Z = np.eye(3)
HOME = IIWA14_BIMANUAL.home
ON_FLOOR = 0.005 + 0.014


@pytest.fixture(scope="module")
def task() -> KukaHandOver:
    return KukaHandOver()


@pytest.fixture(scope="module")
def world(task: KukaHandOver) -> Iterator[TaskEnvironment]:
    world = TaskEnvironment(task, image_size=16, time_limit_s=40.0)
    yield world
    world.close()


def run(world: TaskEnvironment, seed: int, until: Callable[[StepResult], bool]) -> None:
    """Runs the expert until something holds."""
    expert = KukaHandOverExpert(paces=(0.75, 0.75))
    world.begin(seed)
    expert.reset(world, np.random.default_rng(seed))
    while not until(result := world.advance(expert.act(world))):
        assert not result.expired


def put(world: TaskEnvironment, task: KukaHandOver, T_bin_bar: Matrix, seconds: float = 1.2) -> StepResult:
    """Puts the bar somewhere relative to the bin, sends the arms home and waits; success on the way counts."""
    task.place(world.physics, task.bar, task.pose(world.physics, task.bin) @ T_bin_bar)
    result = world.advance(HOME)
    for _ in range(round(seconds * 50) - 1):
        if not result.success:
            result = world.advance(HOME)
    return result


@pytest.mark.parametrize(
    ("T_bin_bar", "inside"),
    [
        (pose((0.0, 0.0, ON_FLOOR)), True),
        (pose((0.02, -0.03, ON_FLOOR), rotation_about(Z, 0.3)), True),
        (pose((0.0, 0.0, ON_FLOOR + 0.012), rotation_about(X, 0.7)), True),
        (pose((0.0, 0.0, 0.06)), False),  # Its upper edges above the rim.
        (pose((0.0, 0.0, 0.07), rotation_about(Z, np.pi / 2)), False),  # Across the rim.
        (pose((0.04, 0.0, ON_FLOOR)), False),  # Through a wall.
        (pose((0.2, 0.0, 0.014)), False),  # Beside it.
        (pose((0.05, 0.0, 0.08), rotation_about(Y, 0.6)), False),  # Leaning over a wall.
    ],
)
def test_inside_means_all_corners_in_the_bin(task: KukaHandOver, T_bin_bar: Matrix, inside: bool) -> None:
    T_base_bin = pose((-0.2, 0.05, 0.1), rotation_about(Z, 0.3))
    assert task.inside(T_base_bin @ T_bin_bar, T_base_bin) is inside
    tipped = pose((0.0, 0.0, 0.1), rotation_about(X, np.radians(30)))
    assert not task.inside(tipped @ T_bin_bar, tipped)


def test_observations_fit_the_contract_of_two_arms(world: TaskEnvironment) -> None:
    observation, _ = world.reset(seed=0)
    validate_observation(observation, world.contract)
    assert world.contract.arms == ("left", "right")
    assert world.segments == ("nothing", "table", "left", "right", "bar", "bin")
    assert "wrist_right" in [camera.name for camera in world.contract.cameras]


def test_in_the_bin_without_a_hand_over_is_no_success(world: TaskEnvironment, task: KukaHandOver) -> None:
    world.begin(0)
    result = put(world, task, pose((0.0, 0.0, ON_FLOOR + 0.001)))
    assert task.inside(task.pose(world.physics, task.bar), task.pose(world.physics, task.bin))
    assert (result.success, result.stage) == (False, 0)


def test_after_the_hand_over_only_the_bin_counts(world: TaskEnvironment, task: KukaHandOver) -> None:
    run(world, 1, lambda result: result.stage == 2)
    result = put(world, task, pose((0.01, 0.0, ON_FLOOR + 0.001)), seconds=3.0)
    assert (result.success, result.stage) == (True, 4)
    run(world, 1, lambda result: result.stage == 2)
    beside = put(world, task, pose((0.0, 0.2, 0.015)))
    assert (beside.success, beside.stage) == (False, 2)
    assert not put(world, task, pose((0.0, 0.0, ON_FLOOR + 0.001))).success  # It was on the table in between.


def test_where_things_start(world: TaskEnvironment, task: KukaHandOver) -> None:
    places = []
    for seed in range(60):
        world.begin(seed)
        row: list[float] = []
        for prop in (task.bar, task.bin):
            T = task.pose(world.physics, prop)
            row += [*T[:2, 3], np.degrees(np.arctan2(T[1, 0], T[0, 0]))]
        places.append(row)
    low, high = np.min(places, axis=0), np.max(places, axis=0)
    lowest, highest = np.array([0.14, -0.14, -40, -0.26, -0.12, -25]), np.array([0.26, 0.14, 40, -0.14, 0.12, 25])
    assert (low >= lowest - 1e-6).all()
    assert (high <= highest + 1e-6).all()
    assert (high - low > 0.8 * (highest - lowest)).all()
    world.advance(HOME)
    assert task.at_rest(world.physics)


@pytest.mark.parametrize(("seed", "slip_m", "height"), [(2, 0.02, -0.1)])
def test_the_expert_hands_over(world: TaskEnvironment, seed: int, slip_m: float, height: float) -> None:
    recording = record_episode(world, KukaHandOverExpert(), seed, slip_m=slip_m, options={"table_height": height})
    assert recording.success, recording.trouble
    stages = recording.arrays["stage"].tolist()
    assert set(stages) >= {0, 1, 2, 3}
    assert stages == sorted(stages)
