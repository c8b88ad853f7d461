"""Policies behind a server, for tests of server and client."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Array, Camera, Contract, Observation
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.policies.chunks.chunk import ActionChunk, ActionPrefix, Policy
from stringline.policies.remote.server import PolicyServer

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
    """The same policy with support of action prefixes."""

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
    """A server in a separate thread."""

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


def observation(seed: int, now: float) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        "time": np.asarray(now),
        "joints/position": random.normal(size=14).astype(np.float32),
        "rgb/overhead": random.integers(0, 256, (8, 8, 3)).astype(np.uint8),
        "rgb/wrist_left": np.zeros((512, 512, 3), np.uint8),
    }
