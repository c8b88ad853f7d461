"""A policy behind a server acts as it does at hand, and no client can bring the server down."""

import asyncio
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from stringline.datasets.contract.contract import Array, Camera, Contract, Observation
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.policies.chunks.chunk import ActionChunk, Policy
from stringline.policies.chunks.prefix import ActionPrefix
from stringline.policies.execution.execution import Execution
from stringline.policies.remote.arrays import pack, unpack
from stringline.policies.remote.client import RemotePolicy
from stringline.policies.remote.protocol import RemoteError
from stringline.policies.remote.server import PolicyServer, serve

CONTRACT = ALOHA.contract([Camera("overhead", 8, 8, "simulated")], 50.0)


class Drift:
    """A policy of three methods: it moves on from the joints by random steps of its seed."""

    def __init__(
        self, contract: Contract = CONTRACT, wait: Callable[[], object] = lambda: None
    ) -> None:
        self.contract, self._wait = contract, wait

    def session(self, seed: int) -> "DriftSession":
        return DriftSession(seed, self._wait)


class DriftSession:
    def __init__(self, seed: int, wait: Callable[[], object]) -> None:
        self._random, self._wait = np.random.default_rng(seed), wait

    def plan(self, observation: Observation) -> ActionChunk:
        self._wait()
        steps = self._random.normal(scale=0.01, size=(5, 14)).cumsum(axis=0) * float(
            observation["rgb/overhead"].mean()
        )
        now = float(observation["time"])
        return ActionChunk(
            now + np.arange(5) / 50, (observation["joints/position"] + steps).astype(np.float32)
        )


class Keeps(Drift):
    """The same, but it can keep to what is decided."""

    def session(self, seed: int) -> "KeepsSession":
        return KeepsSession(seed, self._wait)


class KeepsSession(DriftSession):
    accepts_prefix = True

    def plan(self, observation: Observation, prefix: ActionPrefix | None = None) -> ActionChunk:
        chunk = super().plan(observation)
        return (
            chunk
            if prefix is None
            else ActionChunk(chunk.time, prefix.aligned(chunk.time).enforce(chunk.action))
        )


class Broken(Drift):
    def session(self, seed: int) -> DriftSession:
        raise ZeroDivisionError("seed over nothing")


class Running:
    """A server in a thread of its own."""

    def __init__(self, policy: Policy, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            PolicyServer(policy, digest="d1", **options).start(port=0), self._loop
        ).result(10)
        self.address = f"ws://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}"

    def stop(self) -> None:
        async def close() -> None:
            self._server.close()
            await self._server.wait_closed()

        asyncio.run_coroutine_threadsafe(close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture
def running() -> Iterator[Callable[..., Running]]:
    servers: list[Running] = []

    def start(policy: Policy, **options: Any) -> Running:
        servers.append(Running(policy, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def observation(seed: int, now: float) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        "time": np.asarray(now),
        "joints/position": random.normal(size=14).astype(np.float32),
        "rgb/overhead": random.integers(0, 256, (8, 8, 3)).astype(np.uint8),
        "rgb/wrist_left": np.zeros((512, 512, 3), np.uint8),
    }


def test_what_a_server_answers_is_what_the_policy_answers(running: Callable[..., Running]) -> None:
    remote = RemotePolicy(running(Drift()).address)
    assert (remote.contract, remote.digest) == (CONTRACT, "d1")
    for seed in (0, 1):
        near, far = Drift().session(seed), remote.session(seed)
        for step in range(3):
            seen = observation(step, 7.0 + step)
            expected, found = near.plan(seen), far.plan(seen)
            np.testing.assert_array_equal(found.action, expected.action)
            np.testing.assert_array_equal(found.time, expected.time)
        far.close()


def test_what_is_decided_goes_to_the_server_and_comes_back_unchanged(
    running: Callable[..., Running],
) -> None:
    """Also an empty prefix, which shows the support; real-time chunking works as locally."""
    remote = RemotePolicy(running(Keeps()).address)
    near, far = Keeps().session(0), remote.session(0)
    assert far.accepts_prefix
    decided = ActionPrefix(
        7.0 + np.arange(3) / 50, np.full((3, 14), 0.1, np.float32), np.array([1.0, 1.0, 0.5])
    )
    for prefix in (ActionPrefix.empty(14), decided):
        seen = observation(1, 7.0)
        expected, found = near.plan(seen, prefix), far.plan(seen, prefix)
        np.testing.assert_array_equal(found.action, expected.action)
    np.testing.assert_array_equal(found.action[:2], decided.action[:2])
    execution = Execution("real_time_chunking", delay_s=0.04)
    here, there = (execution.session(policy, 3, execute_steps=2) for policy in (Keeps(), remote))
    for step in range(3):
        seen = observation(step, 7.0 + step / 25)
        np.testing.assert_array_equal(here.plan(seen).action, there.plan(seen).action)


def test_a_server_whose_policy_keeps_to_nothing_is_not_asked_to(
    running: Callable[..., Running],
) -> None:
    address = running(Drift()).address
    with RemotePolicy(address).session(0) as session:
        assert not session.accepts_prefix
        with pytest.raises(ValueError, match="RemoteSession supports no action prefix"):
            session.plan(observation(0, 1.0), ActionPrefix.empty(14))
        session.accepts_prefix = True  # A client that does not look is told so.
        with pytest.raises(RemoteError, match="DriftSession supports no action prefix"):
            session.plan(observation(0, 1.0), ActionPrefix.empty(14))
        assert len(session.plan(observation(0, 1.0)).time) == 5


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
            "fixed for 0.0000 s, and the plan has none",
        ),
    ],
)
def test_a_commitment_that_means_nothing_is_answered_in_words(
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
        assert (answer["type"], answer["kind"]) == ("error", "mistake")
        assert re.search(words, answer["message"])


def test_episodes_at_the_same_time_do_not_mix(running: Callable[..., Running]) -> None:
    remote = RemotePolicy(running(Drift()).address)

    def episode(seed: int) -> list[Array]:
        with remote.session(seed) as session:
            return [session.plan(observation(step, step)).action for step in range(10)]

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(episode, range(4)))
    for seed, actions in enumerate(together):
        np.testing.assert_array_equal(np.stack(actions), np.stack(episode(seed)))


