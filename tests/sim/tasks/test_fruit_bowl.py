"""Fruits that lean out, lie on top or under the overhanging wall, or are held, do not count."""

import numpy as np
import pytest
from tests.sim.episodes import stay
from tests.sim.gatherings import X, Y, grasp_with_left, put, stow

from stringline import ALOHA, Matrix, TaskEnvironment, pose, rotation_about
from stringline.datasets.embodiments.aloha import START_POSE
from stringline.sim.experts.gathering_experts import closed_on
from stringline.sim.props.table_props import Bowl
from stringline.sim.tasks.gathering_tasks import FruitBowl

TASK = FruitBowl.name
WORLD = {"cameras": ()}


def test_a_banana_that_leans_over_the_rim_is_refused(
    world: TaskEnvironment, task: FruitBowl
) -> None:
    world.begin(0)
    stow(world, task, but="banana")
    put(world, task, task.banana, pose((0.02, 0.1, 0.075), rotation_about(X, np.radians(25))))
    result = stay(world, seconds=2.0)
    points = (
        task.pose(world.physics, task.banana)[2, 3]
        + task.banana.points @ task.pose(world.physics, task.banana)[2, :3]
    )
    assert points.max() > task.bowl.height  # One end is out, the other in.
    assert points.min() < task.bowl.height - 0.02
    assert (result.success, task.stages[result.stage]) == (False, "two_in")


def test_a_held_banana_counts_once_it_is_released(world: TaskEnvironment, task: FruitBowl) -> None:
    world.begin(0)
    stow(world, task)
    T_base_banana = task.pose(world.physics, task.banana)
    at = np.add(T_base_banana[:3, 3], (0.0, 0.0, 0.006))
    q = grasp_with_left(world, task, at, T_base_banana[:3, 0], opening=0.75)
    q[ALOHA.grippers["left"]] = closed_on(0.036)
    assert not stay(world, q).success
    contacts = task.contact_state(world.physics)
    assert contacts.held("left", "banana")
    assert task.reached(world.physics)
    assert task.stages[task.progress(world.physics, contacts)] == "two_in"
    task.robot.put(world.physics, START_POSE)
    assert stay(world, seconds=2.0).success


@pytest.mark.parametrize(
    ("point", "inside"),
    [
        ((0.0, 0.0, 0.03), True),
        ((0.0, 0.0, -0.01), False),
        ((0.0, 0.0, 0.081), False),
        ((0.128, 0.0, 0.075), True),
        ((0.128, 0.0, 0.03), False),  # Under the overhanging wall.
        ((0.0, -0.095, 0.025), True),
        ((0.15, 0.0, 0.03), False),
    ],
)
def test_inside_the_bowl_is_between_floor_wall_and_rim(
    point: tuple[float, float, float], inside: bool
) -> None:
    bowl = Bowl(diameter=0.28, height=0.08, floor_diameter=0.18)
    assert bowl.contains(np.array([point])) is inside
    assert not bowl.contains(np.array([point, (0.0, 0.0, 0.2)]))


@pytest.mark.parametrize("turn", [np.eye(3), rotation_about(X, 2.0), rotation_about(Y, 0.7)])
def test_fruits_that_fall_into_the_bowl_come_to_rest_in_it(
    world: TaskEnvironment, task: FruitBowl, turn: Matrix
) -> None:
    world.begin(1)
    for prop, spot in (
        (task.pear, (-0.04, -0.03, 0.06)),
        (task.apple, (-0.03, 0.04, 0.06)),
        (task.banana, (0.04, 0, 0.05)),
    ):
        put(world, task, prop, pose(spot, turn if prop is not task.banana else None))
    assert stay(world, seconds=4.0).success
