"""Published encodings by name, each a combination of frequencies and a basis."""

from functools import partial

from stringline.encoders.positions.bases import Basis, BasisFactory, CayleyBasis, FourierBasis
from stringline.encoders.positions.frequencies import (
    AxialFrequencies,
    CirculantFrequencies,
    FrequencyFactory,
    MixedFrequencies,
    with_still_planes,
)
from stringline.encoders.positions.rotary import RotaryEncoding


class Rope(RotaryEncoding):
    """RoPE on axes (Su et al., RoFormer, 2021; in 2D Heo et al., 2024), without parameters.

    Any even head_dim and any number of axes; planes are split as evenly as possible. Departs from
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
        still: float = 0.0,
    ) -> None:
        """Computes the frequencies.

        Args:
            still: Share of the planes that do not rotate, from 0, below 1, see `StillPlanes`.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head, even.
            axes: Coordinates per place.
            theta: Base of the geometric series: 100 in Heo et al. for positions in patches, 10000
                in RoFormer and STRING.
            wavelengths: Instead of theta: the shortest and longest wavelength in the unit of the
                coordinates.
        """
        factory = partial(AxialFrequencies, theta=theta, wavelengths=wavelengths)
        super().__init__(heads, head_dim, axes, frequencies=with_still_planes(factory, still))


class VisionLlamaRope(Rope):
    """VisionLLaMA's RoPE (Chu et al., 2024, arXiv 2403.00522): axial, base 10000.

    `GridPlaces(grid=...)` scales other resolutions to the trained one, for every encoding.
    """

    def __init__(self, heads: int, head_dim: int, axes: int = 2, *, theta: float = 10000.0) -> None:
        """Computes the frequencies.

        Args:
            theta: Base of the geometric series of frequencies, above 1.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head, even.
            axes: Coordinates per place.
        """
        super().__init__(heads, head_dim, axes, theta=theta)


class RopeMixed(RotaryEncoding):
    """RoPE-Mixed (Heo et al., 2024, arXiv 2403.13298): a learned direction per plane and no basis.

    For any number of axes. Departs from the paper in that directions may start isotropically, with
    `wavelengths` in the unit of the coordinates; `theta` restores its initial values on grids.
    STRING states theta = 100, Heo's code uses 10.
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
        still: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Initialises the frequencies; exactly one of `wavelengths` and `theta` is given.

        `still` is the share of the planes that do not rotate, see `StillPlanes`.

        Args:
            share_heads: One set of frequencies for all heads; if False, one per head.
            still: Share of the planes that do not rotate, from 0, below 1, see `StillPlanes`.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head, even.
            axes: Coordinates per place.
            wavelengths: Shortest and longest initial wavelength, in the unit of the coordinates.
            theta: Instead of wavelengths: the base for two axes in patches.
            seed: Seed of the initial parameters.
        """
        factory = partial(MixedFrequencies, wavelengths=wavelengths, theta=theta)
        super().__init__(
            heads,
            head_dim,
            axes,
            frequencies=with_still_planes(factory, still),
            share_heads=share_heads,
            seed=seed,
        )


class CayleyString(RotaryEncoding):
    """Cayley-STRING (Schenck et al., 2025, eq. 10): learned frequencies in a learned `CayleyBasis`.

    The paper does not specify the initial S; here S = 0, so it starts as RoPE-Mixed.
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
        share_basis: bool | None = None,
        still: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Initialises the parameters.

        Args:
            share_heads: One set of frequencies and one basis for all heads; if False, one of each
                per head.
            share_basis: One basis for all heads; if False, one per head; if None, as share_heads.
            still: Share of the planes that do not rotate, from 0, below 1, see `StillPlanes`.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head, even.
            axes: Coordinates per place.
            wavelengths: Shortest and longest initial wavelength, in the unit of the coordinates.
            theta: Instead of wavelengths: the base of RoPE-Mixed for two axes in patches.
            bandwidth: S has nonzero entries only within this distance of the diagonal; if None, S
                is dense.
            seed: Seed of the initial parameters.
        """
        factory = partial(MixedFrequencies, wavelengths=wavelengths, theta=theta)
        super().__init__(
            heads,
            head_dim,
            axes,
            frequencies=with_still_planes(factory, still),
            basis=partial(CayleyBasis, bandwidth=bandwidth),
            share_heads=share_heads,
            share_basis=share_basis,
            seed=seed,
        )


class CirculantString(RotaryEncoding):
    """Circulant-STRING (Schenck et al., 2025, theorem 3.5): generators of learned circulant blocks.

    In the real Fourier basis of the blocks it is a rotation, so it needs no FFT. It equals
    RoPE-Mixed with a constant basis and one plane per block that does not rotate.
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
        """Initialises the parameters.

        Args:
            block: Channels per circulant block, even, at least 4, a divisor of the channels per
                head. Best in the paper: 16 on ImageNet, 32 on WebLI-3D.
            share_heads: One set of coefficients for all heads; if False, one per head.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head, a multiple of `block`.
            axes: Coordinates per place.
            wavelengths: Shortest and longest initial wavelength of the rotating planes, in the unit
                of the coordinates.
            theta: Instead of wavelengths: the base of RoPE-Mixed for two axes in patches.
            seed: Seed of the initial parameters.
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
    """LieRE-Commute (Ostmeier et al., 2024, arXiv 2406.10322): LieRE with blocks of two.

    Such blocks commute. It equals RoPE-Mixed with initial frequencies uniform between 0 and
    `uniform`, for coordinates from 0 to 1.
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
        """Initialises the frequencies.

        Args:
            share_heads: One set of frequencies for all heads; if False, one per head.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head, even.
            axes: Coordinates per place.
            uniform: Largest initial frequency, 2 pi in the paper.
            seed: Seed of the initial parameters.
        """
        factory = partial(MixedFrequencies, uniform=uniform)
        super().__init__(
            heads, head_dim, axes, frequencies=factory, share_heads=share_heads, seed=seed
        )


class RopeInLearnedBasis(RotaryEncoding):
    """Rethinking RoPE (Liu and Zhou, 2025): axial RoPE in a learned basis, which mixes the axes.

    The basis is one of `CayleyBasis`, `ExponentialBasis`, `GivensBasis`, `ButterflyGivens` and
    `HouseholderBasis`.
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
        """Initialises the parameters; exactly one of `theta` and `wavelengths` is given.

        Args:
            share_heads: One basis for all heads; if False, one per head.
            basis: `CayleyBasis`, or another class of `encoders/positions/bases.py`.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head, even.
            axes: Coordinates per place.
            theta: Base of the geometric series of frequencies.
            wavelengths: Instead of theta: the shortest and longest wavelength in the unit of the
                coordinates.
            seed: Seed of the initial parameters.
        """
        factory: FrequencyFactory = partial(AxialFrequencies, theta=theta, wavelengths=wavelengths)
        super().__init__(
            heads,
            head_dim,
            axes,
            frequencies=factory,
            basis=basis,
            share_heads=True,
            share_basis=share_heads,
            seed=seed,
        )
