"""A world without cameras, by the name of its task."""

from collections.abc import Iterator

import pytest

from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.tasks.task_registry import make_task


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[TaskEnvironment]:
    """The world of a task, with time for several attempts."""
    world = TaskEnvironment(make_task(request.param), cameras=(), time_limit_s=60.0)
    yield world
    world.close()
