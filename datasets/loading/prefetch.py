"""Preparation of batches in a background thread."""

import queue
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Prefetcher(Generic[T]):
    """Calls `make(0), make(1), ...` ahead in one thread and yields the results in order.

    Copies out of memory maps release the interpreter lock, so one thread suffices. Leaving the
    `with` block stops the thread. Iteration raises the errors of `make`.
    """

    def __init__(
        self, make: Callable[[int], T], start: int = 0, stop: int | None = None, *, depth: int = 2
    ) -> None:
        """Starts the thread.

        The steps go from `start` to before `stop`, or on for ever. At most `depth` results wait.
        """
        if depth < 1:
            raise ValueError(f"depth is {depth}; allowed: 1 and above.")
        self._make = make
        self._steps = (start, stop)
        self._ready: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(depth)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        step, stop = self._steps
        try:
            while (stop is None or step < stop) and not self._stopped.is_set():
                self._put((self._make(step),))
                step += 1
            self._put(None)
        except BaseException as error:  # `__iter__` raises it in the thread of the consumer.
            self._put(error)

    def _put(self, item: tuple[T] | BaseException | None) -> None:
        while not self._stopped.is_set():
            try:
                self._ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return

    def __iter__(self) -> Iterator[T]:
        while not self._stopped.is_set():
            try:
                item = self._ready.get(timeout=0.1)
            except queue.Empty:
                continue
            if isinstance(item, tuple):
                yield item[0]
                continue
            self.close()
            if item is not None:
                raise item

    def close(self) -> None:
        """Stops the thread after its current step."""
        self._stopped.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
