"""The path of a scripted hand: the actions of a task's expert in a simulated world."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.emulators.plants.plant import save_hand
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.environment.environment import make_environment
from stringline.sim.experts.expert_registry import make_expert

_REST_S = 0.3  # At the home pose, before it begins.


def write_expert_hand(
    file: Path, task: str, seed: int, options: Mapping[str, Any], time_limit_s: float
) -> None:
    """Runs the expert of a task, which takes some seconds, and writes the path of its actions.

    The world of that seed is the one that the arms will meet. See `save_hand` for the file.

    Raises:
        ValueError: The task has no expert, or the expert fails in that world.
    """
    world = make_environment(task, cameras=(), time_limit_s=time_limit_s)
    try:
        recording = record_episode(world, make_expert(task), seed, options=options)
    finally:
        world.close()
    if not recording.success:
        raise ValueError(
            f"The expert of {task} fails in the world of seed {seed}; choose another seed."
        )
    time = np.asarray(recording.arrays["time"], dtype=np.float64)
    path = np.asarray(recording.arrays["action"], dtype=np.float64)
    save_hand(
        file,
        np.concatenate([[0.0], _REST_S + time - time[0]]),
        np.concatenate([ALOHA.home[None], path]),
    )