def test_images_that_the_policy_does_not_look_at_are_not_sent(
    running: Callable[..., Running],
) -> None:
    remote = RemotePolicy(running(Drift()).address)
    assert sorted(remote.needed(observation(0, 0.0))) == ["joints/position", "rgb/overhead", "time"]


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
def test_a_mistake_is_answered_in_words_and_the_connection_goes_on(
    running: Callable[..., Running], message: str | bytes, words: str
) -> None:
    with connect(running(Drift()).address, proxy=None) as raw:
        raw.recv()
        raw.send(message)
        answer = unpack(raw.recv(timeout=5, decode=False))
        assert (answer["type"], answer["kind"]) == ("error", "mistake")
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


def test_a_huge_message_ends_its_connection_only(running: Callable[..., Running]) -> None:
    server = running(Drift(), largest_message=2**20)
    with RemotePolicy(server.address).session(0) as session:
        with connect(server.address, proxy=None) as raw:
            raw.recv()
            raw.send(bytes(2**21))
            with pytest.raises(ConnectionClosed, match="1009"):
                raw.recv(timeout=5)
        assert len(session.plan(observation(0, 1.0)).time) == 5


def test_a_policy_that_fails_is_named_and_the_server_stays(
    running: Callable[..., Running], caplog: pytest.LogCaptureFixture
) -> None:
    remote = RemotePolicy(running(Broken()).address)
    for _ in range(2):
        with pytest.raises(RemoteError, match="ZeroDivisionError: seed over nothing"):
            remote.session(0)
    assert "The policy failed" in caplog.text


def test_who_comes_when_too_many_wait_is_told_so(running: Callable[..., Running]) -> None:
    gate = threading.Event()
    remote = RemotePolicy(running(Drift(wait=lambda: gate.wait(10)), queue=2).address)
    sessions = [remote.session(seed) for seed in range(3)]
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(session.plan, observation(0, 1.0)) for session in sessions[:2]]
        time.sleep(0.3)
        with pytest.raises(RemoteError, match="2 requests are waiting; allowed: 2"):
            sessions[2].plan(observation(0, 1.0))
        gate.set()
        assert all(len(answer.result().time) == 5 for answer in asked)
    assert len(sessions[2].plan(observation(0, 1.0)).time) == 5


def test_an_interrupted_server_lets_all_its_clients_go_and_computes_where_it_was_called() -> None:
    """Ctrl-C while it computes for one client, with another one waiting and a third idle."""
    computed, others = [], threading.Barrier(3)

    def interrupt() -> None:
        computed.append(threading.current_thread())
        time.sleep(0.2)
        raise KeyboardInterrupt

    def ask(port: int, asks: bool) -> None:
        with RemotePolicy(f"ws://127.0.0.1:{port}", timeout_s=10).session(0) as session:
            others.wait(10)
            if asks:
                session.plan(observation(0, 1.0))

    with ThreadPoolExecutor(3) as pool:
        asked: list[Future[None]] = []
        with pytest.raises(KeyboardInterrupt):
            serve(
                Drift(wait=interrupt),
                port=0,
                started=lambda port: asked.extend(
                    pool.submit(ask, port, asks) for asks in (True, True, False)
                ),
            )
        for answer in asked[:2]:
            with pytest.raises(RemoteError, match="ended the connection"):
                answer.result(10)
        asked[2].result(10)
    assert computed == [threading.main_thread()]


