"""Calls are executed in the thread of `work`, and waiting calls get an error at its end."""

from concurrent.futures import Future
from threading import get_ident

import pytest

from stringline.policies.remote.server import CallersThread, WorkEndedError


def interrupt() -> None:
    raise KeyboardInterrupt


def test_submitted_calls_are_executed_here_in_order() -> None:
    worker, done = CallersThread(), []
    futures = [
        worker.submit(lambda place=place: done.append(place) or get_ident()) for place in range(3)
    ]
    worker.shutdown()
    worker.work()
    assert done == [0, 1, 2]
    assert [future.result(0) for future in futures] == [get_ident()] * 3


def test_an_error_reaches_its_caller_and_the_work_continues() -> None:
    worker = CallersThread()
    bad, good = worker.submit(lambda: 1 // 0), worker.submit(lambda: 1)
    worker.shutdown()
    worker.work()
    assert isinstance(bad.exception(0), ZeroDivisionError)
    assert good.result(0) == 1


def test_an_interrupt_is_raised_and_waiting_calls_fail_unless_cancelled() -> None:
    worker = CallersThread()
    futures: list[Future[None]] = [worker.submit(interrupt) for _ in range(3)]
    assert futures[1].cancel()
    with pytest.raises(KeyboardInterrupt):
        worker.work()
    assert futures[1].cancelled()
    for future in (futures[0], futures[2]):
        assert isinstance(future.exception(0), WorkEndedError)
    with pytest.raises(WorkEndedError):
        worker.submit(interrupt)
