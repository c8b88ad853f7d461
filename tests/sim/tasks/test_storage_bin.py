"""Boxes that lean on the rim, stand out, lie on the wall or are held do not count."""

import numpy as np
import pytest
from tests.sim.episodes import stay
from tests.sim.gatherings import X, Y, grasp_with_left, put, stow

from stringline import ALOHA, Matrix, TaskEnvironment, pose, rotation_about
from stringline.datasets.embodiments.aloha import START_POSE
from stringline.sim.experts.gathering_experts import closed_on
from stringline.sim.tasks.gathering_tasks import StorageBin

TASK = StorageBin.name
WORLD = {"cameras": ()}


@pytest.mark.parametrize(
    "at",
    [
        pose(
            (0.0, -0.09, 0.066), rotation_about(Y, np.pi / 2)
        ),  # On its end: 120 mm between walls of 100 mm.
        pose((0.055, -0.09, 0.10), rotation_about(Y, np.radians(50))),  # Leaning on the rim.
        pose((0.0, 0.0, 0.13)),  # On top of the box in the middle, its upper corners above the rim.
        pose((0.08, 0.0, 0.126)),  # On the wall.
    ],
)
def test_boxes_that_stand_out_are_refused(
    world: TaskEnvironment, task: StorageBin, at: Matrix
) -> None:
    world.begin(0)
    stow(world, task)
    put(world, task, task.boxes[1], pose((0.0, 0.0, 0.051), rotation_about(Y, np.pi / 2)))
    put(world, task, task.boxes[0], at)
    result = stay(world, seconds=2.0)
    assert (result.success, task.stages[result.stage]) == (False, "two_in")
    assert not task.inside(world.physics, task.objects[0])


def test_a_held_box_counts_once_it_is_released(world: TaskEnvironment, task: StorageBin) -> None:
    world.begin(0)
    stow(world, task)
    T_base_box = task.pose(world.physics, task.boxes[2])
    at = np.add(T_base_box[:3, 3], (0.0, 0.0, 0.015))
    q = grasp_with_left(world, task, at, T_base_box[:3, 1], opening=0.85)
    q[ALOHA.grippers["left"]] = closed_on(0.04)
    assert not stay(world, q).success
    contacts = task.contact_state(world.physics)
    assert contacts.held("left", "blue_box")
    assert task.reached(world.physics)
    assert task.stages[task.progress(world.physics, contacts)] == "two_in"
    task.robot.put(world.physics, START_POSE)
    assert stay(world, seconds=2.0).success


@pytest.mark.parametrize(
    ("turn", "inside"),
    [
        (np.eye(3), True),
        (rotation_about(Y, np.pi / 2), False),
        (rotation_about(X, np.pi / 2), True),
    ],
)
def test_a_box_is_inside_if_all_its_corners_are(
    task: StorageBin, turn: Matrix, inside: bool
) -> None:
    red = task.objects[0].points @ turn.T
    red[:, 2] -= red[:, 2].min() - task.bin.thickness
    assert task.bin.contains(red) is inside
    for shift in ((0.0, 0.0, -0.01), (0.03, 0.0, 0.0), (0.0, 0.14, 0.0), (0.0, 0.0, 0.06)):
        assert not task.bin.contains(np.add(red, shift))
