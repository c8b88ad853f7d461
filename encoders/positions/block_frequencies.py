"""Frequencies in blocks of channels: circulant blocks, and blocks with one direction each."""

import math

import torch
from torch import Tensor, nn

from stringline.encoders.positions.fourier import sine_transform
from stringline.encoders.positions.frequencies import Frequencies, check_block
from stringline.encoders.positions.initialisation import (
    FrequencyInitialisation,
    isotropic,
    stored_unit,
)


class CirculantFrequencies(Frequencies):
    """Frequencies of circulant blocks L_k = C_k - C_k^T (Schenck et al., STRING, 2025).

    By theorem 3.5, w_kj = 2 sum_n c_kn sin(2 pi j n / b), j = 1 ... b / 2 - 1, in each block of
    size b; plane 0, of the constant and the alternating vector, does not rotate. With
    `FourierBasis` this is Circulant-STRING. The paper does not specify the initial c; here c = W^T
    w_0 / 2b, so the rotating planes start like `MixedFrequencies`.
    """

    def __init__(
        self,
        sets: int,
        axes: int,
        planes: int,
        *,
        block: int = 16,
        wavelengths: tuple[float, float] | None = None,
        theta: float | None = None,
        uniform: float | None = None,
        omega: Tensor | None = None,
        scale: float | None = None,
        seed: int = 0,
    ) -> None:
        """Initialises the coefficients; of the initial values exactly one is given.

        Args:
            sets: Independent parameter sets.
            axes: Coordinates per place.
            planes: Planes per set, a multiple of `block` / 2.
            block: Size b of the blocks, even, at least 4. Best in the paper: 16 on ImageNet, 32 on
                WebLI-3D.
            wavelengths: Wavelengths of the rotating planes; see `FrequencyInitialisation`.
            theta: Base of the series of the rotating planes.
            uniform: Upper end of the frequencies of the rotating planes.
            omega: Frequencies of the rotating planes, (1 | sets, axes, planes (b - 2) / b).
            scale: Coefficients are stored in units of scale / sqrt(2 b), which makes frequencies an
                orthonormal map of them.
            seed: Seed of the initial parameters.
        """
        if block < 4 or block % 2 or (2 * planes) % block:
            raise ValueError(
                f"block is {block}; allowed: even divisors of head_dim {2 * planes} from 4."
            )
        super().__init__(sets, axes, planes)
        self.block = block
        self.initialisation = FrequencyInitialisation(
            wavelengths=wavelengths, theta=theta, uniform=uniform, omega=omega
        )
        self.register_buffer("scale", stored_unit(scale, self.initialisation))
        self.scaled = nn.Parameter(torch.empty(sets, axes, 2 * planes // block, block))
        self.reset_parameters(seed)

    def coefficients(self) -> Tensor:
        """Returns the first columns c of the circulant blocks, (sets, axes, blocks, block)."""
        return self.scaled * (self.scale / math.sqrt(2 * self.block))

    def forward(self) -> Tensor:
        """Returns W c, zero for the first plane of each block."""
        c = self.coefficients()
        sine = sine_transform(self.block, c.device).to(c.dtype)
        # No matmul, which TF32 or autocast would round.
        return (c.unsqueeze(-2) * sine).sum(dim=-1).flatten(-2)

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Draws the directions."""
        blocks = 2 * self.planes // self.block
        turning = self.block // 2 - 1
        omega = self.initialisation.draw(self.sets, self.axes, blocks * turning, seed)
        omega = omega.reshape(self.sets, self.axes, blocks, turning)
        columns = omega @ sine_transform(self.block, omega.device)[1:] / math.sqrt(2 * self.block)
        self.scaled.copy_(columns.to(self.scale.device) / self.scale)


class LinearlyDependentFrequencies(Frequencies):
    """All planes of a block share one learned direction (ComRoPE-LD, Yu et al., 2025, theorem 2).

    Omega = theta_j lambda_p with one direction theta_j per block and one magnitude lambda_p per
    plane (arXiv 2506.03737). With blocks of two channels it equals `MixedFrequencies`.
    """

    def __init__(
        self,
        sets: int,
        axes: int,
        planes: int,
        *,
        block: int = 8,
        wavelengths: tuple[float, float] | None = None,
        theta: float | None = None,
        scale: float | None = None,
        seed: int = 0,
    ) -> None:
        """Initialises isotropic unit directions, and magnitudes by wavelengths or theta.

        Args:
            sets: Independent parameter sets.
            axes: Coordinates per place.
            planes: Planes per set.
            block: Channels per block, twice its planes.
            wavelengths: Shortest and longest wavelength in the unit of the coordinates, assigned to
                the blocks in turn.
            theta: Instead of wavelengths: the base of RoPE's series.
            scale: See `MixedFrequencies`.
            seed: Seed of the initial parameters.
        """
        super().__init__(sets, axes, planes)
        check_block(block, planes)
        self.block = block
        self.initialisation = FrequencyInitialisation(wavelengths=wavelengths, theta=theta)
        self.register_buffer("scale", stored_unit(scale, self.initialisation))
        self.directions = nn.Parameter(torch.empty(sets, axes, 2 * planes // block))
        self.scaled = nn.Parameter(torch.empty(sets, planes))
        self.reset_parameters(seed)

    def forward(self) -> Tensor:
        """Returns Omega."""
        return self.directions.repeat_interleave(self.block // 2, dim=-1) * (
            self.scaled * self.scale
        ).unsqueeze(1)

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Draws the directions."""
        generator = torch.Generator().manual_seed(seed)
        self.directions.copy_(isotropic(self.sets, self.axes, self.directions.shape[-1], generator))
        in_turn = (
            self.initialisation.magnitudes(self.planes).reshape(self.block // 2, -1).T.flatten()
        )
        in_turn = in_turn.to(self.scale.device)
        self.scaled.copy_((in_turn / self.scale).expand(self.sets, -1))

    @torch.no_grad()
    def zero_(self) -> None:
        """Sets the magnitudes to zero; with zero directions too all gradients would be zero."""
        self.scaled.zero_()
