"""What a plan has to keep to of the plan before it, in the units of the contract.

`committed.py` holds the same as a network sees it: normalised, with a batch axis. This module
imports without torch.
"""

from dataclasses import dataclass
from typing import Protocol, Self, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Observation
from stringline.policies.chunks.chunk import ActionChunk, Session

# Due times that are nearer than this are the same; a control period is a hundred times as long.
SAME_TIME_S = 1e-4


@dataclass(frozen=True)
class Commitment:
    """Actions that are decided before a plan is made, and how much.

    Attributes:
        time: (K,) when they are due, rising, on the clock of the observation; K may be 0.
        action: (K, A) finite, in the units of the contract.
        weight: (K,) from 0 (free) to 1 (comes out unchanged).
    """

    time: NDArray[np.float64]
    action: NDArray[np.float32]
    weight: NDArray[np.float64]

    def __post_init__(self) -> None:
        """Refuses times, actions and weights that do not belong together.

        Raises:
            ValueError: A shape is wrong, times do not rise, an action is not finite or a weight is
                out of range.
        """
        shapes = self.time.shape, self.action.shape, self.weight.shape
        if (
            self.action.ndim != 2
            or self.time.shape != (len(self.action),)
            or self.weight.shape != self.time.shape
        ):
            raise ValueError(
                f"A commitment needs time (K,), action (K, A) and weight (K,); got {shapes}."
            )
        if not np.isfinite(self.time).all() or (np.diff(self.time) <= 0).any():
            raise ValueError("The times of a commitment have to be finite and to rise.")
        if not np.isfinite(self.action).all():
            raise ValueError("Committed actions are not all finite.")
        if not ((self.weight >= 0) & (self.weight <= 1)).all():
            raise ValueError(
                f"Weights of a commitment go from {self.weight.min()} to {self.weight.max()}; "
                f"allowed: 0 to 1."
            )

    @classmethod
    def nothing(cls, dim: int) -> Self:
        """Returns a commitment to nothing.

        Who cannot keep to anything refuses this one too; so the first question of an episode,
        before anything has moved, shows whether the next ones can be answered.

        Args:
            dim: Numbers per action.
        """
        return cls(np.zeros(0), np.zeros((0, dim), np.float32), np.zeros(0))

    def on(self, time: NDArray[np.float64]) -> Self:
        """Returns the same for the times of a plan: free where nothing is decided, with the nearest action for a filling.

        Args:
            time: (T,) rising.

        Raises:
            ValueError: Something is decided for a time that the plan has no action for.
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
                f"An action is decided for {self.time[missed[0]]:.4f} s, and the plan has none "
                f"then: its {len(time)} actions "
                f"are due from {time[0]:.4f} to {time[-1]:.4f} s."
            )
        return type(self)(time, self.action[nearest], np.where(same, self.weight[nearest], 0.0))

    def settle(self, action: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns planned actions (K, A) with those that are decided in their place, to the bit."""
        return np.where((self.weight == 1)[:, None], self.action, action)


@runtime_checkable
class CommittingSession(Session, Protocol):
    """A session that can keep to what is decided.

    One that only has `plan(observation)` is a session all the same.

    Attributes:
        commits: True; False where it turns out that it cannot, such as behind an older server.
    """

    commits: bool

    def plan(self, observation: Observation, committed: Commitment | None = None) -> ActionChunk:
        """Answers one observation of the contract with the actions that follow it.

        Args:
            observation: As always.
            committed: What the answer has to keep to, at the times of its own actions; None:
                nothing.

        Raises:
            ValueError: This kind of policy cannot keep to anything, or has no action at such a
                time.
        """
        ...


def can_commit(session: Session) -> TypeGuard[CommittingSession]:
    """Says whether a session can be asked to keep to something."""
    return isinstance(session, CommittingSession) and session.commits


def cannot_commit(session: Session) -> ValueError:
    """Returns the error for a session that cannot."""
    return ValueError(
        f"{type(session).__name__} cannot keep to what is decided, as real-time chunking asks: it "
        f"has plan(observation) only. "
        "Allowed: diffusion, flow and energy policies, at hand or behind a stringline-serve of "
        "today; with others use "
        "execution=receding_horizon or execution=temporal_ensembling."
    )


def plan_with(
    session: Session, observation: Observation, committed: Commitment | None
) -> ActionChunk:
    """Asks any session.

    Raises:
        ValueError: Something is decided, and the session cannot keep to anything.
    """
    if committed is None:
        return session.plan(observation)
    if not can_commit(session):
        raise cannot_commit(session)
    return session.plan(observation, committed)
