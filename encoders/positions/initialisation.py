"""Where learned frequencies start: directions, and wavelengths that cover the scene."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stringline.datasets.contract.arguments import POSITIVE, Range


@dataclass(frozen=True, kw_only=True, eq=False)
class Start:
    """A choice of starting frequencies; exactly one of the fields is given.

    Attributes:
        wavelengths: Shortest and longest, in the unit of the coordinates, spaced evenly in their
            logarithm; directions are isotropic. For any number of axes.
        theta: Base of the geometric series of RoPE, for coordinates in patches; see `rotated_grid`
            and `geometric`.
        uniform: Each component of a frequency is drawn from 0 to this, as LieRE draws its
            generators, for coordinates from 0 to 1.
        omega: The frequencies themselves, (1 | sets, axes, planes).
    """

    wavelengths: tuple[float, float] | None = None
    theta: float | None = None
    uniform: float | None = None
    omega: Tensor | None = None

    def __post_init__(self) -> None:
        """Refuses contradictions and values out of range."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if len(given) != 1:
            got = ", ".join(given) or "none"
            raise ValueError(
                f"Frequencies start by {got}; allowed: exactly one of wavelengths, theta, "
                f"uniform, omega."
            )
        if self.wavelengths is not None:
            check_wavelengths(wavelengths=self.wavelengths)
        if self.theta is not None:
            Range(above=1).check(theta=self.theta)
        if self.uniform is not None:
            POSITIVE.check(uniform=self.uniform)

    @property
    def unit(self) -> float:
        """A typical frequency, in radians per unit of the coordinates: parameters are stored in it.

        So one learning rate serves frequencies and weights, whether coordinates are metres or
        millimetres.
        """
        return (
            2 * math.pi / math.sqrt(self.wavelengths[0] * self.wavelengths[1])
            if self.wavelengths
            else 1.0
        )

    def magnitudes(self, planes: int) -> Tensor:
        """Returns how fast each plane turns, (planes,) float64 in radians per unit, the fastest first.

        Raises:
            ValueError: The start says nothing of magnitudes.
        """
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
        raise ValueError("Planes along fixed axes start by wavelengths or theta.")

    def draw(self, sets: int, axes: int, planes: int, seed: int) -> Tensor:
        """Returns starting frequencies (sets, axes, planes), float64, in radians per unit.

        Raises:
            ValueError: theta with other than two axes, or an omega of another shape.
        """
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
    """Refuses what is no range of wavelengths, by name.

    Raises:
        ValueError: There are not two, one is not above 0, or the first is the longer one.
    """
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


def stored_unit(scale: float | None, start: Start) -> Tensor:
    """Returns the frequency that a stored parameter of 1 means, a scalar in radians per unit of the coordinates.

    Args:
        scale: As it was asked for; None: that of the start.
        start: Of these frequencies.

    Raises:
        ValueError: It is not above 0.
    """
    if scale is not None:
        POSITIVE.check(scale=scale)
    return torch.tensor(start.unit if scale is None else scale)


def geometric(planes: int, theta: float) -> Tensor:
    """Returns theta^(-n / planes), n = 0 ... planes - 1, (planes,) float64: RoPE's series (Su et al., RoFormer, 2021)."""
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
    """Returns the start of RoPE-Mixed, for two axes in patches (Heo et al., 2024, arXiv 2403.13298).

    Each set has one random angle phi. Its first half of planes points along phi, the second half
    along phi + pi / 2, both with the magnitudes of `geometric`. Their released code uses theta =
    10; STRING says 100.

    Returns:
        (sets, 2, planes) in radians per patch, float64.

    Raises:
        ValueError: Not two axes, or an odd number of planes.
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
