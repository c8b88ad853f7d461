"""Serves a policy over WebSocket; `serve(MyPolicy())` makes a policy of your own available.

The server listens on this machine by default. One thread computes one request at a time;
`RequestQueue` decides whose. Each client has at most one request in the server, of bounded size,
and answers to pings need bounded memory. A `ServedEpisode` answers the requests of one client.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from threading import Event
from typing import Any

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
from stringline.policies.remote.access import ServerAccess, bearer
from stringline.policies.remote.connection_log import connection_log
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
from stringline.policies.remote.request_queue import (
    CallersThread,
    RequestQueue,
    Slot,
    Slots,
    WorkEndedError,
)

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
