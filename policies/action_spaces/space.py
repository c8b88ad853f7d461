"""The interface of action spaces, and the space of the actions of the contract."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.loading.gripper_commands import gripper_places
from stringline.datasets.loading.statistics import KeyStatistics
from stringline.datasets.loading.window_arrays import window_starts
from stringline.datasets.store.episode import StoredEpisode
from stringline.encoders.positions.precision import without_autocast


class ActionSpace(nn.Module, ABC):
    """Converts actions of the contract to the numbers that a policy generates, and back.

    The contract determines it, so it saves neither weights nor tables.

    Attributes:
        name: Name in the keys of statistics.
        reads: Keys of the observation that it needs.
        reads_commands: Whether the grippers' numbers in its training data are commands, see
            `datasets/loading/gripper_commands.py`, in place of the recorded openings.
        dim: Generated numbers per action, D.
        openings: Places of the openings of grippers among these numbers.
        arms: Indices of the numbers that move each arm of the contract.
        positions: Those that are the position of each gripper, in metres in the frame of the
            measured one; None: no numbers are.
    """

    name: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ("joints/position",)
    reads_commands: ClassVar[bool] = False
    dim: int
    openings: Sequence[int]
    arms: Sequence[Sequence[int]]
    positions: Sequence[Sequence[int]] | None = None

    @abstractmethod
    def targets(self, action: Tensor) -> Tensor:
        """Returns the targets (..., E) of actions (..., A), without the observation.

        This is the expensive part of `encode`.
        """

    @abstractmethod
    def relative(self, targets: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns targets (B, T, E) relative to B observations, (B, T, D)."""

    @abstractmethod
    def decode(self, encoded: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the actions (B, T, A) of generated numbers (B, T, D) after B observations."""

    def encode(self, action: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns actions (B, T, A) of the contract as numbers to generate, (B, T, D).

        The observation contains the keys `reads`, with a batch axis.
        """
        with without_autocast(action):
            return self.relative(self.targets(action), observation)

    def statistics_key(self, chunk: int) -> str:
        """Returns the key of the statistics of chunks of that length."""
        return f"action/{self.name}/{chunk}"

    def window_rows(
        self, cameras: Sequence[Camera], chunk: int, episode: StoredEpisode
    ) -> NDArray[Any]:
        """Returns all numbers to generate in the windows of an episode, (n, D), for statistics.

        The images of the cameras of the policy determine where windows begin; the episode contains
        the keys `reads`.
        """
        _, rows, inside = self.window_numbers(cameras, chunk, episode)
        return rows[inside].numpy()

    def window_numbers(
        self, cameras: Sequence[Camera], chunk: int, episode: StoredEpisode
    ) -> tuple[Array, Tensor, Tensor]:
        """Returns the windows of an episode, without images; see `window_rows`.

        Returns:
            The first steps (n,) of the windows, the numbers to generate (n, T, D), and whether the
            episode contains them, (n, T) bool; the others have no meaning.
        """
        starts = window_starts(episode, cameras, every_step=False)
        ahead = starts[:, None] + np.arange(chunk)
        inside = ahead < episode.steps
        rows = self._rows(episode, starts, np.where(inside, ahead, 0))
        return starts, rows, torch.from_numpy(inside)

    def _rows(self, episode: StoredEpisode, starts: Array, steps: Array) -> Tensor:
        """Returns the numbers (S, n, D) of the actions at steps (S, n) for windows at `starts`."""
        observation = {
            key: torch.from_numpy(np.array(episode.arrays[key][starts])) for key in self.reads
        }
        targets = self.targets(torch.from_numpy(self._actions(episode)))
        return self.relative(targets[torch.from_numpy(steps)], observation)

    def ranges(self, measured: KeyStatistics) -> KeyStatistics:
        """Returns the statistics that normalise the numbers, given those of `window_rows`."""
        return measured

    def _actions(self, episode: StoredEpisode) -> NDArray[Any]:
        """Returns the actions (T, A) of an episode as training windows have them."""
        return np.array(episode.arrays["action"])


class ContractActions(ActionSpace):
    """The actions of the contract, such as absolute joint targets, unchanged."""

    name = "contract"
    reads = ()

    def __init__(self, *, contract: Contract) -> None:
        super().__init__()
        self.dim = len(contract.action)
        self.openings = gripper_places(contract)
        self.arms = dimensions_of_arms(contract)

    def targets(self, action: Tensor) -> Tensor:
        """Returns the actions unchanged."""
        return action

    def relative(self, targets: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the targets unchanged."""
        return targets

    def decode(self, encoded: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the generated numbers unchanged."""
        return encoded

    def statistics_key(self, chunk: int) -> str:
        """Returns the key of the actions, which is independent of the chunk."""
        return "action"


def dimensions_of_arms(contract: Contract) -> list[list[int]]:
    """Returns the indices of the dimensions of an action that move each arm of the contract."""
    return [
        [index for index, dimension in enumerate(contract.action) if dimension.arm == arm]
        for arm in contract.arms
    ]


ActionSpaceFactory = Callable[..., ActionSpace]
"""Makes an action space, given the `contract`, such as the classes of this folder."""
