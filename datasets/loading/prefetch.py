"""Preparation of batches in background threads."""

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

from stringline.datasets.contract.argument_checks import COUNT

T = TypeVar("T")


class Prefetcher(Generic[T]):
    """Calls `make(0), make(1), ...` ahead in threads and yields the results in order.

    Copies out of memory maps release the interpreter lock, so threads suffice; one is enough unless
    a GPU trains faster than it copies. Leaving the `with` block stops the threads. Iteration raises
    the errors of `make`.
    """

    def __init__(
        self,
        make: Callable[[int], T],
        start: int = 0,
        stop: int | None = None,
        *,
        depth: int = 2,
        threads: int = 1,
    ) -> None:
        """Starts the threads.

        The steps go from `start` to before `stop`, or on for ever. Thread n of N makes every N-th
        step from `start + n` on; at most `depth` results of each thread wait.
        """
        COUNT.check(depth=depth, threads=threads)
        self._make = make
        self._stop = stop
        self._stopped = threading.Event()
        self._ready: list[queue.Queue[tuple[T] | BaseException | None]] = [
            queue.Queue(depth) for _ in range(threads)
        ]
        self._threads = [
            threading.Thread(
                target=self._run, args=(start + number, ready), name="prefetch", daemon=True
            )
            for number, ready in enumerate(self._ready)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, step: int, ready: "queue.Queue[tuple[T] | BaseException | None]") -> None:
        try:
            while (self._stop is None or step < self._stop) and not self._stopped.is_set():
                self._put(ready, (self._make(step),))
                step += len(self._ready)
            self._put(ready, None)
        except BaseException as error:  # `__iter__` raises it in the thread of the consumer.
            self._put(ready, error)

    def _put(
        self,
        ready: "queue.Queue[tuple[T] | BaseException | None]",
        item: tuple[T] | BaseException | None,
    ) -> None:
        while not self._stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return

    def __iter__(self) -> Iterator[T]:
        for ready in itertools.cycle(self._ready):
            item = self._next(ready)
            if isinstance(item, tuple):
                yield item[0]
                continue
            self.close()
            if item is not None:
                raise item
            return

    def _next(
        self, ready: "queue.Queue[tuple[T] | BaseException | None]"
    ) -> tuple[T] | BaseException | None:
        """Returns the next item of a thread; None after the last one, and if all are stopped."""
        while not self._stopped.is_set():
            try:
                return ready.get(timeout=0.1)
            except queue.Empty:
                continue
        return None

    def close(self) -> None:
        """Stops the threads after their current step."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
