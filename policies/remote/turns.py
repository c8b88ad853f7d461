"""Turns of the clients of a server: one request is computed at a time."""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

PAUSE_WEIGHT = 50.0
LONGEST_LEAD_S = 10.0


class Turns:
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
