"""The encodings whose generators commute: each is a choice of frequencies and of a basis."""

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn

from stringline.encoders.positions.bases import cayley, real_fourier, sine_transform
from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.frequencies import isotropic, mixed_grid
from stringline.encoders.positions.places import Places


class NoEncoding(PositionEncoding):
    """Attention without places: the control experiment."""

    def __init__(self, heads: int, head_dim: int, axes: int) -> None:
        """Has no parameters."""
        super().__init__(heads, head_dim, axes, share_heads=True)

    def frequencies(self) -> Tensor:
        """Returns zeros (1, axes, head_dim / 2)."""
        return torch.zeros(1, self.axes, self.head_dim // 2)

    def reset_parameters(self, seed: int) -> None:
        """Does nothing."""

    def prepare(self, coordinates: Tensor, placed: Tensor | None = None) -> Places:
        """Returns places that turn nothing."""
        self._check(coordinates, placed)
        return Places()


class FixedRotary(PositionEncoding):
    """Frequencies that are not learned and no basis: what remains of an encoding after folding."""

    omega: Tensor

    def __init__(self, heads: int, omega: Tensor) -> None:
        """Keeps the frequencies.

        Args:
            heads: Attention heads.
            omega: (heads | 1, axes, head_dim / 2), in radians per unit of the coordinates.
        """
        super().__init__(heads, 2 * omega.shape[-1], omega.shape[-2], share_heads=len(omega) == 1)
        self.register_buffer("omega", omega.detach().clone())

    def frequencies(self) -> Tensor:
        """Returns them."""
        return self.omega

    def reset_parameters(self, seed: int) -> None:
        """Does nothing."""


class LearnedRotary(PositionEncoding):
    """What encodings with learned frequencies share: how these start, and in which unit their parameters are stored."""

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        share_heads: bool = True,
        wavelengths: tuple[float, float] | None = None,
        theta: float | None = None,
        scale: float | None = None,
        seed: int = 0,
    ) -> None:
        """Draws the start.

        Args:
            heads: Attention heads.
            head_dim: Channels per head, even.
            axes: Coordinates per place.
            share_heads: Whether all heads have the same parameters.
            wavelengths: Shortest and longest at the start, in the unit of the coordinates.
            theta: In their stead, the base of RoPE-Mixed for two axes in patches.
            scale: Frequency, in radians per unit, that the stored parameter 1 means, so that one learning rate serves
                frequencies and weights alike. Default: that of the geometric mean of the wavelengths; 1 with theta.
            seed: Of the start.

        Raises:
            ValueError: Not exactly one of `wavelengths` and `theta`, or a value out of range.
        """
        super().__init__(heads, head_dim, axes, share_heads=share_heads)
        if (wavelengths is None) == (theta is None) or (theta is not None and axes != 2):
            raise ValueError(
                f"wavelengths {wavelengths}, theta {theta}, axes {axes}; allowed: one of them, theta for 2 axes only."
            )
        self.wavelengths, self.theta = wavelengths, theta
        self.scale = scale or (2 * math.pi / math.sqrt(wavelengths[0] * wavelengths[1]) if wavelengths else 1.0)
        self._create()
        self.reset_parameters(seed)

    @abstractmethod
    def _create(self) -> None:
        """Makes the parameters, without values."""

    def _start(self, planes: int, seed: int) -> Tensor:
        """Returns starting frequencies (heads | 1, axes, planes), float64."""
        generator = torch.Generator().manual_seed(seed)
        if self.wavelengths is not None:
            return isotropic(self.sets, self.axes, planes, self.wavelengths, generator)
        assert self.theta is not None  # The constructor saw to it.
        return mixed_grid(self.sets, planes, self.theta, generator)


