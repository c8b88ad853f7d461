"""What every policy offers, whoever runs it: a contract, sessions, and timestamped chunks of actions.

Simulation, the hardware bridge and remote clients see policies through this module only; it imports
without torch.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Contract, Observation


@dataclass(frozen=True)
class ActionChunk:
    """Actions with the times at which they are due.

    Attributes:
        time: (T,) seconds on the clock of the observation that was answered; time[0] is that
            observation's time.
        action: (T, A) in the units of the contract.
    """

    time: NDArray[np.float64]
    action: NDArray[np.float32]

    def __post_init__(self) -> None:
        """Refuses chunks whose times and actions do not belong together."""
        if (
            self.time.ndim != 1
            or self.action.ndim != 2
            or len(self.time) != len(self.action)
            or not len(self.time)
        ):
            raise ValueError(
                f"A chunk needs time (T,) and action (T, A), T > 0; got {self.time.shape}, "
                f"{self.action.shape}."
            )


class Session(Protocol):
    """One episode of a policy: what it plans depends on its seed and on the observations so far, on nothing else."""

    def plan(self, observation: Observation) -> ActionChunk:
        """Answers one observation of the contract with the actions that follow it."""
        ...


class Policy(Protocol):
    """Something that acts under a contract."""

    @property
    def contract(self) -> Contract:
        """The observations it needs and the actions it gives."""
        ...

    def session(self, seed: int) -> Session:
        """Starts an episode; the seed decides every random number in it."""
        ...
