"""The interface of text towers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class TextNetwork(nn.Module, ABC):
    """A text tower: from texts to tokens to features.

    Attributes:
        dim: Width of the features.
        length: Largest number of tokens of a text.
    """

    dim: int
    length: int

    @abstractmethod
    def forward(self, numbers: Tensor) -> Tensor:
        """Returns features (B, dim) of tokens (B, N) int64 by `numbers`."""

    @abstractmethod
    def numbers(self, text: str) -> NDArray[np.int64]:
        """Returns the tokens (N,) of a text, padded; N is the same for all texts.

        Raises:
            ValueError: The text is empty, or longer and not to be truncated.
        """

    def features(self, texts: Sequence[str]) -> Tensor:
        """Returns features (B, dim) of texts.

        Raises:
            ValueError: See `numbers`.
        """
        numbers = torch.from_numpy(np.stack([self.numbers(text) for text in texts]))
        found: Tensor = self(numbers.to(next(self.parameters()).device))
        return found

    @abstractmethod
    def is_longer(self, text: str) -> bool:
        """Returns whether a text has more tokens than the tower reads."""

    @abstractmethod
    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay."""

    def files(self) -> dict[str, bytes]:
        """Returns the files of a checkpoint besides weights and settings, by their paths."""
        return {}

    def check_tokenizer(self, folder: Path) -> None:
        """Checks that weights of a checkpoint belong to the tokenizer of this tower.

        Args:
            folder: `files` of the text tower in the checkpoint; it need not exist.

        Raises:
            ValueError: They belong to another tokenizer.
        """


TextTowerFactory = Callable[..., TextNetwork] | partial[TextNetwork]
"""Makes a text tower, given its `tokeniser`, the byte pairs of the training texts."""
