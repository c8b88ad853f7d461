"""A world for the tests of a module, that of its `TASK` with options `WORLD`; calls of commands."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from stringline import TabletopTask, TaskEnvironment
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


Call = Callable[..., str]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Calls a command within this process, `call(main, *arguments, code=0)`; returns its output."""

    def run(main: Callable[[], None], *arguments: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["stringline-it", *arguments])
        ended: object = 0
        try:
            main()
        except SystemExit as end:
            ended = end.code or 0
        output = capsys.readouterr()
        assert ended == code, output.err
        return output.out + output.err

    return run
