"""Planes that do not rotate, for contents that are compared independently of positions."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import Range
from stringline.encoders.positions.frequencies import Frequencies, FrequencyFactory


class StillPlanes(Frequencies):
    """Frequencies of which a share is zero and stays zero (p-RoPE, Barbero et al., 2410.06205).

    Tokens without a position, such as instructions and registers, can match the contents of patches
    in these planes, whatever the positions are. As in the paper, these are the last planes, which
    else would rotate most slowly. Departs from it in that the others are spread over the whole
    range of wavelengths, instead of keeping the frequencies that they have among all planes.
    """

    def __init__(
        self,
        sets: int,
        axes: int,
        planes: int,
        *,
        share: float,
        frequencies: Callable[..., Frequencies],
    ) -> None:
        """Makes the frequencies of the other planes.

        Args:
            sets: Independent parameter sets.
            axes: Coordinates per place.
            planes: Planes per set.
            share: Share of the planes that stand still, rounded to whole planes; below 1.
            frequencies: Factory of the frequencies of the others.

        Raises:
            ValueError: `share` is out of range, or leaves fewer planes than axes.
        """
        super().__init__(sets, axes, planes)
        Range(least=0, below=1).check(still=share)
        self.count = round(share * planes)
        if planes - self.count < axes:
            raise ValueError(
                f"still is {share}, which leaves {planes - self.count} of {planes} planes; "
                f"allowed: at least {axes} rotating planes for {axes} axes."
            )
        self.rotating = frequencies(sets=sets, axes=axes, planes=planes - self.count)

    def forward(self) -> Tensor:
        """Returns Omega (sets, axes, planes), whose last planes are zero."""
        return nn.functional.pad(self.rotating(), (0, self.count))

    def reset_parameters(self, seed: int) -> None:
        """Draws the initial frequencies of the rotating planes."""
        self.rotating.reset_parameters(seed)

    @torch.no_grad()
    def zero_(self) -> None:
        """Sets the rotating planes to zero, with nonzero gradients."""
        self.rotating.zero_()


def with_still_planes(frequencies: FrequencyFactory, share: float) -> FrequencyFactory:
    """Returns the factory of frequencies of which a share is zero; the given one for 0."""
    if share == 0:
        return frequencies

    def make(sets: int, axes: int, planes: int) -> Frequencies:
        return StillPlanes(sets, axes, planes, share=share, frequencies=frequencies)

    return make
