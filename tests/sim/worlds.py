"""Worlds that tests send to other processes."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from tests.sim.deaths import Deaths

from stringline.sim.environment.environment import TaskEnvironment, make_environment
from stringline.sim.tasks.task_registry import make_task


class MortalWorld(TaskEnvironment):
    """The world of a task, in which some episodes end the process."""

    deaths: Deaths

    def begin(self, seed: int | None = None, options: Mapping[str, float] | None = None) -> None:
        self.deaths.begin(seed)
        super().begin(seed, options)


def mortal_world(deaths: Deaths) -> MortalWorld:
    """A small world."""
    task = make_task("hand_over_banana", 50.0)
    world = MortalWorld(task, cameras=("overhead",), image_size=32, time_limit_s=0.6)
    world.deaths = deaths
    return world


def world_after_meeting(folder: Path, count: int) -> TaskEnvironment:
    """Waits for the other worlds, so that all workers get episodes."""
    world = make_environment(
        "hand_over_banana", cameras=("overhead",), image_size=32, time_limit_s=0.6
    )
    (folder / f"met-{os.getpid()}").touch()
    end = time.monotonic() + 60
    while len(list(folder.glob("met-*"))) < count and time.monotonic() < end:
        time.sleep(0.02)
    return world
