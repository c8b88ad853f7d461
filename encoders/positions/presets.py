"""The published encodings by name: each says which frequencies and which basis it is made of."""

from functools import partial

from stringline.encoders.positions.bases import Basis, BasisFactory, CayleyBasis, FourierBasis
from stringline.encoders.positions.block_frequencies import CirculantFrequencies
from stringline.encoders.positions.frequencies import (
    AxialFrequencies,
    FrequencyFactory,
    MixedFrequencies,
)
from stringline.encoders.positions.rotary import RotaryEncoding


class Rope(RotaryEncoding):
    """RoPE on axes (Su et al., RoFormer, 2021; in two dimensions Heo et al., 2024): fixed frequencies, nothing learned.

    Any even head_dim and any number of axes: planes are split as evenly as they go. Departs from
    the published layout in that planes are the channels (n, n + head_dim / 2), not neighbours.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        theta: float | None = None,
        wavelengths: tuple[float, float] | None = None,
    ) -> None:
        """Computes the frequencies.

        Args:
            heads: Attention heads.
            head_dim: Channels per head, even.
            axes: Coordinates per place.
            theta: Base of the geometric series; 100 in Heo et al. for places in patches, 10000 in
                RoFormer and STRING.
            wavelengths: In its stead, the shortest and longest wavelength in the unit of the
                coordinates.
        """
        super().__init__(
            heads,
            head_dim,
            axes,
            frequencies=partial(AxialFrequencies, theta=theta, wavelengths=wavelengths),
        )


class VisionLlamaRope(Rope):
    """VisionLLaMA's RoPE (Chu et al., 2024, arXiv 2403.00522): axial, base 10000.

    Its scaling of other resolutions to the trained one is what `GridPlaces(grid=...)` does for
    every encoding.
    """

    def __init__(self, heads: int, head_dim: int, axes: int = 2, *, theta: float = 10000.0) -> None:
        """Computes the frequencies; arguments as for `Rope`."""
        super().__init__(heads, head_dim, axes, theta=theta)


class RopeMixed(RotaryEncoding):
    """RoPE-Mixed (Heo et al., 2024, arXiv 2403.13298): every plane turns along a learned direction; no basis.

    For any number of axes. Departs from the paper in that directions may start isotropically with
    `wavelengths` in the unit of the coordinates; `theta` restores its start on grids. STRING says
    theta = 100, Heo's code uses 10.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        wavelengths: tuple[float, float] | None = None,
        theta: float | None = None,
        share_heads: bool = True,
        seed: int = 0,
    ) -> None:
        """Draws the start; exactly one of `wavelengths` and `theta` is to be given."""
        recipe = partial(MixedFrequencies, wavelengths=wavelengths, theta=theta)
        super().__init__(
            heads, head_dim, axes, frequencies=recipe, share_heads=share_heads, seed=seed
        )


class CayleyString(RotaryEncoding):
    """Cayley-STRING (Schenck et al., 2025, eq. 10): learned frequencies in a learned basis P = (I - S)(I + S)^-1.

    The paper leaves the start of S open; here S = 0, so it starts as RoPE-Mixed.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        wavelengths: tuple[float, float] | None = None,
        theta: float | None = None,
        bandwidth: int | None = None,
        share_heads: bool = True,
        seed: int = 0,
    ) -> None:
        """Draws the start.

        Args:
            heads: Attention heads.
            head_dim: Channels per head, even.
            axes: Coordinates per place.
            wavelengths: Shortest and longest at the start, in the unit of the coordinates.
            theta: In their stead, the base of RoPE-Mixed for two axes in patches.
            bandwidth: Sparse S, with entries only so near the diagonal; None: dense.
            share_heads: One set of frequencies and one basis for all heads.
            seed: Of the start.
        """
        super().__init__(
            heads,
            head_dim,
            axes,
            frequencies=partial(MixedFrequencies, wavelengths=wavelengths, theta=theta),
            basis=partial(CayleyBasis, bandwidth=bandwidth),
            share_heads=share_heads,
            seed=seed,
        )


class CirculantString(RotaryEncoding):
    """Circulant-STRING (Schenck et al., 2025, theorem 3.5): generators L_k = C_k - C_k^T with learned circulant blocks.

    In the real Fourier basis of the blocks it is a rotation, so no FFT is needed. It is RoPE-Mixed
    with a fixed basis and one plane per block that stands still.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        block: int = 16,
        wavelengths: tuple[float, float] | None = None,
        theta: float | None = None,
        share_heads: bool = True,
        seed: int = 0,
    ) -> None:
        """Draws the start.

        Args:
            heads: Attention heads.
            head_dim: Channels per head, a multiple of `block`.
            axes: Coordinates per place.
            block: Size of the circulant blocks, even, 4 at least. The paper's best: 16 on ImageNet,
                32 on WebLI-3D.
            wavelengths: Of the turning planes at the start, in the unit of the coordinates.
            theta: In their stead, the base of RoPE-Mixed for two axes in patches.
            share_heads: One set of coefficients for all heads.
            seed: Of the start.
        """
        super().__init__(
            heads,
            head_dim,
            axes,
            frequencies=partial(
                CirculantFrequencies, block=block, wavelengths=wavelengths, theta=theta
            ),
            basis=partial(FourierBasis, block=block),
            share_heads=share_heads,
            seed=seed,
        )


class LiereCommute(RotaryEncoding):
    """LieRE-Commute (Ostmeier et al., 2024, arXiv 2406.10322): LieRE with blocks of two, which commute.

    It is RoPE-Mixed with frequencies that start uniformly between 0 and `uniform` for coordinates
    from 0 to 1.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        uniform: float = 6.283185307179586,
        share_heads: bool = True,
        seed: int = 0,
    ) -> None:
        """Draws the start; the paper's `uniform` is 2 pi."""
        recipe = partial(MixedFrequencies, uniform=uniform)
        super().__init__(
            heads, head_dim, axes, frequencies=recipe, share_heads=share_heads, seed=seed
        )


class RopeInLearnedBasis(RotaryEncoding):
    """Rethinking RoPE (Liu & Zhou, 2025): the standard axial rotation in a learned orthogonal basis, which mixes the axes.

    The basis is one of `CayleyBasis`, `Exponential`, `Givens`, `ButterflyGivens` and `Householder`.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        basis: BasisFactory | type[Basis] = CayleyBasis,
        theta: float | None = None,
        wavelengths: tuple[float, float] | None = None,
        share_heads: bool = True,
        seed: int = 0,
    ) -> None:
        """Computes the frequencies and starts the basis; exactly one of `theta` and `wavelengths` is to be given."""
        recipe: FrequencyFactory = partial(AxialFrequencies, theta=theta, wavelengths=wavelengths)
        super().__init__(
            heads,
            head_dim,
            axes,
            frequencies=recipe,
            basis=basis,
            share_heads=True,
            share_basis=share_heads,
            seed=seed,
        )
