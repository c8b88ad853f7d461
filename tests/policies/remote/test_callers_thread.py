"""Work is done in the offering thread, and waiting calls get an error at its end."""

from concurrent.futures import Future
from threading import get_ident

import pytest

from stringline.policies.remote.callers_thread import CallersThread, WorkEndedError


def interrupt() -> None:
    raise KeyboardInterrupt


def test_everything_submitted_is_done_here_in_order() -> None:
    worker, done = CallersThread(), []
    futures = [
        worker.submit(lambda place=place: done.append(place) or get_ident()) for place in range(3)
    ]
    worker.shutdown()
    worker.work()
    assert done == [0, 1, 2]
    assert [future.result(0) for future in futures] == [get_ident()] * 3


def test_an_error_reaches_who_asked_and_work_goes_on() -> None:
    worker = CallersThread()
    bad, good = worker.submit(lambda: 1 // 0), worker.submit(lambda: 1)
    worker.shutdown()
    worker.work()
    assert isinstance(bad.exception(0), ZeroDivisionError)
    assert good.result(0) == 1


def test_an_interruption_goes_on_and_all_who_wait_are_told_but_those_who_gave_up() -> None:
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
