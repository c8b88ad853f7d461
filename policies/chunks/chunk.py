"""The interface of all policies: a contract, sessions, and timestamped chunks of actions.

Simulation, the hardware bridge and remote clients use policies through this module only; it does
not import torch.

An action prefix holds actions of the previous plan that a new plan has to follow;
`NormalisedPrefix` has the same for networks: normalised, with a batch axis. The last functions
tell the timing of chunks: coverage, interpolation, truncation and delay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Contract, Observation


@dataclass(frozen=True)
class ActionChunk:
    """Actions with the times of their execution.

    Attributes:
        time: (T,) seconds on the clock of the observation; time[0] is the time of the first action:
            that of the observation, or later if the chunk has been postponed.
        action: (T, A) in the units of the contract.
    """

    time: NDArray[np.float64]
    action: NDArray[np.float32]

    def __post_init__(self) -> None:
        if (
            self.time.ndim != 1
            or self.action.ndim != 2
            or len(self.time) != len(self.action)
            or not len(self.time)
        ):
            raise ValueError(
                f"A chunk has time {self.time.shape} and action {self.action.shape}; allowed: "
                f"(T,) and (T, A), T > 0."
            )


class Session(Protocol):
    """One episode of a policy; its plans depend on its seed and observations only."""

    def plan(self, observation: Observation) -> ActionChunk:
        """Returns the actions that follow an observation of the contract."""
        ...


class Policy(Protocol):
    """A policy under a contract."""

    @property
    def contract(self) -> Contract:
        """The observations that it needs and the actions that it returns."""
        ...

    def session(self, seed: int) -> Session:
        """Starts an episode; the seed determines all its random numbers."""
        ...


# Times of actions that are nearer than this are equal; a control period is a hundred times longer.
SAME_TIME_S = 1e-4


@dataclass(frozen=True)
class ActionPrefix:
    """Actions that are fixed before a plan is made, with weights.

    Attributes:
        time: (K,) their times, rising, on the clock of the observation; K may be 0.
        action: (K, A) finite, in the units of the contract.
        weight: (K,) from 0 (free) to 1 (unchanged in the plan).
    """

    time: NDArray[np.float64]
    action: NDArray[np.float32]
    weight: NDArray[np.float64]

    def __post_init__(self) -> None:
        shapes = self.time.shape, self.action.shape, self.weight.shape
        if (
            self.action.ndim != 2
            or self.time.shape != (len(self.action),)
            or self.weight.shape != self.time.shape
        ):
            raise ValueError(
                f"A prefix needs time (K,), action (K, A) and weight (K,); got {shapes}."
            )
        if not np.isfinite(self.time).all() or (np.diff(self.time) <= 0).any():
            raise ValueError("The times of a prefix are not finite and rising.")
        if not np.isfinite(self.action).all():
            raise ValueError("The actions of a prefix are not finite.")
        if not ((self.weight >= 0) & (self.weight <= 1)).all():
            raise ValueError(
                f"Weights of a prefix range from {self.weight.min()} to {self.weight.max()}; "
                f"allowed: 0 to 1."
            )

    @classmethod
    def empty(cls, dim: int) -> Self:
        """Returns a prefix without actions, of `dim` numbers each.

        Policies without support of prefixes reject it too; so the first plan of an episode, before
        any motion, shows whether the later ones are possible.
        """
        return cls(np.zeros(0), np.zeros((0, dim), np.float32), np.zeros(0))

    def aligned(self, time: NDArray[np.float64]) -> Self:
        """Returns the prefix at the rising times (T,) of a plan, with weight 0 for free actions.

        Raises:
            ValueError: An action is fixed for a time at which the plan lacks an action.
        """
        if not len(self.time):
            return type(self)(
                time, np.zeros((len(time), self.action.shape[1]), np.float32), np.zeros(len(time))
            )
        after = np.clip(np.searchsorted(self.time, time), 0, len(self.time) - 1)
        before = np.maximum(after - 1, 0)
        nearest = np.where(time - self.time[before] <= self.time[after] - time, before, after)
        same = np.abs(self.time[nearest] - time) <= SAME_TIME_S
        missed = np.setdiff1d(np.flatnonzero(self.weight), nearest[same])
        if len(missed):
            raise ValueError(
                f"An action is fixed for {self.time[missed[0]]:.4f} s, which the plan lacks: its "
                f"{len(time)} actions are from {time[0]:.4f} to {time[-1]:.4f} s."
            )
        return type(self)(time, self.action[nearest], np.where(same, self.weight[nearest], 0.0))

    def enforce(self, action: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns planned actions (K, A) with the fixed ones in their place, to the bit."""
        return np.where((self.weight == 1)[:, None], self.action, action)


