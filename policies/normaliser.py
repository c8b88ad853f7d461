"""Maps numbers of the contract to the range of networks and back."""

from typing import Self

import torch
from torch import Tensor, nn

from stringline.datasets.statistics import Statistics


class MinMaxNormaliser(nn.Module):
    """An affine map per dimension that takes [low, high] to [-1, 1]."""

    low: Tensor
    high: Tensor

    def __init__(self, low: Tensor, high: Tensor, *, floor: float = 0.05) -> None:
        """Sets the ranges.

        Args:
            low: (D,) smallest values of the data.
            high: (D,) largest values.
            floor: Smallest range; a narrower one is widened about its middle, or a constant joint's noise would be blown up.
                0.05 is 0.05 rad for joints and 5 % of the travel for grippers.
        """
        super().__init__()
        middle, half = (low + high) / 2, ((high - low) / 2).clamp(min=floor / 2)
        # Not part of the weights: the statistics in the checkpoint's description are the one source.
        self.register_buffer("low", (middle - half).float(), persistent=False)
        self.register_buffer("high", (middle + half).float(), persistent=False)

    @classmethod
    def of(cls, statistics: Statistics, key: str) -> Self:
        """Builds the normaliser of one key of the data."""
        of_key = statistics[key]
        return cls(torch.as_tensor(of_key.min), torch.as_tensor(of_key.max))

    def normalise(self, value: Tensor) -> Tensor:
        """Maps (..., D) in data units to about [-1, 1]."""
        return 2 * (value - self.low) / (self.high - self.low) - 1

    def restore(self, value: Tensor) -> Tensor:
        """Maps (..., D) in [-1, 1] back to data units."""
        return self.low + (value + 1) / 2 * (self.high - self.low)
