"""Commands that wait for the lock of a folder, each in a thread, while a test holds it."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict

from stringline.datasets.files import atomic as lock
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.store.transactions import Change, recover

_TIMEOUT_S = 60.0


class Waiting(logging.Handler):
    """Starts functions in threads; `start` returns when the function waits for a lock."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        super().__init__()
        self._pool = pool
        self._futures: list[Future[object]] = []
        self._waits = threading.Semaphore(0)

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("Waiting for another process"):
            self._waits.release()

    def start(self, function: Callable[[], object]) -> None:
        """Runs a function in a thread until it waits for the lock."""
        future = self._pool.submit(function)
        self._futures.append(future)
        future.add_done_callback(lambda _: self._waits.release())
        assert self._waits.acquire(timeout=_TIMEOUT_S)
        assert not future.done(), future.result()

    def results(self) -> list[object]:
        """Returns the results, or raises the first error."""
        return [future.result(_TIMEOUT_S) for future in self._futures]

    @property
    def succeeded(self) -> int:
        """The number of functions that returned."""
        return sum(future.exception(_TIMEOUT_S) is None for future in self._futures)


@contextmanager
def waiting() -> Iterator[Waiting]:
    """Yields an object that starts functions; take the lock after it, so that it is released."""
    level = lock.logger.level
    lock.logger.setLevel(logging.INFO)
    with ThreadPoolExecutor(4) as pool:
        handler = Waiting(pool)
        lock.logger.addHandler(handler)
        try:
            yield handler
        finally:
            lock.logger.removeHandler(handler)
            lock.logger.setLevel(level)


def delete_locked(store: EpisodeStore, name: str) -> None:
    """Deletes an episode of a store of which the test holds the lock, as `delete` would do."""
    (store.path / ".edit-0.json").write_text(json.dumps(asdict(Change([], [name]))))
    recover(store.path)
