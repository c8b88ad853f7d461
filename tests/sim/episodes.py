"""Shared helpers of the tests of tasks: props at poses, arms at rest, and runs of experts."""

from collections.abc import Callable

import numpy as np

from stringline import ALOHA, Matrix, Prop, TaskEnvironment, Vector
from stringline.sim.environment.environment import StepResult
from stringline.sim.experts.expert_registry import Expert


def place_at(world: TaskEnvironment, prop: Prop, reference: Prop, T: Matrix) -> None:
    """Places a prop at a pose (4, 4) in the frame of another prop."""
    T_table_prop = world.task.pose(world.physics, reference) @ T
    T_table_prop[2, 3] -= world.task.table_height
    world.task.place(world.physics, prop, T_table_prop)


def stay(world: TaskEnvironment, targets: Vector | None = None, seconds: float = 1.2) -> StepResult:
    """Keeps the arms at targets (J,), or at home; returns the first success, or the last result."""
    targets = world.embodiment.home if targets is None else targets
    result = world.advance(targets)
    for _ in range(round(seconds * 50) - 1):
        if not result.success:
            result = world.advance(targets)
    return result


def follow(
    world: TaskEnvironment,
    expert: Expert[TaskEnvironment],
    seed: int,
    until: Callable[[StepResult], bool] = lambda result: result.success,
    **options: float,
) -> tuple[list[StepResult], Vector]:
    """Runs an expert until a condition or the end; returns the results and targets (T, J)."""
    world.begin(seed, options)
    expert.reset(world, np.random.default_rng(seed))
    results = list[StepResult]()
    targets = list[Vector]()
    while not results or not (until(results[-1]) or results[-1].expired):
        targets.append(expert.act(world))
        results.append(world.advance(targets[-1]))
    return results, np.stack(targets)


def assert_smooth(targets: Vector, acceleration: float) -> None:
    """Asserts that ALOHA's targets (T, 14) at 50 Hz are slower than pi rad/s, and smooth."""
    revolute = targets[:, [joint.kind == "revolute" for joint in ALOHA.joints]]
    speed = np.diff(revolute, axis=0) * 50
    assert np.abs(speed).max() < np.pi
    assert np.abs(np.diff(speed, axis=0) * 50).max() < acceleration