@runtime_checkable
class PrefixSession(Session, Protocol):
    """A session that supports action prefixes, unlike those with `plan(observation)` alone.

    Attributes:
        accepts_prefix: False if prefixes are impossible after all, such as behind an older server.
    """

    accepts_prefix: bool

    def plan(self, observation: Observation, prefix: ActionPrefix | None = None) -> ActionChunk:
        """Returns the actions that follow an observation of the contract.

        The plan has to follow the prefix, at the times of its own actions; if None, all are free. A
        ValueError is raised if the policy supports no prefix, or lacks an action at such a time.
        """
        ...


@runtime_checkable
class BatchPolicy(Policy, Protocol):
    """A policy that plans for the observations of several episodes at once."""

    def plan_batch(
        self,
        sessions: Sequence[Any],
        observations: Sequence[Observation],
        prefixes: Sequence[ActionPrefix | None],
    ) -> list[ActionChunk]:
        """Returns what each of its sessions plans for its observation and prefix."""
        ...


def accepts_prefix(session: Session) -> TypeGuard[PrefixSession]:
    """Returns whether a session supports action prefixes."""
    return isinstance(session, PrefixSession) and session.accepts_prefix


def prefix_error(session: Session) -> ValueError:
    """Returns the error for a session without support of action prefixes."""
    return ValueError(
        f"{type(session).__name__} supports no action prefix, which real-time chunking needs: it "
        f"has plan(observation) only. Allowed: keypose, diffusion, flow and energy policies, local "
        f"or behind a current stringline-serve; for others use execution=receding_horizon or "
        f"execution=temporal_ensembling."
    )


def plan_with_prefix(
    session: Session, observation: Observation, prefix: ActionPrefix | None
) -> ActionChunk:
    """Plans with any session; raises a ValueError for a prefix that it does not support."""
    if prefix is None:
        return session.plan(observation)
    if not accepts_prefix(session):
        raise prefix_error(session)
    return session.plan(observation, prefix)


def periods_covered(chunk: ActionChunk, now: float, control_hz: float) -> int:
    """Returns the number of control periods from `now` that a chunk covers.

    Its last action covers one period.
    """
    return max(int(np.floor((chunk.time[-1] - now + SAME_TIME_S) * control_hz)) + 1, 0)


def actions_at(chunk: ActionChunk, time: NDArray[np.float64]) -> NDArray[np.float32]:
    """Returns the actions (K, A) of a chunk at times (K,) that it covers.

    Its own actions are returned to the bit; between two of them they are interpolated linearly.
    """
    after = np.clip(np.searchsorted(chunk.time, time - SAME_TIME_S), 0, len(chunk.time) - 1)
    before = np.maximum(after - 1, 0)
    span = chunk.time[after] - chunk.time[before]
    share = np.clip((time - chunk.time[before]) / np.where(span > 0, span, 1.0), 0.0, 1.0)[:, None]
    early = chunk.action[before].astype(np.float64)
    late = chunk.action[after].astype(np.float64)
    own = np.abs(chunk.time[after] - time) <= SAME_TIME_S
    between: NDArray[np.float32] = (early + share * (late - early)).astype(np.float32)
    return np.where(own[:, None], chunk.action[after], between)


def beginning(chunk: ActionChunk, seconds: float) -> ActionChunk:
    """Returns the actions of the first seconds of a chunk."""
    count = int(np.searchsorted(chunk.time, chunk.time[0] + seconds - SAME_TIME_S))
    return ActionChunk(chunk.time[:count], chunk.action[:count])


def postponed(chunk: ActionChunk, seconds: float) -> ActionChunk:
    """Returns a chunk with all its actions delayed by some seconds."""
    return ActionChunk(chunk.time + seconds, chunk.action)
