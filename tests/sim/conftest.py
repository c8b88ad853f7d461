"""One world for the tests of a module: that of its task, opened with the options `WORLD`."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.tasks.tabletop import TabletopTask
from stringline.sim.tasks.task_registry import make_task


@pytest.fixture(scope="module")
def task(request: pytest.FixtureRequest) -> TabletopTask:
    """The task that the module names `TASK`."""
    return make_task(request.module.TASK)


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, task: TabletopTask) -> Iterator[TaskEnvironment]:
    """The environment of the module's task; it is closed after the last test."""
    with closing(TaskEnvironment(task, **request.module.WORLD)) as world:
        yield world
