"""Normalisers between data units and the range of networks, from statistics of the data.

`JointState` is the normalised state of the joints as one vector: positions and, if the data have
them, velocities.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import POSITIVE
from stringline.datasets.loading.statistics import QUANTILES, Floats, KeyStatistics, Statistics
from stringline.encoders.vision.rgbd import read_key


class Normaliser(nn.Module):
    """An affine map per dimension from [low, high] to [-1, 1].

    Its numbers are not weights: they come from the statistics in the checkpoint's description.

    Attributes:
        low: (D,) value that becomes -1, in data units.
        high: (D,) value that becomes 1.
        clip: Whether values outside are clipped to -1 and 1, irreversibly.
        reach: The largest magnitude of the normalised data, at least 1. Samplers must not clip
            below.
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

        A range below `floor`, above 0, is widened about its middle, so that the noise of a constant
        joint is not amplified.
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
        """Maps (..., D) in data units to about [-1, 1]."""
        normal = 2 * (value - self.low) / (self.high - self.low) - 1
        return normal.clamp(-1, 1) if self.clip else normal

    def restore(self, value: Tensor) -> Tensor:
        """Maps (..., D) in [-1, 1] back to data units."""
        return self.low + (value + 1) / 2 * (self.high - self.low)


class MinMaxNormaliser(Normaliser):
    """Maps the smallest and the largest value of the data to -1 and 1."""

    def __init__(self, statistics: KeyStatistics, *, floor: float = 0.05) -> None:
        """Sets the ranges.

        Args:
            statistics: Statistics of the data.
            floor: Smallest range; 0.05 is 0.05 rad for joints and 5 % of the travel for grippers.
        """
        super().__init__(statistics, statistics.min, statistics.max, floor=floor)
        self.reach = 1.0  # Exactly, without rounding.


class MeanStdNormaliser(Normaliser):
    """Maps the mean to 0 and a standard deviation to 1."""

    def __init__(self, statistics: KeyStatistics, *, floor: float = 0.05) -> None:
        """Sets the ranges.

        Args:
            statistics: Statistics of the data.
            floor: Smallest range of two standard deviations, in data units.
        """
        mean = statistics.mean
        std = statistics.std
        super().__init__(statistics, mean - std, mean + std, floor=floor)


class QuantileNormaliser(Normaliser):
    """Maps the 1 % and the 99 % quantile to -1 and 1, robust against outliers.

    Quantiles are those of `KeyStatistics`, accurate to a 4096th of the range of each dimension.
    """

    def __init__(
        self, statistics: KeyStatistics, *, floor: float = 0.05, clip: bool = False
    ) -> None:
        """Sets the ranges.

        Args:
            statistics: Statistics of the data.
            floor: Smallest range, in data units.
            clip: Clip values outside of the quantiles. A policy then never commands them either.
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


NormaliserFactory = Callable[[KeyStatistics], Normaliser]
"""Makes a normaliser from the statistics of the data, such as the classes above."""


POSITION = "joints/position"
VELOCITY = "joints/velocity"


class JointState(nn.Module):
    """Normalises joint positions and velocities to one vector (B, S), S = `dim`.

    Velocities are read if the statistics of the training data have them; an observation then needs
    them too.

    Attributes:
        keys: The keys of the contract that it reads.
        dim: Numbers of a state, S.
    """

    def __init__(self, statistics: Statistics) -> None:
        """Sets the ranges, of mean 0 and standard deviation 1.

        Raises:
            ValueError: The statistics have no joint positions.
        """
        super().__init__()
        if POSITION not in statistics:
            raise ValueError(
                f"There are no statistics of {POSITION!r}; known: {', '.join(statistics)}. A "
                f"policy without measured joints needs policy.posture=null."
            )
        self.keys = tuple(key for key in (POSITION, VELOCITY) if key in statistics)
        self.ranges = nn.ModuleList(MeanStdNormaliser(statistics[key]) for key in self.keys)
        self.dim = sum(len(statistics[key].mean) for key in self.keys)

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the states (B, S) of B observations, float32 or the measured type."""
        parts = [
            each.normalise(_precise(read_key(observation, key)))
            for key, each in zip(self.keys, self._ranges(), strict=True)
        ]
        return torch.cat(parts, dim=-1)

    def _ranges(self) -> list[Normaliser]:
        """Returns the ranges with their type, which `ModuleList` does not keep."""
        return [each for each in self.ranges if isinstance(each, Normaliser)]


def _precise(value: Tensor) -> Tensor:
    return value.to(torch.promote_types(value.dtype, torch.float32))
