"""Serves a policy over WebSocket; `serve(MyPolicy())` makes a policy of your own available.

The server listens on this machine by default, since it has no password. One thread computes, in
order of arrival; the queue is bounded, and requests beyond it are rejected at once, so that no
answer is outdated.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from threading import Event
from typing import Any

import numpy as np
from websockets.asyncio.server import Server, ServerConnection
from websockets.asyncio.server import serve as listen
from websockets.exceptions import ConnectionClosed

from stringline.datasets.contract.argument_checks import COUNT, PORTS, unknown_name
from stringline.policies.chunks.chunk import Policy, Session
from stringline.policies.chunks.prefix import ActionPrefix, accepts_prefix, plan_with_prefix
from stringline.policies.remote.arrays import pack, unpack
from stringline.policies.remote.callers_thread import CallersThread, WorkEndedError
from stringline.policies.remote.protocol import (
    BUSY,
    DEFECT,
    LARGEST_MESSAGE,
    MISTAKE,
    PORT,
    PROTOCOL,
    field,
)

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
QUEUE = 8


class PolicyServer:
    """Answers clients until it is stopped.

    Args:
        policy: The policy, called by one thread at a time.
        digest: Identifier of its checkpoint; clients store it with their results.
        training: Facts of its training for clients, plain data; see `protocol.py`.
        queue: Largest number of waiting or processed requests of all clients.
        largest_message: Bytes; a client that sends more is disconnected.
        worker: Executes requests one after the other; None: a thread of its own. A WorkEndedError
            from it ends the connection.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        digest: str = "",
        training: Mapping[str, Any] | None = None,
        queue: int = QUEUE,
        largest_message: int = LARGEST_MESSAGE,
        worker: Executor | None = None,
    ) -> None:
        COUNT.check(queue=queue)
        self._policy = policy
        self._digest = digest
        self._training = dict(training or {})
        self._queue = queue
        self._largest = largest_message
        self._waiting = 0
        self._worker = worker or ThreadPoolExecutor(1, thread_name_prefix="policy")

    async def start(self, host: str = HOST, port: int = PORT) -> Server:
        """Starts listening and returns the WebSocket server; its `sockets` have the port."""
        return await listen(
            self._serve_client, host, port, compression=None, max_size=self._largest
        )

    async def _serve_client(self, connection: ServerConnection) -> None:
        """Communicates with one client until it leaves."""
        logger.debug("A client connected.")
        episode = _Episode(self._policy)
        hello = {
            "protocol": PROTOCOL,
            "contract": self._policy.contract.to_dict(),
            "digest": self._digest,
            "training": self._training,
        }
        try:
            await connection.send(pack(hello))
            async for data in connection:
                await connection.send(pack(await self._answered(episode, data)))
        except ConnectionClosed as error:
            logger.info("A client was disconnected: %s", error)
        except WorkEndedError:
            logger.debug("The server ends while a client waits.")
        logger.debug("A client disconnected.")

    async def _answered(self, episode: "_Episode", data: str | bytes) -> dict[str, Any]:
        if self._waiting >= self._queue:
            waiting = f"{self._waiting} requests are waiting; allowed: {self._queue}. Try again."
            return _error(BUSY, waiting)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._worker, _guarded, episode.answer, data
            )
        finally:
            self._waiting -= 1


class _Episode:
    """The episode of one client."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._session: Session | None = None

    def answer(self, data: str | bytes) -> dict[str, Any]:
        """Answers one message; raises a ValueError if it is not valid now."""
        if isinstance(data, str):
            raise ValueError("A message is text; allowed: msgpack bytes.")
        message = unpack(data)
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

    def _plan(
        self, observation: dict[str, Any], stamp: float, prefix: ActionPrefix | None
    ) -> dict[str, Any]:
        if self._session is None:
            raise ValueError("There is no episode; send {'type': 'begin', 'seed': ...} first.")
        arrays = {str(key): np.asarray(value) for key, value in observation.items()}
        chunk = plan_with_prefix(self._session, arrays, prefix)
        return {"type": "chunk", "stamp": stamp, "time": chunk.time, "action": chunk.action}


def serve(
    policy: Policy,
    *,
    host: str = HOST,
    port: int = PORT,
    digest: str = "",
    training: Mapping[str, Any] | None = None,
    queue: int = QUEUE,
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
        queue: See `PolicyServer`.
        started: Called with the port when the server is ready.

    Raises:
        ValueError: The port or the queue is out of range.
        OSError: The address is in use or does not exist.
    """
    PORTS.check(port=port)
    worker = CallersThread()
    leaving = Event()

    async def listen_until_left() -> None:
        server_of_policy = PolicyServer(
            policy, digest=digest, training=training, queue=queue, worker=worker
        )
        async with await server_of_policy.start(host, port) as server:
            taken = next(iter(server.sockets)).getsockname()[1]
            logger.info("Serving at ws://%s:%d; Ctrl-C ends it.", host, taken)
            if started is not None:
                started(taken)
            await asyncio.to_thread(leaving.wait)

    with ThreadPoolExecutor(1, thread_name_prefix="clients") as clients:
        serving = clients.submit(lambda: asyncio.run(listen_until_left()))
        serving.add_done_callback(lambda _: worker.shutdown())
        try:
            worker.work()
        finally:
            leaving.set()
        serving.result()


def _prefix(message: dict[str, Any]) -> ActionPrefix:
    time, action, weight = (
        field(message, name, np.ndarray) for name in ("time", "action", "weight")
    )
    return ActionPrefix(
        time.astype(np.float64), action.astype(np.float32), weight.astype(np.float64)
    )


def _guarded(answer: Callable[[str | bytes], dict[str, Any]], data: str | bytes) -> dict[str, Any]:
    """Answers; errors become error messages, so that no client can end the server."""
    try:
        return answer(data)
    except (ValueError, KeyError) as error:
        return _error(MISTAKE, str(error))
    except Exception as error:
        logger.exception("The policy failed:")
        return _error(DEFECT, f"The policy failed: {type(error).__name__}: {error}")


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "kind": kind, "message": message}
