"""Serves a policy over WebSocket; `serve(MyPolicy())` makes a policy of your own available.

When all slots of connected clients are taken, an idle client gives way to a new one. One request
is computed at a time; `RequestQueue` decides whose. `CallersThread` is an executor that works in
the thread of its caller.

The server listens on this machine by default. One thread computes one request at a time;
`RequestQueue` decides whose. Each client has at most one request in the server, of bounded size,
and answers to pings need bounded memory. A `ServedEpisode` answers the requests of one client.
"""

import asyncio
import dataclasses
import heapq
import itertools
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from queue import SimpleQueue
from threading import Event, Lock
from typing import Any, ParamSpec, TypeVar

import numpy as np
from websockets.asyncio.server import Server, ServerConnection
from websockets.asyncio.server import serve as listen
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.http11 import Request, Response

from stringline.datasets.contract.argument_checks import COUNT, PORTS, unknown_name
from stringline.policies.chunks.chunk import (
    ActionPrefix,
    Policy,
    Session,
    accepts_prefix,
    plan_with_prefix,
)
from stringline.policies.remote.access import ServerAccess, bearer, connection_log
from stringline.policies.remote.protocol import (
    CLIENT_ERROR,
    PORT,
    PROTOCOL,
    REQUEST_ENTRIES,
    REQUEST_LIST,
    SERVER_ERROR,
    field,
    largest_request,
    pack,
    unpack,
)

# A client of arms asks several times in this time, unless an operator lets it pause.
IDLE_S = 10.0


@dataclasses.dataclass(eq=False)
class Slot:
    """The slot of a client.

    Attributes:
        connection: Its connection.
        since_s: Time of its connection or of its last answer.
        asked: Whether it has asked for anything.
        waits: Whether it waits for an answer.
    """

    connection: ServerConnection
    since_s: float = dataclasses.field(default_factory=time.monotonic)
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


logger = logging.getLogger(__name__)

# Bytes of answers to pings that a client may leave unread; the clients here send a ping in 20 s.
MOST_PONG_BYTES = 65536