class RopeMixed(LearnedRotary):
    """RoPE-Mixed: every plane turns along a learned direction (Heo et al., 2024, arXiv 2403.13298), for any number of axes.

    Departs from the paper in that directions start isotropically at random and wavelengths are given in the unit of the
    coordinates; `theta` restores its start on grids.
    """

    def _create(self) -> None:
        self.scaled_frequencies = nn.Parameter(torch.empty(self.sets, self.axes, self.head_dim // 2))

    def frequencies(self) -> Tensor:
        """Returns the learned frequencies (heads | 1, axes, head_dim / 2)."""
        return self.scaled_frequencies * self.scale

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Draws directions anew."""
        self.scaled_frequencies.copy_(self._start(self.head_dim // 2, seed) / self.scale)


class CayleyString(RopeMixed):
    """Cayley-STRING: learned frequencies in a learned basis P = (I - S)(I + S)^-1 (Schenck et al., 2025, eq. 10).

    The paper leaves the start of S open; here S = 0, so it starts as RoPE-Mixed. `share_heads` holds for S too.
    """

    def _create(self) -> None:
        super()._create()
        self.skew = nn.Parameter(torch.empty(self.sets, self.head_dim * (self.head_dim - 1) // 2))

    def basis(self) -> Tensor:
        """Returns P (heads | 1, head_dim, head_dim), in float32 at least."""
        return cayley(self.skew, self.head_dim)

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Draws directions anew and returns to the identity."""
        super().reset_parameters(seed)
        self.skew.zero_()


class CirculantString(LearnedRotary):
    """Circulant-STRING: generators L_k = C_k - C_k^T with learned circulant blocks (Schenck et al., 2025, theorem 3.5).

    In the real Fourier basis it is a rotation by w_kj = 2 sum_n c_kn sin(2 pi j n / b), j = 1 ... b / 2 - 1, in each block of
    size b; the constant and the alternating vector of a block never turn. The basis is constant, so no FFT is needed.
    The paper leaves the start of c open; here c = W^T w_0 / 2b, so the turning planes start as those of RoPE-Mixed.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        block: int = 16,
        share_heads: bool = True,
        wavelengths: tuple[float, float] | None = None,
        theta: float | None = None,
        scale: float | None = None,
        seed: int = 0,
    ) -> None:
        """Draws the start; arguments as for `LearnedRotary`, and a block size.

        Args:
            heads: Attention heads.
            head_dim: Channels per head, a multiple of `block`.
            axes: Coordinates per place.
            block: Size b of the circulant blocks, even, 4 at least. The paper's best: 16 on ImageNet, 32 on WebLI-3D.
            share_heads: Whether all heads have the same coefficients.
            wavelengths: Of the turning planes.
            theta: In their stead, the base of RoPE-Mixed.
            scale: Coefficients are stored in units of scale / sqrt(2 b), in which frequencies are an orthonormal map of them.
            seed: Of the start.

        Raises:
            ValueError: `block` does not fit, or as for `LearnedRotary`.
        """
        if block < 4 or block % 2 or head_dim % block:
            raise ValueError(f"block is {block}; allowed: even divisors of head_dim {head_dim} from 4.")
        self.block = block
        super().__init__(
            heads, head_dim, axes, share_heads=share_heads, wavelengths=wavelengths, theta=theta, scale=scale, seed=seed
        )

    def _create(self) -> None:
        self.scaled_coefficients = nn.Parameter(torch.empty(self.sets, self.axes, self.head_dim // self.block, self.block))

    def coefficients(self) -> Tensor:
        """Returns the first columns c of the circulant blocks, (heads | 1, axes, blocks, block)."""
        return self.scaled_coefficients * (self.scale / math.sqrt(2 * self.block))

    def frequencies(self) -> Tensor:
        """Returns W c, (heads | 1, axes, head_dim / 2), zero for the first plane of each block."""
        c = self.coefficients()
        sine = sine_transform(self.block, c.device).to(c.dtype)
        with torch.autocast(c.device.type, enabled=False):
            return (c @ sine.mT).flatten(-2)

    def basis(self) -> Tensor:
        """Returns the real Fourier basis, (1, head_dim, head_dim)."""
        stored = self.scaled_coefficients
        return real_fourier(self.block, self.head_dim // self.block, stored.device).to(stored.dtype).unsqueeze(0)

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Draws directions anew."""
        blocks, turning = self.head_dim // self.block, self.block // 2 - 1
        omega = self._start(blocks * turning, seed).reshape(self.sets, self.axes, blocks, turning)
        sine = sine_transform(self.block)[1:]
        self.scaled_coefficients.copy_(omega @ sine / math.sqrt(2 * self.block) / self.scale)
