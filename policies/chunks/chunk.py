"""The interface of all policies: a contract, sessions, and timestamped chunks of actions.

Simulation, the hardware bridge and remote clients use policies through this module only; it does
not import torch.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Contract, Observation


@dataclass(frozen=True)
class ActionChunk:
    """Actions with the times of their execution.

    Attributes:
        time: (T,) seconds on the clock of the observation; time[0] is the time of the observation.
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
