"""The face of all action spaces, and the one in which actions are what the contract says."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.contract import Camera, Contract
from stringline.datasets.loading.window_arrays import window_starts
from stringline.datasets.store.episode import StoredEpisode
from stringline.encoders.positions.precision import without_autocast


class ActionSpace(nn.Module, ABC):
    """Maps actions of the contract to the numbers that a policy generates, and back, given the observation that it answers.

    It has no weights and its tables are not saved: the contract is all that they come from.

    Attributes:
        name: In the keys of statistics.
        reads: Keys of the observation that it needs.
        dim: Numbers per action that a policy generates, D.
    """

    name: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ("joints/position",)
    dim: int

    @abstractmethod
    def targets(self, action: Tensor) -> Tensor:
        """Returns what actions (..., A) aim at, (..., E), whatever was observed; the costly part of `encode`."""

    @abstractmethod
    def relative(self, targets: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns targets (B, T, E) as seen from B observations, (B, T, D)."""

    @abstractmethod
    def decode(self, encoded: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the actions (B, T, A) of the contract for what was generated (B, T, D) after B observations."""

    def encode(self, action: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns actions (B, T, A) of the contract as a policy is to generate them, (B, T, D).

        Args:
            action: In the units of the contract.
            observation: The `reads` of the observations that they answer, with a batch axis.
        """
        with without_autocast(action):
            return self.relative(self.targets(action), observation)

    def statistics_key(self, chunk: int) -> str:
        """Returns under which key the statistics of chunks of that length are kept."""
        return f"action/{self.name}/{chunk}"

    def window_rows(
        self, cameras: Sequence[Camera], chunk: int, episode: StoredEpisode
    ) -> NDArray[Any]:
        """Returns all that a policy is to generate in the windows of an episode, (n, D), for statistics.

        Args:
            cameras: Through which the policy looks; their images say where windows begin.
            chunk: Actions per window.
            episode: With the keys that this space reads.
        """
        starts = window_starts(episode, cameras, every_step=False)
        ahead = starts[:, None] + np.arange(chunk)
        inside = ahead < episode.steps
        observation = {
            key: torch.from_numpy(np.array(episode.arrays[key][starts])) for key in self.reads
        }
        targets = self.targets(torch.from_numpy(np.array(episode.arrays["action"])))
        rows = self.relative(targets[torch.from_numpy(np.where(inside, ahead, 0))], observation)
        return rows[torch.from_numpy(inside)].numpy()


class ContractActions(ActionSpace):
    """Actions as the contract describes them, such as absolute joint targets: nothing is computed."""

    name = "contract"
    reads = ()

    def __init__(self, *, contract: Contract) -> None:
        """Takes any contract."""
        super().__init__()
        self.dim = len(contract.action)

    def targets(self, action: Tensor) -> Tensor:
        """Returns the same."""
        return action

    def relative(self, targets: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the same."""
        return targets

    def decode(self, encoded: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the same."""
        return encoded

    def statistics_key(self, chunk: int) -> str:
        """Returns the key of the actions themselves, which do not depend on the chunk."""
        return "action"


class ActionSpaceFactory(Protocol):
    """Makes an action space, as the classes of this folder do."""

    def __call__(self, *, contract: Contract) -> ActionSpace:
        """Returns it for the actions of a contract."""
        ...
