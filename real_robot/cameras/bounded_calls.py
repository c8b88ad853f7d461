"""Calls into a library that may block for ever, each with a deadline."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class BoundedCalls:
    """Runs calls one after the other in a thread, each with a time-out.

    A late call cannot be ended. Its thread is abandoned together with the objects of the call,
    which must not be used any more. It ends when the call returns, or with the process.

    Attributes:
        late: Whether a call was late; no further calls are made then.
    """

    def __init__(self, name: str) -> None:
        self.late = False
        self._calls = SimpleQueue[Callable[[], None] | None]()
        self._answers = SimpleQueue[Exception | None]()
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def __call__(self, call: Callable[[], T], timeout_s: float) -> T:
        """Returns the result of a call, or raises its error.

        Raises:
            TimeoutError: This call or an earlier one was late.
        """
        if self.late:
            raise TimeoutError
        found: list[T] = []
        self._calls.put(lambda: found.append(call()))
        try:
            error = self._answers.get(timeout=timeout_s)
        except Empty:
            self.late = True
            self.end()
            raise TimeoutError from None
        if error is not None:
            raise error
        return found[0]

    def end(self) -> None:
        """Ends the thread after the current call."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except Exception as error:
                self._answers.put(error)
            else:
                self._answers.put(None)
