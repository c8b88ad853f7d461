"""The order of requests in a policy server: who is connected, whose turn it is, and which thread.

When all slots of connected clients are taken, an idle client gives way to a new one. One request
is computed at a time; `RequestQueue` decides whose. `CallersThread` is an executor that works in
the thread of its caller.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from websockets.asyncio.server import ServerConnection

# A client of arms asks several times in this time, unless an operator lets it pause.
IDLE_S = 10.0


@dataclass(eq=False)
class Slot:
    """The slot of a client.

    Attributes:
        connection: Its connection.
        since_s: Time of its connection or of its last answer.
        asked: Whether it has asked for anything.
        waits: Whether it waits for an answer.
    """

    connection: ServerConnection
    since_s: float = field(default_factory=time.monotonic)
    asked: bool = False
    waits: bool = False

    def begin(self) -> float:
        """Notes the arrival of a request; returns the pause before it in seconds."""
        self.asked = True
        self.waits = True
        return time.monotonic() - self.since_s

    def end(self) -> None:
        """Notes the answer."""
        self.waits = False
        self.since_s = time.monotonic()

    @property
    def is_idle(self) -> bool:
        """Whether it gives way to a new client."""
        return not self.waits and (not self.asked or time.monotonic() - self.since_s > IDLE_S)


class Slots:
    """The slots of a server.

    Clients that have asked for nothing give way first, then those that have been idle for more than
    ten seconds; among these, the one that has been idle for longest.

    Args:
        count: Number of slots.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._taken: list[Slot] = []

    def enter(self, connection: ServerConnection) -> tuple[Slot | None, Slot | None]:
        """Returns the slot of a new client, and the one that gave way to it; None means no slot."""
        gone = None
        if len(self._taken) >= self.count:
            idle = [slot for slot in self._taken if slot.is_idle]
            if not idle:
                return None, None
            gone = min(idle, key=lambda slot: (slot.asked, slot.since_s))
            self.leave(gone)
        self._taken.append(Slot(connection))
        return self._taken[-1], gone

    def leave(self, slot: Slot) -> None:
        """Frees the slot of a client, unless another one has it already."""
        if slot in self._taken:
            self._taken.remove(slot)


PAUSE_WEIGHT = 50.0
LONGEST_LEAD_S = 10.0


class RequestQueue:
    """Decides which waiting client is next.

    The next client is the one with the largest sum of its waiting time and fifty times its pause,
    the time between its last answer and its request. Arms execute a plan between two requests, so
    their client precedes those that ask again at once, and waits for one other plan at most.
    Clients with equal pauses take turns. A pause counts for 10 s at most, so a client without a
    pause is served at the latest 10 s after it would be served in the order of arrival.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._arrivals = itertools.count()
        self._taken = False

    @asynccontextmanager
    async def turn(self, pause_s: float) -> AsyncIterator[None]:
        """Waits for the turn of a client that paused for `pause_s`, and ends it on exit."""
        if self._taken:
            loop = asyncio.get_running_loop()
            called = loop.create_future()
            # All waiting times grow alike, so the order follows from the arrival.
            rank = loop.time() - min(PAUSE_WEIGHT * pause_s, LONGEST_LEAD_S)
            heapq.heappush(self._waiting, (rank, next(self._arrivals), called))
            try:
                await called
            except asyncio.CancelledError:
                if called.done() and not called.cancelled():
                    self._call_next()
                raise
        self._taken = True
        try:
            yield
        finally:
            self._call_next()

    def _call_next(self) -> None:
        self._taken = False
        while self._waiting:
            called = heapq.heappop(self._waiting)[2]
            if not called.done():  # Otherwise the client has left.
                self._taken = True
                called.set_result(None)
                return


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
