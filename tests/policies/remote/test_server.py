"""The order of clients: pauses first, then arrival, and a bounded wait.

Errors of a server: invalid messages, failing policies, full queues, interrupts and ports.
"""

import asyncio
import logging
import re
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from tests.policies.remote.served import CONTRACT, Broken, Drift, Keeps, Running, observation
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State
from websockets.sync.client import connect

from stringline.policies.remote import server
from stringline.policies.remote.client import RemotePolicy
from stringline.policies.remote.protocol import (
    RemoteError,
    RemoteUnavailableError,
    largest_request,
    pack,
    unpack,
)
from stringline.policies.remote.server import (
    CLIENTS,
    PAUSE_WEIGHT,
    PolicyServer,
    RequestQueue,
    serve,
)


async def order(requests: list[tuple[str, float, float]], plan_s: float) -> list[str]:
    """Returns names in the order of their turns; requests are (name, arrival, pause)."""
    queue, served = RequestQueue(), list[str]()

    async def ask(name: str, arrival: float, pause_s: float) -> None:
        await asyncio.sleep(arrival)
        async with queue.turn(pause_s):
            served.append(name)
            await asyncio.sleep(plan_s)

    await asyncio.gather(*(ask(*request) for request in requests))
    return served


def test_equal_pauses_are_served_in_order_of_arrival() -> None:
    requests = [(name, 0.01 * n, 0.0) for n, name in enumerate("abcd")]
    assert asyncio.run(order(requests, 0.05)) == ["a", "b", "c", "d"]


def test_a_client_after_a_pause_waits_for_one_other_at_most() -> None:
    flood = [(name, 0.0, 0.0) for name in "abcdefgh"]
    served = asyncio.run(order([*flood, ("robot", 0.02, 0.5)], 0.05))
    assert served.index("robot") == 1


