"""Shared helpers of the tests of gathering tasks: objects in place, and arms at rest."""

import numpy as np
from tests.sim.episodes import place_at

from stringline.datasets.embodiments.aloha import ALOHA, START_POSE
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.motion import downwards
from stringline.sim.props.prop import Prop
from stringline.sim.tasks.gathering_tasks import FruitBowl, GatheringTask, StorageBin

X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


def stowed(task: GatheringTask) -> dict[str, Matrix]:
    """Returns poses (4, 4) of all objects inside, in the container's frame, by name."""
    if isinstance(task, FruitBowl):
        return {
            "banana": pose((0.04, 0.0, 0.026)),
            "apple": pose((-0.045, 0.03, 0.032)),
            "pear": pose((-0.045, -0.04, 0.032), rotation_about(Z, np.radians(180))),
        }
    assert isinstance(task, StorageBin)
    return {
        box.name: pose((0.0, 0.09 * slot, 0.006 + box.half[2]))
        for slot, box in zip((-1, 0, 1), task.boxes, strict=True)
    }


def put(world: TaskEnvironment, task: GatheringTask, prop: Prop, T_container_prop: Matrix) -> None:
    """Puts a prop somewhere relative to the container."""
    place_at(world, prop, task.container.prop, T_container_prop)


def stow(world: TaskEnvironment, task: GatheringTask, but: str = "") -> None:
    """Puts everything where it belongs, except for one object."""
    for name, at in stowed(task).items():
        if name != but:
            put(world, task, task.props[name], at)


def grasp_with_left(
    world: TaskEnvironment, task: GatheringTask, at: Vector, across: Vector, opening: float
) -> Vector:
    """Puts the left gripper around a point (3,), from above; returns its joints (14,)."""
    start = START_POSE.copy()
    start[:6] = (0.0, 0.3, -0.1, 0.0, 1.2, 0.0)
    q = InverseKinematics(ALOHA).solve({"left": downwards(at, across, 0.0)}, start)
    q[ALOHA.grippers["left"]] = opening
    task.robot.put(world.physics, q)
    return q
