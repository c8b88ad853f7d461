"""Frequencies of angles: integers, so that a full turn changes nothing."""

from collections.abc import Sequence

import torch
from torch import Tensor

from stringline.encoders.positions.frequencies import Frequencies, FrequencyFactory


class WholeOnCircle(Frequencies):
    """Frequencies whose entries along some axes are rounded to integers per radian.

    exp(i w phi) is a function of a direction only if w (phi + 2 pi) and w phi differ by full turns.
    Gradients pass through the rounding unchanged (Bengio et al., 2013, arXiv 1308.3432), so the
    wrapped frequencies keep learning and jump between integers.
    """

    def __init__(
        self,
        sets: int,
        axes: int,
        planes: int,
        *,
        frequencies: FrequencyFactory,
        angles: Sequence[int] = (0,),
    ) -> None:
        """Builds the wrapped frequencies.

        `angles` are the axes in radians: 0 in `CylindricalPlaces`, 1 in `SphericalPlaces`.
        """
        super().__init__(sets, axes, planes)
        if not angles or not all(0 <= angle < axes for angle in angles):
            raise ValueError(
                f"angles are {tuple(angles)}; allowed: at least one of the axes 0 to {axes - 1}."
            )
        self.angles = tuple(angles)
        self.frequencies: Frequencies = frequencies(sets=sets, axes=axes, planes=planes)

    def forward(self) -> Tensor:
        """Returns Omega."""
        omega: Tensor = self.frequencies()
        whole = omega + (omega.round() - omega).detach()
        on_circle = torch.tensor([axis in self.angles for axis in range(self.axes)])
        on_circle = on_circle.to(omega.device, non_blocking=True)
        return torch.where(on_circle[:, None], whole, omega)

    def reset_parameters(self, seed: int) -> None:
        """Draws the initial values of the wrapped frequencies."""
        self.frequencies.reset_parameters(seed)

    def zero_(self) -> None:
        """Sets the wrapped frequencies to zero; see `Frequencies.zero_`."""
        self.frequencies.zero_()
