"""Policies with known numbers: random plans by seed, with and without prefix support."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import ActionDimension, Array, Contract, Observation
from stringline.policies.chunks.chunk import ActionChunk, ActionPrefix, Session

HZ = 10.0
CONTRACT = Contract("point", "line", HZ, (), ("x",), (), (ActionDimension("x", "one", "joint"),))
WITH_ROTATION = replace(
    CONTRACT, action=(*CONTRACT.action, ActionDimension("turn", "one", "rotation", frame="base"))
)
RELATIVE = replace(CONTRACT, action=(ActionDimension("x", "one", "joint", "relative"),))


def seen(step: int) -> dict[str, Array]:
    """Returns the observation of a control period."""
    return {"time": np.asarray(5.0 + step / HZ), "joints/position": np.zeros(1, np.float32)}


class Scripted:
    """A minimal policy of three methods, whose sessions have `plan(observation)` alone."""

    def __init__(self, length: int = 8, contract: Contract = CONTRACT) -> None:
        self.length, self.contract = length, contract

    def session(self, seed: int) -> Session:
        return ScriptedSession(self.length, seed)


class Single(Scripted):
    """A policy with one session, which every episode has."""

    def __init__(self, session: Session, contract: Contract = CONTRACT) -> None:
        super().__init__(contract=contract)
        self.only = session

    def session(self, seed: int) -> Session:
        return self.only


class ScriptedSession:
    """Plans at random; stores its plans."""

    def __init__(self, length: int, seed: int) -> None:
        self.length = length
        self.random = np.random.default_rng(seed)
        self.plans = list[ActionChunk]()

    def plan(self, observation: Observation) -> ActionChunk:
        self.plans.append(
            ActionChunk(due(observation, self.length), draw(self.random, self.length))
        )
        return self.plans[-1]


class Keeping(Scripted):
    """The same plans, moved to the prefix by its weights."""

    def session(self, seed: int) -> "KeepingSession":
        return KeepingSession(self.length, seed)


class KeepingSession:
    """Stores the prefixes."""

    def __init__(self, length: int, seed: int) -> None:
        self.accepts_prefix = True
        self.length = length
        self.random = np.random.default_rng(seed)
        self.prefixes = list[ActionPrefix | None]()

    def plan(self, observation: Observation, prefix: ActionPrefix | None = None) -> ActionChunk:
        self.prefixes.append(prefix)
        time, free = due(observation, self.length), draw(self.random, self.length)
        if prefix is None:
            return ActionChunk(time, free)
        kept = prefix.aligned(time)
        free = (free + kept.weight[:, None] * (kept.action - free)).astype(np.float32)
        return ActionChunk(time, kept.enforce(free))


def due(observation: Observation, length: int) -> NDArray[np.float64]:
    return float(observation["time"]) + np.arange(length) / HZ


def draw(random: np.random.Generator, length: int) -> NDArray[np.float32]:
    return random.normal(size=(length, 1)).astype(np.float32)