class BoundedConnection(ServerConnection):
    """Ends the connection of a client that sends pings and does not read the answers.

    The library answers each ping at once, whatever the client reads, so that the answers would fill
    the memory.
    """

    _unread_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Takes bytes of the client."""
        before = self.transport.get_write_buffer_size()
        super().data_received(data)
        after = self.transport.get_write_buffer_size()
        self._unread_bytes = self._unread_bytes + max(after - before, 0) if after else 0
        if self._unread_bytes > MOST_PONG_BYTES and not self.transport.is_closing():
            logger.warning("A client does not read the answers to its pings.")
            self.transport.abort()


class ServedEpisode:
    """The episode of one client."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._session: Session | None = None
        self._last = math.inf  # Time of the last observation of openpi's client, s.
        self._is_openpi = False

    def answer(self, request: bytes | None) -> dict[str, Any] | str:
        """Answers one request, None for text; errors become error messages, for openpi text."""
        try:
            return self._answer(request)
        except (ValueError, KeyError) as error:
            failed = _error(CLIENT_ERROR, str(error))
        except Exception as error:
            logger.exception("The policy failed:")
            failed = _error(SERVER_ERROR, f"The policy failed: {type(error).__name__}: {error}")
        return str(failed["message"]) if self._is_openpi else failed

    def _answer(self, request: bytes | None) -> dict[str, Any]:
        """Answers one request; raises a ValueError if it is not valid now."""
        if request is None:
            raise ValueError("A message is text; allowed: msgpack bytes.")
        message = unpack(request, most_entries=REQUEST_ENTRIES, longest_list=REQUEST_LIST)
        if isinstance(message, dict) and "type" not in message and "time" in message:
            self._is_openpi = True
            return self._infer(message)
        kind = field(message, "type", str)
        if kind == "begin":
            self._session = self._policy.session(field(message, "seed", int))
            return {"type": "begun", "commits": accepts_prefix(self._session)}
        if kind == "plan":
            prefix = (
                None
                if message.get("committed") is None
                else _prefix(field(message, "committed", dict))
            )
            return self._plan(
                field(message, "observation", dict),
                field(message, "stamp", (int, float)),
                prefix,
            )
        raise unknown_name("message type", kind, ("begin", "plan"))

    def _infer(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Answers openpi's client, which does not tell when an episode begins.

        One begins, with the seed 0, if the time is not later than that of the last observation.
        """
        now = float(field(observation, "time", (int, float, np.generic, np.ndarray)))
        if self._session is None or now <= self._last:
            self._session = self._policy.session(0)
        self._last = now
        chunk = self._plan(observation, now, None)
        return {"actions": chunk["action"], "time": chunk["time"]}

    def _plan(
        self, observation: dict[str, Any], stamp: float, prefix: ActionPrefix | None
    ) -> dict[str, Any]:
        if self._session is None:
            raise ValueError("There is no episode; send {'type': 'begin', 'seed': ...} first.")
        arrays = {str(key): np.asarray(value) for key, value in observation.items()}
        chunk = plan_with_prefix(self._session, arrays, prefix)
        return {"type": "chunk", "stamp": stamp, "time": chunk.time, "action": chunk.action}


def _prefix(message: dict[str, Any]) -> ActionPrefix:
    time, action, weight = (
        field(message, name, np.ndarray) for name in ("time", "action", "weight")
    )
    return ActionPrefix(
        time.astype(np.float64), action.astype(np.float32), weight.astype(np.float64)
    )


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "kind": kind, "message": message}


connections = connection_log(f"{__name__}.connections")

HOST = "127.0.0.1"
CLIENTS = 32
MOST_FRAGMENTS = 64  # Of a message; the clients of this project and of openpi send whole messages.
CLOSE_TIMEOUT_S = 1.0  # A client that floods does not answer to the end of its connection.


class PolicyServer:
    """Answers clients until it is stopped.

    Args:
        policy: The policy, called by one thread at a time.
        digest: Identifier of its checkpoint; clients store it with their results.
        training: Facts of its training for clients, plain data; see `protocol.py`.
        clients: Largest number of connected clients. Beyond it, an idle client gives way to a new
            one; without an idle one, the new client is disconnected.
        access: Who may connect; if None, everybody who reaches the address, except web pages.
        worker: Executes requests one after the other; if None, a thread of its own. A
            WorkEndedError from it ends the connection.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        digest: str = "",
        training: Mapping[str, Any] | None = None,
        clients: int = CLIENTS,
        access: ServerAccess | None = None,
        worker: Executor | None = None,
    ) -> None:
        COUNT.check(clients=clients)
        self._policy = policy
        self._digest = digest
        self._training = dict(training or {})
        self._slots = Slots(clients)
        self._access = access or ServerAccess()
        self._queue = RequestQueue()
        self._worker = worker or ThreadPoolExecutor(1, thread_name_prefix="policy")

    async def start(self, host: str = HOST, port: int = PORT) -> Server:
        """Starts listening and returns the WebSocket server; its `sockets` have the port."""
        return await listen(
            self._serve_client,
            host,
            port,
            compression=None,
            max_size=largest_request(self._policy.contract),
            max_queue=1,  # Frames; a second request ends the connection anyway.
            close_timeout=CLOSE_TIMEOUT_S,
            process_request=self._refusal,
            ssl=self._access.tls,
            create_connection=BoundedConnection,
            logger=connections,
        )

    def _refusal(self, connection: ServerConnection, request: Request) -> Response | None:
        refusal = self._access.refusal(request.headers, bearer(request.headers))
        if refusal is None:
            return None
        logger.warning("A connection was refused. %s", refusal[1])
        return connection.respond(*refusal)

    async def _serve_client(self, connection: ServerConnection) -> None:
        """Communicates with one client until it leaves."""
        most = self._slots.count
        slot, gone = self._slots.enter(connection)
        if slot is None:
            full = f"{most} clients are connected; allowed: {most}."
            await connection.close(CloseCode.TRY_AGAIN_LATER, full)
            return
        logger.debug("A client connected.")
        try:
            if gone is not None:
                full = f"an idle client gives way, because {most} are connected."
                await gone.connection.close(CloseCode.TRY_AGAIN_LATER, full)
            await self._converse(connection, slot)
        except ConnectionClosed as error:
            logger.info("A client was disconnected: %s", error)
        except WorkEndedError:
            logger.debug("The server ends while a client waits.")
        finally:
            self._slots.leave(slot)
        logger.debug("A client disconnected.")

    async def _converse(self, connection: ServerConnection, slot: Slot) -> None:
        """Answers requests, one at a time."""
        hello = {
            "protocol": PROTOCOL,
            "contract": self._policy.contract.to_dict(),
            "digest": self._digest,
            "training": self._training,
        }
        episode = ServedEpisode(self._policy)
        await connection.send(pack(hello))
        receiving = asyncio.create_task(_received(connection))
        try:
            while True:
                request = await receiving
                pause_s = slot.begin()
                # Shows that the client leaves, or does not wait for its answer.
                receiving = asyncio.create_task(_received(connection))
                answer = await self._answer(episode, request, pause_s, receiving)
                if receiving.done():
                    receiving.result()
                    early = "A request came before the answer to the last one."
                    await connection.close(CloseCode.POLICY_VIOLATION, early)
                    return
                await connection.send(answer if isinstance(answer, str) else pack(answer))
                slot.end()
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)

    async def _answer(
        self,
        episode: ServedEpisode,
        request: bytes | None,
        pause_s: float,
        receiving: "asyncio.Task[bytes | None]",
    ) -> dict[str, Any] | str:
        """Answers a request at the client's turn, unless it does not wait until then."""
        async with self._queue.turn(pause_s):
            if receiving.done():
                return {}
            return await asyncio.get_running_loop().run_in_executor(
                self._worker, episode.answer, request
            )


