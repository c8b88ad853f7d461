"""Processes that draw rooms; the results are in the order of the rooms for any number of them."""

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from typing import Any, Generic, Protocol, TypeVar

from stringline.datasets.contract.argument_checks import WHOLE

Item = TypeVar("Item")
ItemT = TypeVar("ItemT", covariant=True)
AHEAD = 4  # Rooms that wait per process.


class Drawer(Protocol[ItemT]):
    """Draws the images or clips of one room after the other."""

    def room(self, number: int) -> Sequence[ItemT]:
        """Returns the images or clips of a room."""
        ...

    def close(self) -> None:
        """Frees the graphics."""
        ...


class _Own(Generic[Item]):
    """The drawer of this process."""

    drawer: Drawer[Any] | None = None


def draw_rooms(
    make: Callable[[], Drawer[Item]], count: int, workers: int
) -> Generator[Sequence[Item], None, None]:
    """Yields the images or clips of the rooms 0 to `count`; its end stops the processes.

    Args:
        make: Makes the drawer of a process; it is pickled.
        count: Number of rooms.
        workers: Number of processes; 0 takes one per processor, 1 draws in this process.

    Raises:
        ValueError: The number of processes is not allowed, or a room cannot be drawn.
    """
    WHOLE.check(workers=workers)
    processes = min(workers or os.cpu_count() or 1, count)
    if processes == 1:
        drawer = make()
        try:
            yield from (drawer.room(number) for number in range(count))
        finally:
            drawer.close()
        return
    # Graphics do not survive a fork, so the processes are spawned.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _start, (make,))
    try:
        waiting: deque[Future[Sequence[Item]]] = deque()
        for number in range(count):
            waiting.append(pool.submit(_room, number))
            if len(waiting) == AHEAD * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _start(make: Callable[[], Drawer[Any]]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _Own.drawer = make()


def _end_with_parent() -> None:
    # Otherwise a process would stay behind when its parent is killed.
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _room(number: int) -> Sequence[Any]:
    assert _Own.drawer is not None
    found: Sequence[Any] = _Own.drawer.room(number)
    return found
