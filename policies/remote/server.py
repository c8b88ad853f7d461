"""Serves a policy over WebSocket: `serve(MyPolicy())` is all that a policy of one's own needs to be evaluated or deployed.

Bound to this machine unless asked otherwise: whoever can connect can ask, there is no password. One
thread computes, in order of arrival; what waits is bounded, and who comes too late is told so at
once instead of getting an old answer.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from threading import Event
from typing import Any

import numpy as np
from websockets.asyncio.server import Server, ServerConnection
from websockets.asyncio.server import serve as listen
from websockets.exceptions import ConnectionClosed

from stringline.datasets.contract.arguments import COUNT, PORTS, unknown_name
from stringline.policies.chunks.chunk import Policy, Session
from stringline.policies.chunks.prefix import Commitment, can_commit, plan_with
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
        policy: Acts; only ever called by one thread at a time.
        digest: What tells its checkpoint from every other one; clients keep it with their results.
        queue: How many questions may wait or be worked on, over all clients.
        largest_message: Bytes; a client that sends more is disconnected.
        worker: Computes, one question after the other; None: a thread of its own. One that ends
            with a WorkEndedError ends the conversation.

    Raises:
        ValueError: The queue has no room.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        digest: str = "",
        queue: int = QUEUE,
        largest_message: int = LARGEST_MESSAGE,
        worker: Executor | None = None,
    ) -> None:
        COUNT.check(queue=queue)
        self._policy = policy
        self._digest = digest
        self._queue = queue
        self._largest = largest_message
        self._waiting = 0
        self._worker = worker or ThreadPoolExecutor(1, thread_name_prefix="policy")

    async def start(self, host: str = HOST, port: int = PORT) -> Server:
        """Listens, and returns the WebSocket server, whose `sockets` tell the port where 0 was asked for.

        Raises:
            OSError: The address is taken or does not exist.
        """
        return await listen(self._converse, host, port, compression=None, max_size=self._largest)

    async def _converse(self, connection: ServerConnection) -> None:
        """Talks with one client until it leaves."""
        logger.debug("A client came.")
        episode = _Episode(self._policy)
        hello = {
            "protocol": PROTOCOL,
            "contract": self._policy.contract.to_dict(),
            "digest": self._digest,
        }
        try:
            await connection.send(pack(hello))
            async for data in connection:
                await connection.send(pack(await self._answered(episode, data)))
        except ConnectionClosed as error:
            logger.info("A client was disconnected: %s", error)
        except WorkEndedError:
            logger.debug("A client still waits; the server ends.")
        logger.debug("A client left.")

    async def _answered(self, episode: "_Episode", data: str | bytes) -> dict[str, Any]:
        if self._waiting >= self._queue:
            return _error(
                BUSY,
                (
                    f"{self._waiting} questions are waiting already; allowed: {self._queue}. Ask "
                    f"again."
                ),
            )
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._worker, _guarded, episode.answer, data
            )
        finally:
            self._waiting -= 1


class _Episode:
    """What one client is in the middle of."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._session: Session | None = None

    def answer(self, data: str | bytes) -> dict[str, Any]:
        """Answers one message.

        Raises:
            ValueError: It is none that a client may send now.
        """
        if isinstance(data, str):
            raise ValueError("A message is msgpack bytes; got text.")
        message = unpack(data)
        kind = field(message, "type", str)
        if kind == "begin":
            self._session = self._policy.session(field(message, "seed", int))
            return {"type": "begun", "commits": can_commit(self._session)}
        if kind == "plan":
            committed = (
                None
                if message.get("committed") is None
                else _commitment(field(message, "committed", dict))
            )
            return self._plan(
                field(message, "observation", dict),
                field(message, "stamp", (int, float)),
                committed,
            )
        raise unknown_name("message type", kind, ("begin", "plan"))

    def _plan(
        self, observation: dict[str, Any], stamp: float, committed: Commitment | None
    ) -> dict[str, Any]:
        if self._session is None:
            raise ValueError("No episode has begun; send {'type': 'begin', 'seed': ...} first.")
        arrays = {str(key): np.asarray(value) for key, value in observation.items()}
        chunk = plan_with(self._session, arrays, committed)
        return {"type": "chunk", "stamp": stamp, "time": chunk.time, "action": chunk.action}


def serve(
    policy: Policy,
    *,
    host: str = HOST,
    port: int = PORT,
    digest: str = "",
    queue: int = QUEUE,
    started: Callable[[int], object] | None = None,
) -> None:
    """Serves a policy until the process is interrupted.

    It acts in the thread that calls this, where it was loaded.

    Args:
        policy: Anything with a contract and sessions, see `policies/chunks/chunk.py`.
        host: Address to listen at; the default is reached from this machine only.
        port: 0 for any free one.
        digest: See `PolicyServer`.
        queue: See `PolicyServer`.
        started: Called with the port when clients can come.

    Raises:
        ValueError: The port is none, or the queue has no room.
        OSError: The address is taken or does not exist.
    """
    PORTS.check(port=port)
    worker = CallersThread()
    leaving = Event()

    async def talk() -> None:
        async with await PolicyServer(policy, digest=digest, queue=queue, worker=worker).start(
            host, port
        ) as server:
            taken = next(iter(server.sockets)).getsockname()[1]
            logger.info("Serving at ws://%s:%d; Ctrl-C ends it.", host, taken)
            if started is not None:
                started(taken)
            await asyncio.to_thread(leaving.wait)

    with ThreadPoolExecutor(1, thread_name_prefix="clients") as clients:
        talking = clients.submit(lambda: asyncio.run(talk()))
        talking.add_done_callback(lambda _: worker.shutdown())
        try:
            worker.work()
        finally:
            leaving.set()
        talking.result()


def _commitment(message: dict[str, Any]) -> Commitment:
    """Returns what a client asks an answer to keep to.

    Raises:
        ValueError: It does not say so in arrays that belong together.
    """
    time, action, weight = (
        field(message, name, np.ndarray) for name in ("time", "action", "weight")
    )
    return Commitment(time.astype(np.float64), action.astype(np.float32), weight.astype(np.float64))


def _guarded(answer: Callable[[str | bytes], dict[str, Any]], data: str | bytes) -> dict[str, Any]:
    """Answers, with an error in words where it fails: a client's mistake never ends the server."""
    try:
        return answer(data)
    except (ValueError, KeyError) as error:
        return _error(MISTAKE, str(error))
    except Exception as error:
        logger.exception("The policy failed:")
        return _error(DEFECT, f"The policy failed: {type(error).__name__}: {error}")


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "kind": kind, "message": message}
