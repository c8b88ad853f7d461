"""Action prefixes: actions of the previous plan that a new plan has to follow.

`networks/normalised_prefix.py` has the same for networks: normalised, with a batch axis. This
module does not import torch.
"""

from dataclasses import dataclass
from typing import Protocol, Self, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Observation
from stringline.policies.chunks.chunk import ActionChunk, Session

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

        The plan has to follow the prefix, at the times of its own actions; None: all are free. A
        ValueError is raised if the policy supports no prefix, or lacks an action at such a time.
        """
        ...


def accepts_prefix(session: Session) -> TypeGuard[PrefixSession]:
    """Returns whether a session supports action prefixes."""
    return isinstance(session, PrefixSession) and session.accepts_prefix


def prefix_error(session: Session) -> ValueError:
    """Returns the error for a session without support of action prefixes."""
    return ValueError(
        f"{type(session).__name__} supports no action prefix, which real-time chunking needs: it "
        f"has plan(observation) only. Allowed: diffusion, flow and energy policies, local or "
        f"behind a current stringline-serve; for others use execution=receding_horizon or "
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