async def _received(connection: ServerConnection) -> bytes | None:
    """Returns the next message; None if it is text.

    Fragments are joined as they arrive and counted: empty ones need memory and time without bound.
    """
    message = bytearray()
    is_text = False
    fragments = 0
    async for fragment in connection.recv_streaming():
        fragments += 1
        if fragments == MOST_FRAGMENTS + 1:
            logger.warning("A message has more than %d fragments.", MOST_FRAGMENTS)
            connection.transport.abort()  # Others would wait while this client is told.
        if isinstance(fragment, str):
            is_text = True
        else:
            message += fragment
    return None if is_text else bytes(message)


def serve(
    policy: Policy,
    *,
    host: str = HOST,
    port: int = PORT,
    digest: str = "",
    training: Mapping[str, Any] | None = None,
    clients: int = CLIENTS,
    access: ServerAccess | None = None,
    started: Callable[[int], object] | None = None,
) -> None:
    """Serves a policy until the process is interrupted.

    The policy runs in the calling thread, in which it was loaded.

    Args:
        policy: A policy with a contract and sessions, see `policies/chunks/chunk.py`.
        host: Address to listen on; the default is reachable from this machine only.
        port: Port; 0: any free one.
        digest: See `PolicyServer`.
        training: See `PolicyServer`.
        clients: See `PolicyServer`.
        access: See `PolicyServer`.
        started: Called with the port when the server is ready.

    Raises:
        ValueError: The port or the number of clients is out of range, or a token would be sent
            unencrypted.
        OSError: The address is in use or does not exist.
    """
    PORTS.check(port=port)
    access = access or ServerAccess()
    access.check_address(host)
    worker = CallersThread()
    leaving = Event()

    server = PolicyServer(
        policy, digest=digest, training=training, clients=clients, access=access, worker=worker
    )

    async def listen_until_left() -> None:
        async with await server.start(host, port) as listening:
            taken = next(iter(listening.sockets)).getsockname()[1]
            scheme = "ws" if access.tls is None else "wss"
            logger.info("Serving at %s://%s:%d; Ctrl-C ends it.", scheme, host, taken)
            if started is not None:
                started(taken)
            await asyncio.to_thread(leaving.wait)

    with ThreadPoolExecutor(1, thread_name_prefix="clients") as communication:
        serving = communication.submit(lambda: asyncio.run(listen_until_left()))
        serving.add_done_callback(lambda _: worker.shutdown())
        try:
            worker.work()
        finally:
            leaving.set()
        serving.result()
