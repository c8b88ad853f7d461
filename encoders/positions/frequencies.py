"""How frequencies start: random directions, and wavelengths that cover the scene."""

import math

import torch
from torch import Tensor


def isotropic(sets: int, axes: int, pairs: int, wavelengths: tuple[float, float], generator: torch.Generator) -> Tensor:
    """Returns frequencies with uniform random directions and log-spaced wavelengths.

    Args:
        sets: Independent sets, one per head or a single one for all.
        axes: Coordinates per place.
        pairs: Planes per set; the first gets the shortest wavelength.
        wavelengths: Shortest and longest, in the unit of the coordinates.
        generator: Source of the directions.

    Returns:
        (sets, axes, pairs) in radians per unit of the coordinates, float64.
    """
    shortest, longest = wavelengths
    if not 0 < shortest <= longest:
        raise ValueError(f"wavelengths are {wavelengths}; allowed: (shortest, longest) with 0 < shortest <= longest.")
    direction = torch.randn(sets, axes, pairs, dtype=torch.float64, generator=generator)
    wavelength = torch.logspace(math.log10(shortest), math.log10(longest), pairs, dtype=torch.float64)
    unit: Tensor = direction / direction.norm(dim=1, keepdim=True)
    return unit * (2 * math.pi / wavelength)


def mixed_grid(sets: int, pairs: int, theta: float, generator: torch.Generator) -> Tensor:
    """Returns the start of RoPE-Mixed for two axes (Heo et al., 2024, arXiv 2403.13298).

    Each set has one random angle phi. Its first half of planes points along phi, the second half along phi + pi / 2, both
    with the magnitudes theta^(-2 n / pairs), n = 0 ... pairs / 2 - 1. Their released code uses theta = 10; STRING says 100.

    Returns:
        (sets, 2, pairs) in radians per patch, float64.
    """
    if pairs % 2 or not theta > 1:
        raise ValueError(f"theta {theta} with {pairs} planes; allowed: theta above 1 and an even number of planes.")
    phi = 2 * math.pi * torch.rand(sets, 1, dtype=torch.float64, generator=generator)
    magnitude = theta ** (-2 * torch.arange(pairs // 2, dtype=torch.float64) / pairs)
    angle = torch.cat((phi.expand(sets, pairs // 2), (phi + math.pi / 2).expand(sets, pairs // 2)), dim=1)
    return torch.stack((angle.cos(), angle.sin()), dim=1) * magnitude.repeat(2)