def test_a_taken_port_is_told_to_whoever_serves(running: Callable[..., Running]) -> None:
    taken = int(running(Drift()).address.rpartition(":")[2])
    with pytest.raises(OSError, match="address already in use"):
        serve(Drift(), port=taken)


def test_nobody_there_and_a_stranger_are_named(running: Callable[..., Running]) -> None:
    with pytest.raises(RemoteError, match=r"no policy server at ws://127\.0\.0\.1:9"):
        RemotePolicy("ws://127.0.0.1:9", timeout_s=2)
    with pytest.raises(RemoteError, match="no policy server at http://x"):
        RemotePolicy("http://x", timeout_s=2)


def test_a_server_that_stays_silent_is_not_waited_for_for_ever(
    running: Callable[..., Running],
) -> None:
    gate = threading.Event()
    remote = RemotePolicy(running(Drift(wait=lambda: gate.wait(10))).address, timeout_s=0.5)
    with pytest.raises(RemoteError, match=r"did not answer within 0\.5 s"):
        remote.session(0).plan(observation(0, 1.0))
    gate.set()


def test_another_policy_behind_the_same_address_is_noticed(running: Callable[..., Running]) -> None:
    remote = RemotePolicy(running(Drift()).address)
    remote.contract = replace(remote.contract, control_hz=20.0)
    with pytest.raises(RemoteError, match="serves another policy than at the first connection"):
        remote.session(0)


def test_the_client_needs_no_torch() -> None:
    code = (
        "import sys, stringline.policies.remote.client, stringline.policies.remote.openpi; "
        "print('torch' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "False"
    )


def test_the_command_serves_the_shipped_checkpoint(tmp_path: Path) -> None:
    """A process of its own, a real policy, and Ctrl-C in the end."""
    from stringline.policies.checkpoints.load import checkpoint_digest, load_policy
    from stringline.sim.environment.factory import make_environment

    code = "from stringline.policies.serve import main; main()"
    server = subprocess.Popen(
        [sys.executable, "-c", code, "port=0"], stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert server.stderr is not None
    try:
        address = next(
            found.group()
            for line in server.stderr
            if (found := re.search(r"ws://127\.0\.0\.1:\d+", line))
        )
        remote, policy = RemotePolicy(address), load_policy("hand_over_banana")
        assert remote.digest == checkpoint_digest("hand_over_banana")
        assert json.dumps(remote.contract.to_dict()) == json.dumps(policy.contract.to_dict())
        world = make_environment("hand_over_banana")
        world.begin(1_000_000)
        seen = world.observe()
        world.close()
        with remote.session(5) as session:
            found = session.plan(seen)
        expected = policy.session(5).plan(seen)
        np.testing.assert_allclose(found.action, expected.action, atol=1e-5)
        np.testing.assert_array_equal(found.time, expected.time)
    finally:
        server.send_signal(2)
        assert server.wait(20) == 130
        server.stderr.close()


def test_the_policy_of_ones_own_that_the_page_shows_is_served() -> None:
    page = (Path(__file__).parents[3] / "docs" / "remote.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    shown = code.replace("port=8765", "port=0, started=lambda port: print(port, flush=True)")
    server = subprocess.Popen([sys.executable, "-c", shown], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        remote = RemotePolicy(f"ws://127.0.0.1:{int(server.stdout.readline())}")
        seen = observation(0, 3.0)
        with remote.session(0) as session:
            chunk = session.plan(seen)
        np.testing.assert_array_equal(chunk.action, np.tile(seen["joints/position"], (50, 1)))
        np.testing.assert_allclose(chunk.time, 3.0 + np.arange(50) / 50)
    finally:
        server.terminate()
        server.wait(10)
        server.stdout.close()


def test_a_port_or_a_queue_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^port is 99999; allowed: whole numbers 0 to 65535\.$"):
        serve(Drift(), port=99999)
    with pytest.raises(ValueError, match=r"^queue is 0; allowed: whole numbers 1 and above\.$"):
        PolicyServer(Drift(), queue=0)
