"""An executor that works in the thread of its caller."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from threading import Lock
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class WorkEndedError(RuntimeError):
    """The executor has ended."""


class CallersThread(Executor):
    """Executes submitted calls in the thread that calls `work`, in order of arrival.

    PyTorch keeps a pool of threads for each computing thread. Two pools exceed the number of cores,
    and then OpenMP puts idle threads to sleep instead of spinning: on two cores a plan took 2.3
    times as long as in the thread that had loaded the policy. So a server computes in that thread
    and communicates in another one.
    """

    def __init__(self) -> None:
        self._submitted: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._open = True
        self._opening = Lock()

    def submit(
        self, fn: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs
    ) -> Future[Result]:
        """Returns the future result of a call."""
        future: Future[Result] = Future()
        with self._opening:
            if not self._open:
                raise WorkEndedError
            self._submitted.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Lets `work` return when all submitted calls are done; does not wait for it."""
        self._submitted.put(None)

    def work(self) -> None:
        """Works until `shutdown`. After an interrupt, waiting calls get a WorkEndedError."""
        try:
            while (submitted := self._submitted.get()) is not None:
                _do(*submitted)
        finally:
            with self._opening:
                self._open = False
            while not self._submitted.empty():
                if (waiting := self._submitted.get()) is not None and waiting[
                    0
                ].set_running_or_notify_cancel():
                    waiting[0].set_exception(WorkEndedError())


def _do(future: "Future[Any]", call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)
    except BaseException:  # An interrupt of this thread, unrelated to the call.
        future.set_exception(WorkEndedError())
        raise
