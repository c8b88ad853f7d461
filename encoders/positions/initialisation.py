"""Initial values of learned frequencies: directions, and wavelengths that cover the scene."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stringline.datasets.contract.argument_checks import POSITIVE, Range


@dataclass(frozen=True, kw_only=True, eq=False)
class FrequencyInitialisation:
    """A choice of initial frequencies; exactly one field is given.

    Attributes:
        wavelengths: Shortest and longest wavelength in the unit of the coordinates, spaced
            logarithmically, with isotropic directions, for any number of axes.
        theta: Base of the geometric series of RoPE, for coordinates in patches; see `rotated_grid`
            and `geometric`.
        uniform: Each component is drawn uniformly from 0 to this value, as in LieRE, for
            coordinates from 0 to 1.
        omega: The frequencies themselves, (1 | sets, axes, planes).
    """

    wavelengths: tuple[float, float] | None = None
    theta: float | None = None
    uniform: float | None = None
    omega: Tensor | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if len(given) != 1:
            got = ", ".join(given) or "none"
            raise ValueError(
                f"Frequencies are initialised by {got}; allowed: exactly one of wavelengths, "
                f"theta, uniform, omega."
            )
        if self.wavelengths is not None:
            check_wavelengths(wavelengths=self.wavelengths)
        if self.theta is not None:
            Range(above=1).check(theta=self.theta)
        if self.uniform is not None:
            POSITIVE.check(uniform=self.uniform)

    @property
    def unit(self) -> float:
        """A typical frequency in radians per unit of the coordinates.

        Parameters are stored in this unit, so that one learning rate serves frequencies and
        weights, for coordinates in metres or millimetres.
        """
        return (
            2 * math.pi / math.sqrt(self.wavelengths[0] * self.wavelengths[1])
            if self.wavelengths
            else 1.0
        )

    def magnitudes(self, planes: int) -> Tensor:
        """Returns the frequency of each plane, (planes,) float64 in radians per unit."""
        if self.wavelengths is not None:
            shortest, longest = self.wavelengths
            return (
                2
                * math.pi
                / torch.logspace(
                    math.log10(shortest),
                    math.log10(longest),
                    planes,
                    dtype=torch.float64,
                    device="cpu",
                )
            )
        if self.theta is not None:
            return geometric(planes, self.theta)
        raise ValueError("Planes along fixed axes need wavelengths or theta.")

    def draw(self, sets: int, axes: int, planes: int, seed: int) -> Tensor:
        """Returns initial frequencies (sets, axes, planes), float64, in radians per unit."""
        generator = torch.Generator().manual_seed(seed)
        if self.omega is not None:
            if (
                self.omega.ndim != 3
                or self.omega.shape[0] not in (1, sets)
                or self.omega.shape[1:] != (axes, planes)
            ):
                got = tuple(self.omega.shape)
                raise ValueError(f"omega has shape {got}; allowed: (1 | {sets}, {axes}, {planes}).")
            return self.omega.detach().double().expand(sets, -1, -1).clone()
        if self.uniform is not None:
            return self.uniform * torch.rand(
                sets, axes, planes, dtype=torch.float64, device="cpu", generator=generator
            )
        if self.theta is not None:
            return rotated_grid(sets, axes, planes, self.theta, generator)
        return isotropic(sets, axes, planes, generator) * self.magnitudes(planes)


def check_wavelengths(**pairs: Sequence[float]) -> None:
    """Raises a ValueError unless each pair is a range of wavelengths."""
    for name, pair in pairs.items():
        if (
            len(pair) != 2
            or any(length not in POSITIVE for length in pair)
            or not pair[0] <= pair[1]
        ):
            raise ValueError(
                f"{name} are {tuple(pair)}; allowed: (shortest, longest) with 0 < shortest <= "
                f"longest."
            )


def stored_unit(scale: float | None, start: FrequencyInitialisation) -> Tensor:
    """Returns the frequency of a stored parameter of 1: `scale`, by default that of `start`."""
    if scale is not None:
        POSITIVE.check(scale=scale)
    return torch.tensor(start.unit if scale is None else scale)


def geometric(planes: int, theta: float) -> Tensor:
    """Returns theta^(-n / planes), (planes,) float64, as in RoPE (Su et al., RoFormer, 2021)."""
    series: Tensor = theta ** (-torch.arange(planes, dtype=torch.float64, device="cpu") / planes)
    return series


def isotropic(sets: int, axes: int, planes: int, generator: torch.Generator) -> Tensor:
    """Returns unit vectors (sets, axes, planes) float64 with uniformly distributed directions."""
    direction = torch.randn(
        sets, axes, planes, dtype=torch.float64, device="cpu", generator=generator
    )
    unit: Tensor = direction / direction.norm(dim=1, keepdim=True)
    return unit


def rotated_grid(
    sets: int, axes: int, planes: int, theta: float, generator: torch.Generator
) -> Tensor:
    """Returns initial frequencies of RoPE-Mixed for two axes in patches (Heo et al., 2024).

    Each set has one random angle phi. Its first half of planes points along phi, the second half
    along phi + pi / 2, both with the magnitudes of `geometric` (arXiv 2403.13298). The released
    code uses theta = 10; the STRING paper states 100. The result is (sets, 2, planes) float64, in
    radians per patch.
    """
    if axes != 2 or planes % 2:
        raise ValueError(
            f"theta with {axes} axes and {planes} planes; allowed: 2 axes and an even number of "
            f"planes."
        )
    phi = 2 * math.pi * torch.rand(sets, 1, dtype=torch.float64, device="cpu", generator=generator)
    angle = torch.cat(
        (phi.expand(sets, planes // 2), (phi + math.pi / 2).expand(sets, planes // 2)), dim=1
    )
    return torch.stack((angle.cos(), angle.sin()), dim=1) * geometric(planes // 2, theta).repeat(2)
