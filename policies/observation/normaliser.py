"""Maps numbers of the contract to the range of networks and back; each kind says what of the data becomes -1 and 1."""

from typing import Protocol

import torch
from torch import Tensor, nn

from stringline.datasets.contract.arguments import POSITIVE
from stringline.datasets.loading.statistics import QUANTILES, Floats, KeyStatistics


class Normaliser(nn.Module):
    """An affine map per dimension that takes [low, high] to [-1, 1].

    Its numbers are no weights: the statistics in the checkpoint's description are their one source.

    Attributes:
        low: (D,) what becomes -1, in data units.
        high: (D,) what becomes 1.
        clip: Whether values beyond become -1 and 1; they do not come back then.
        reach: The largest magnitude that the data have after `normalise`, at least 1. Samplers that
            clip must not clip below.
    """

    low: Tensor
    high: Tensor

    def __init__(
        self,
        statistics: KeyStatistics,
        low: Floats,
        high: Floats,
        *,
        floor: float,
        clip: bool = False,
    ) -> None:
        """Sets the ranges.

        Args:
            statistics: Of the data.
            low: (D,) what shall become -1.
            high: (D,) what shall become 1.
            floor: Smallest range; a narrower one is widened about its middle, or a constant joint's
                noise would be blown up.
            clip: See the class.

        Raises:
            ValueError: The floor is not above 0, so channels that never change would have no range.
        """
        super().__init__()
        POSITIVE.check(floor=floor)
        self.clip = clip
        lowest = torch.as_tensor(low)
        highest = torch.as_tensor(high)
        middle = (lowest + highest) / 2
        half = ((highest - lowest) / 2).clamp(min=floor / 2)
        self.register_buffer("low", (middle - half).float(), persistent=False)
        self.register_buffer("high", (middle + half).float(), persistent=False)
        ends = torch.stack((torch.as_tensor(statistics.min), torch.as_tensor(statistics.max)))
        self.reach = 1.0 if clip else max(1.0, float(((ends - middle) / half).abs().max()))

    def normalise(self, value: Tensor) -> Tensor:
        """Maps (..., D) in data units to [-1, 1] or around it."""
        normal = 2 * (value - self.low) / (self.high - self.low) - 1
        return normal.clamp(-1, 1) if self.clip else normal

    def restore(self, value: Tensor) -> Tensor:
        """Maps (..., D) in [-1, 1] back to data units."""
        return self.low + (value + 1) / 2 * (self.high - self.low)


class MinMaxNormaliser(Normaliser):
    """The smallest and the largest value of the data become -1 and 1."""

    def __init__(self, statistics: KeyStatistics, *, floor: float = 0.05) -> None:
        """Sets the ranges.

        Args:
            statistics: Of the data.
            floor: Smallest range; 0.05 is 0.05 rad for joints and 5 % of the travel for grippers.
        """
        super().__init__(statistics, statistics.min, statistics.max, floor=floor)
        self.reach = 1.0  # Without the last bit of rounding.


class MeanStdNormaliser(Normaliser):
    """The mean becomes 0, a standard deviation 1."""

    def __init__(self, statistics: KeyStatistics, *, floor: float = 0.05) -> None:
        """Sets the ranges.

        Args:
            statistics: Of the data.
            floor: Smallest range of two standard deviations.
        """
        mean = statistics.mean
        std = statistics.std
        super().__init__(statistics, mean - std, mean + std, floor=floor)


class QuantileNormaliser(Normaliser):
    """The 1 % and the 99 % quantile become -1 and 1, so a few outliers do not squeeze everything else together.

    Quantiles are those of `KeyStatistics`, each within a 4096th of the range of its dimension.
    """

    def __init__(
        self, statistics: KeyStatistics, *, floor: float = 0.05, clip: bool = False
    ) -> None:
        """Sets the ranges.

        Args:
            statistics: Of the data.
            floor: Smallest range.
            clip: Cut off what lies beyond the quantiles. A policy then never asks for it either.
        """
        first = QUANTILES.index(0.01)
        last = QUANTILES.index(0.99)
        super().__init__(
            statistics,
            statistics.quantiles[first],
            statistics.quantiles[last],
            floor=floor,
            clip=clip,
        )


class NormaliserFactory(Protocol):
    """Makes a normaliser of a key, as the classes above do."""

    def __call__(self, statistics: KeyStatistics) -> Normaliser:
        """Returns it for data with these statistics."""
        ...
