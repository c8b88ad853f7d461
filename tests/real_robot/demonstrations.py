"""Demonstrations of an expert in the simulation, for replay over the wire."""

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Observation
from stringline.policies.chunks.chunk import ActionChunk, ActionPrefix
from stringline.sim.environment.environment import TaskEnvironment, make_environment
from stringline.sim.experts.expert_registry import Expert

CONTROL_HZ = 50.0
CHUNK = 48


def largest_difference(
    one: list[NDArray[np.float64]], other: list[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Returns the largest difference (J,) of two series of joints over their common length."""
    pairs = list(zip(one, other, strict=False))
    return np.asarray(np.max([np.abs(a - b) for a, b in pairs], axis=0))


class Replay:
    """A session that plans recorded actions, and stores its requests."""

    accepts_prefix = True

    def __init__(self, actions: NDArray[np.float32]) -> None:
        self.actions = actions
        self.asked_at: list[float] = []
        self.prefix: list[ActionPrefix | None] = []

    def plan(self, observation: Observation, prefix: ActionPrefix | None = None) -> ActionChunk:
        now = float(observation["time"])
        self.asked_at.append(round(now, 6))
        self.prefix.append(prefix)
        steps = np.arange(CHUNK)
        due = np.minimum(round(now * CONTROL_HZ) + steps, len(self.actions) - 1)
        return ActionChunk(now + steps.astype(np.float64) / CONTROL_HZ, self.actions[due])


def demonstrate(
    task: str, expert: Expert[TaskEnvironment], seed: int
) -> tuple[NDArray[np.float32], list[NDArray[np.float64]]]:
    """Returns the actions (T, A) of a successful expert, and the joints before each action."""
    world = make_environment(task, cameras=())
    world.begin(seed)
    expert.reset(world, np.random.default_rng(seed))
    actions, joints = [], []
    while True:
        actions.append(np.asarray(expert.act(world), np.float32))
        joints.append(world.state()["joints/position"].astype(np.float64))
        result = world.advance(actions[-1])
        if result.success or result.expired:
            break
    world.close()
    assert result.success
    return np.stack(actions), joints
