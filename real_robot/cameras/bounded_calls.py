"""Calls into a library that may never come back, each with a deadline."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class BoundedCalls:
    """Makes calls one after the other in a thread of their own, and waits for each only so long.

    Nothing can end a call that is late. Its thread is left behind, with what the call works on,
    which nobody may touch any more. It ends when the call comes back, or with the process.

    Args:
        name: Of the thread.

    Attributes:
        late: Whether a call has been late; no further one is made then.
    """

    def __init__(self, name: str) -> None:
        self.late = False
        self._calls = SimpleQueue[Callable[[], None] | None]()
        self._answers = SimpleQueue[Exception | None]()
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def __call__(self, call: Callable[[], T], timeout_s: float) -> T:
        """Returns what a call returns, and raises what it raises.

        Raises:
            TimeoutError: It has not come back in time, or one before it has not.
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
        """Lets the thread end after the call that is under way."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except Exception as error:
                self._answers.put(error)
            else:
                self._answers.put(None)