@pytest.mark.parametrize(("pause_s", "lead_s"), [(0.2 / PAUSE_WEIGHT, 10.0), (100.0, 0.2)])
def test_waiting_outweighs_a_pause_in_the_end(
    pause_s: float, lead_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client without a pause has waited for 0.3 s; the pause of the other counts for 0.2 s."""
    monkeypatch.setattr("stringline.policies.remote.server.LONGEST_LEAD_S", lead_s)
    requests = [("first", 0.0, 0.0), ("waits", 0.0, 0.0), ("late", 0.3, pause_s)]
    assert asyncio.run(order(requests, 0.4)) == ["first", "waits", "late"]


def test_a_cancelled_client_gives_its_turn_away() -> None:
    async def scene() -> list[str]:
        queue, served = RequestQueue(), list[str]()

        async def ask(name: str) -> None:
            async with queue.turn(0.0):
                served.append(name)
                await asyncio.sleep(0.02)

        first, second, third = (asyncio.create_task(ask(name)) for name in "abc")
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(first, third)
        with pytest.raises(asyncio.CancelledError):
            await second
        await ask("d")
        return served

    assert asyncio.run(scene()) == ["a", "c", "d"]


def test_a_client_that_is_cancelled_when_it_is_called_gives_its_turn_away() -> None:
    async def scene() -> list[str]:
        queue, served = RequestQueue(), list[str]()

        async def ask(name: str) -> None:
            async with queue.turn(0.0):
                served.append(name)

        async with queue.turn(0.0):
            second, third = (asyncio.create_task(ask(name)) for name in "bc")
            await asyncio.sleep(0)
        second.cancel()  # Its turn has come, and it does not know yet.
        await third
        return served

    assert asyncio.run(scene()) == ["c"]


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ([1, 2], "needs 'committed', dict; got list"),
        ({"time": np.zeros(1)}, "needs 'action', ndarray; got NoneType"),
        (
            {"time": np.zeros(2), "action": np.zeros((1, 14)), "weight": np.zeros(1)},
            r"needs time \(K,\)",
        ),
        (
            {"time": np.zeros(1), "action": np.full((1, 14), np.nan), "weight": np.ones(1)},
            "not finite",
        ),
        (
            {"time": np.zeros(1), "action": np.zeros((1, 14)), "weight": np.full(1, 7.0)},
            "allowed: 0 to 1",
        ),
        (
            {"time": np.zeros(1), "action": np.zeros((1, 14)), "weight": np.ones(1)},
            "fixed for 0.0000 s, which the plan lacks",
        ),
    ],
)
def test_an_invalid_prefix_is_answered_with_a_message(
    running: Callable[..., Running], prefix: object, words: str
) -> None:
    with connect(running(Keeps()).address, proxy=None) as raw:
        raw.recv()
        raw.send(pack({"type": "begin", "seed": 3}))
        assert unpack(raw.recv(timeout=5, decode=False)) == {"type": "begun", "commits": True}
        seen = {
            key: value
            for key, value in observation(0, 1.0).items()
            if not key.endswith("wrist_left")
        }
        raw.send(pack({"type": "plan", "stamp": 1.0, "observation": seen, "committed": prefix}))
        answer = unpack(raw.recv(timeout=5, decode=False))
        assert (answer["type"], answer["kind"]) == ("error", "client_error")
        assert re.search(words, answer["message"])


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"\xc1", "cannot be unpacked"),
        ("begin", "is text; allowed: msgpack bytes"),
        (pack([1, 2]), "a map with a 'type'; got list"),
        (pack({"type": "plan", "observation": {}, "stamp": 0.0}), "There is no episode"),
        (pack({"type": "begin"}), "needs 'seed', int; got NoneType"),
        (pack({"type": "beginn", "seed": 1}), "Did you mean 'begin'"),
        (pack({"type": "begin", "seed": "x"}), "got str"),
    ],
)
def test_a_mistake_is_answered_with_a_message_and_the_connection_continues(
    running: Callable[..., Running], message: str | bytes, words: str
) -> None:
    with connect(running(Drift()).address, proxy=None) as raw:
        raw.recv()
        raw.send(message)
        answer = unpack(raw.recv(timeout=5, decode=False))
        assert (answer["type"], answer["kind"]) == ("error", "client_error")
        assert re.search(words, answer["message"])
        raw.send(pack({"type": "begin", "seed": 3}))
        assert unpack(raw.recv(timeout=5, decode=False)) == {"type": "begun", "commits": False}


def test_an_observation_that_lacks_what_the_policy_reads_is_a_mistake(
    running: Callable[..., Running],
) -> None:
    with RemotePolicy(running(Drift()).address).session(0) as session:
        with pytest.raises(RemoteError, match="rgb/overhead"):
            session.plan({"time": np.asarray(0.0), "joints/position": np.zeros(14, np.float32)})
        assert len(session.plan(observation(0, 1.0)).time) == 5


def test_a_message_above_the_largest_observation_ends_its_connection_only(
    running: Callable[..., Running],
) -> None:
    limit = largest_request(CONTRACT)
    assert 2**20 < limit < 2**20 + 2000  # An image of 8 x 8 pixels and the joints of two arms.
    server = running(Drift())
    with RemotePolicy(server.address).session(0) as session:
        with connect(server.address, proxy=None) as raw:
            raw.recv()
            raw.send(bytes(limit + 1))
            with pytest.raises(ConnectionClosed, match="1009"):
                raw.recv(timeout=5)
        assert len(session.plan(observation(0, 1.0)).time) == 5
        large = observation(0, 1.0) | {"joints/effort": np.zeros(limit, np.float32)}
        with pytest.raises(RemoteError, match=r"1009 .message too big.") as failed:
            session.plan(large)
    assert not isinstance(failed.value, RemoteUnavailableError)  # It would fail again.


def test_an_error_of_the_policy_is_reported_and_the_server_continues(
    running: Callable[..., Running], caplog: pytest.LogCaptureFixture
) -> None:
    remote = RemotePolicy(running(Broken()).address)
    for _ in range(2):
        with pytest.raises(RemoteError, match="ZeroDivisionError: seed over nothing"):
            remote.session(0)
    assert "The policy failed" in caplog.text


def test_clients_beyond_the_limit_are_disconnected(running: Callable[..., Running]) -> None:
    address = running(Drift(), clients=2).address
    remote = RemotePolicy(address)
    with remote.session(0) as first:
        with remote.session(1):
            full = r"1013 .try again later. 2 clients are connected; allowed: 2"
            with pytest.raises(RemoteUnavailableError, match=full):
                remote.session(2)
        assert len(first.plan(observation(0, 1.0)).time) == 5
        with remote.session(2) as third:
            assert len(third.plan(observation(0, 1.0)).time) == 5


BEGIN = {"type": "begin", "seed": 3}


def begun(address: str, request: dict[str, object], fragments: int = 1) -> str:
    """Sends a request in fragments; returns the kind or message of the answer, or "ended"."""
    data = pack(request)
    parts = max(1, fragments - 1)  # The client's library adds an empty one.
    size = -(-len(data) // parts)
    with connect(address, proxy=None) as raw:
        raw.recv()
        try:
            raw.send([data[at : at + size] for at in range(0, size * parts, size)])
            answer = raw.recv(timeout=10)
        except ConnectionClosed:
            return "ended"
    assert isinstance(answer, bytes)
    found = unpack(answer)
    return str(found.get("message", found["type"]))


def test_requests_have_a_limited_number_of_fragments_entries_and_lists(
    running: Callable[..., Running],
) -> None:
    """They are numbers, since mutation tests raise the limits."""
    address = running(Drift()).address
    assert begun(address, BEGIN, 64) == "begun"
    assert begun(address, BEGIN, 64 + 1) == "ended"
    assert begun(address, {**BEGIN, "list": [0] * 64}) == "begun"
    assert "max_array_len" in begun(address, {**BEGIN, "list": [0] * (64 + 1)})
    most = 8192 - 1 - len(BEGIN)  # The map itself counts as well.
    entries: dict[str, object] = {str(n): n for n in range(most)}
    assert begun(address, {**BEGIN, **entries}) == "begun"
    assert "more than 8192 entries" in begun(address, {**BEGIN, **entries, "another": 0})


@pytest.mark.parametrize("asked", [False, True])
def test_idle_clients_give_way_to_the_client_of_arms(
    running: Callable[..., Running], *, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "IDLE_S", 0.5)
    address = running(Drift()).address
    remote = RemotePolicy(address)
    idle = [connect(address, proxy=None) for _ in range(CLIENTS)]
    try:
        for client in idle:
            client.recv()
            if asked:
                client.send(pack({"type": "begin", "seed": 3}))
                client.recv()
        time.sleep(0.6 if asked else 0.0)
        for episode in range(3):  # The robot's client connects again for each episode.
            with remote.session(episode) as session:
                assert len(session.plan(observation(0, 1.0)).time) == 5
        gone = r"1013 .try again later. an idle client gives way, because 32 are connected"
        with pytest.raises(ConnectionClosed, match=gone):
            idle[0].recv(timeout=5)
        idle[-1].ping()
        assert idle[-1].state is State.OPEN
    finally:
        for client in idle:
            client.close()


def test_an_interrupted_server_ends_all_connections_and_computes_in_its_thread() -> None:
    """Ctrl-C while it computes for one client, with another one waiting and a third idle."""
    computed, others = [], threading.Barrier(3)

    def interrupt() -> None:
        computed.append(threading.current_thread())
        time.sleep(0.2)
        raise KeyboardInterrupt

    def client(port: int, plans: bool) -> None:
        with RemotePolicy(f"ws://127.0.0.1:{port}", timeout_s=10).session(0) as session:
            others.wait(10)
            if plans:
                session.plan(observation(0, 1.0))

    with ThreadPoolExecutor(3) as pool:
        answers: list[Future[None]] = []
        with pytest.raises(KeyboardInterrupt):
            serve(
                Drift(wait=interrupt),
                port=0,
                started=lambda port: answers.extend(
                    pool.submit(client, port, plans) for plans in (True, True, False)
                ),
            )
        for answer in answers[:2]:
            with pytest.raises(RemoteError, match="ended the connection"):
                answer.result(10)
        answers[2].result(10)
    assert computed == [threading.main_thread()]


def test_a_port_in_use_is_reported(running: Callable[..., Running]) -> None:
    taken = int(running(Drift()).address.rpartition(":")[2])
    with pytest.raises(OSError, match="address already in use"):
        serve(Drift(), port=taken)


def test_an_invalid_port_or_number_of_clients_is_rejected() -> None:
    with pytest.raises(
        ValueError, match=r"^port must be an integer from 0 to 65535 \(got 99999\)\.$"
    ):
        serve(Drift(), port=99999)
    with pytest.raises(ValueError, match=r"^clients must be an integer of at least 1 \(got 0\)\.$"):
        PolicyServer(Drift(), clients=0)


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTT", b"\x16\x03\x01\x00\xee\n\n", b"POST / HTTP/1.1\r\n\r\n"]
)
def test_a_connection_that_ends_early_is_one_line_of_the_log(
    running: Callable[..., Running], sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    # Another test may have let the messages of servers that begin and end through.
    caplog.set_level(logging.WARNING, "stringline.policies.remote.server")
    address = running(Drift()).address
    host, port = address.removeprefix("ws://").split(":")
    for _ in range(3):
        with socket.create_connection((host, int(port)), timeout=5) as raw:
            raw.sendall(sent)
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(1024):
                pass
    deadline = time.monotonic() + 5.0
    while len(caplog.records) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(caplog.records) == 3
    assert len(caplog.text.strip().splitlines()) == 3
    assert all("ended before its handshake" in message for message in caplog.messages)
    with RemotePolicy(address).session(0) as session:
        session.plan(observation(0, 0.0))
