"""Work that must be done in one certain thread."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from threading import Lock
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class WorkEndedError(RuntimeError):
    """Nobody works there any more."""


class CallersThread(Executor):
    """Does what other threads submit in the thread that calls `work`, one after the other, in order of arrival.

    PyTorch keeps a team of threads for each thread that computes. Two teams are more threads than
    cores, and then the system's OpenMP no longer waits for work in a loop but sleeps: on two cores
    a plan took 2.3 times as long as in the thread that had loaded the policy. So a server computes
    there, and talks in another thread.
    """

    def __init__(self) -> None:
        """Has nothing to do yet."""
        self._submitted: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._open = True
        self._opening = Lock()

    def submit(
        self, fn: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs
    ) -> Future[Result]:
        """Returns what the call will have returned.

        Raises:
            WorkEndedError: `work` has ended.
        """
        future: Future[Result] = Future()
        with self._opening:
            if not self._open:
                raise WorkEndedError
            self._submitted.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Lets `work` return when everything that was submitted before is done; does not wait for it."""
        self._submitted.put(None)

    def work(self) -> None:
        """Works until `shutdown`. If it is interrupted, whoever waits gets a WorkEndedError."""
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
    except BaseException:  # Somebody interrupts this thread; who asked has nothing to do with it.
        future.set_exception(WorkEndedError())
        raise
