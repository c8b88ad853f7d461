"""Small instances of every position encoding, for tests of their common properties."""

from collections.abc import Callable
from functools import partial

import pytest
import torch

from stringline import (
    AxialFrequencies,
    ButterflyGivens,
    CayleyBasis,
    CayleyString,
    CirculantFrequencies,
    CirculantString,
    ComRopeAp,
    ComRopeLd,
    ExponentialBasis,
    FourierBasis,
    GivensBasis,
    HouseholderBasis,
    LearnedEncoding,
    LieRE,
    LiereCommute,
    LinearlyDependentFrequencies,
    MixedFrequencies,
    NoEncoding,
    PositionEncoding,
    Rope,
    RopeInLearnedBasis,
    RopeMixed,
    RotaryEncoding,
    SinusoidalEncoding,
    TensorProductString,
    VisionLlamaRope,
)
from stringline.encoders.positions.bases import BasisFactory
from stringline.encoders.positions.frequencies import FrequencyFactory
from stringline.encoders.positions.rotary import FixedRotary, Rotary

Draw = Callable[..., torch.Tensor]
HEADS, HEAD_DIM = 2, 16
METRES = (0.2, 2.0)

FREQUENCIES: dict[str, FrequencyFactory] = {
    "axial": partial(AxialFrequencies, theta=100.0),
    "axial_learned": partial(AxialFrequencies, wavelengths=METRES, learned=True),
    "axial_partition": partial(AxialFrequencies, wavelengths=METRES, learned=True, block=4),
    "mixed": partial(MixedFrequencies, wavelengths=METRES),
    "circulant": partial(CirculantFrequencies, wavelengths=METRES, block=8),
    "linearly_dependent": partial(LinearlyDependentFrequencies, wavelengths=METRES, block=4),
}
BASES: dict[str, BasisFactory | None] = {
    "identity": None,
    "cayley": CayleyBasis,
    "cayley_sparse": partial(CayleyBasis, bandwidth=3),
    "cayley_blocks": partial(CayleyBasis, block=4),
    "exponential": ExponentialBasis,
    "givens": GivensBasis,
    "butterfly": ButterflyGivens,
    "householder": partial(HouseholderBasis, reflections=4),
    "fourier": partial(FourierBasis, block=8),
}

ROTARY: dict[str, Callable[[], Rotary]] = {
    "fixed": lambda: FixedRotary(
        HEADS, 5 * torch.randn(HEADS, 3, HEAD_DIM // 2, generator=torch.Generator().manual_seed(1))
    ),
    "rope": lambda: Rope(HEADS, HEAD_DIM, 3, theta=100.0),
    "vision_llama": lambda: VisionLlamaRope(HEADS, HEAD_DIM),
    "mixed": lambda: RopeMixed(HEADS, HEAD_DIM, 3, wavelengths=METRES),
    "mixed_per_head": lambda: RopeMixed(HEADS, HEAD_DIM, 3, wavelengths=METRES, share_heads=False),
    "mixed_grid": lambda: RopeMixed(HEADS, HEAD_DIM, 2, theta=100.0),
    "liere_commute": lambda: LiereCommute(HEADS, HEAD_DIM, 3),
    "cayley": lambda: CayleyString(HEADS, HEAD_DIM, 3, wavelengths=METRES),
    "cayley_per_head": lambda: CayleyString(
        HEADS, HEAD_DIM, 3, wavelengths=METRES, share_heads=False
    ),
    "cayley_sparse": lambda: CayleyString(HEADS, HEAD_DIM, 3, wavelengths=METRES, bandwidth=2),
    "circulant_4": lambda: CirculantString(HEADS, HEAD_DIM, 3, block=4, wavelengths=METRES),
    "circulant_8": lambda: CirculantString(
        HEADS, HEAD_DIM, 3, block=8, wavelengths=METRES, share_heads=False
    ),
    "circulant_16": lambda: CirculantString(HEADS, HEAD_DIM, 1, block=16, wavelengths=METRES),
    "comrope_ap": lambda: ComRopeAp(HEADS, HEAD_DIM, 3, block=4),
    "comrope_ld": lambda: ComRopeLd(HEADS, HEAD_DIM, 3, block=4),
    "comrope_ld_shared": lambda: ComRopeLd(HEADS, HEAD_DIM, 2, block=8, share_heads=True),
    **{
        f"rope_in_{name}": partial(
            RopeInLearnedBasis,
            HEADS,
            HEAD_DIM,
            3,
            basis=basis,
            theta=10.0,
            share_heads=name != "givens",
        )
        for name, basis in BASES.items()
        if basis is not None and name not in ("cayley_blocks", "cayley_sparse", "fourier")
    },
    "own_combination": lambda: RotaryEncoding(
        HEADS,
        HEAD_DIM,
        3,
        frequencies=FREQUENCIES["linearly_dependent"],
        basis=GivensBasis,
        share_heads=False,
        share_basis=True,
    ),
}
KINDS: dict[str, Callable[[], PositionEncoding]] = {
    "none": lambda: NoEncoding(HEADS, HEAD_DIM, 3),
    **ROTARY,
    "tensor_product": lambda: TensorProductString(
        HEADS, HEAD_DIM, 3, features=5, wavelengths=METRES
    ),
    "tensor_product_per_head": lambda: TensorProductString(
        HEADS, HEAD_DIM, 3, features=5, wavelengths=METRES, share_heads=False
    ),
    "liere_2": lambda: LieRE(HEADS, HEAD_DIM, 3, block=2),
    "liere_8": lambda: LieRE(HEADS, HEAD_DIM, 3, block=8, uniform=2.0),
    "liere_16_per_head": lambda: LieRE(
        HEADS, HEAD_DIM, 2, block=16, uniform=1.0, share_heads=False
    ),
    "sinusoidal": lambda: SinusoidalEncoding(HEADS, HEAD_DIM, 3, wavelengths=METRES),
    "learned": lambda: LearnedEncoding(
        HEADS, HEAD_DIM, 2, cells=(3, 4), low=(-2.0, -2.0), high=(2.0, 2.0)
    ),
}
RELATIVE = [kind for kind in KINDS if kind.startswith(("none", "tensor")) or kind in ROTARY]
# One of each kind of rotation, mixing and sharing, over three axes.
SPATIAL = [
    "none",
    "rope",
    "mixed_per_head",
    "cayley",
    "circulant_8",
    "comrope_ld",
    "rope_in_givens",
    "tensor_product",
]


def make(kind: str, *, at_start: bool = False) -> PositionEncoding:
    """Returns the encoding in float64; unless `at_start`, its parameters are moved at random."""
    encoding = KINDS[kind]().double()
    encoding.reset_parameters(0)  # Now in float64.
    if not at_start:
        generator = torch.Generator().manual_seed(2)
        with torch.no_grad():
            for parameter in encoding.parameters():
                parameter += 0.2 * torch.randn(
                    parameter.shape, dtype=parameter.dtype, generator=generator
                )
    return encoding


def rotary(kind: str, *, at_start: bool = False) -> Rotary:
    """Returns one of `ROTARY`, as `make` does."""
    encoding = make(kind, at_start=at_start)
    assert isinstance(encoding, Rotary)
    return encoding


@pytest.fixture(params=KINDS)
def encoding(request: pytest.FixtureRequest) -> PositionEncoding:
    """Every encoding."""
    return make(request.param)


@pytest.fixture(params=RELATIVE)
def relative_encoding(request: pytest.FixtureRequest) -> PositionEncoding:
    """Every encoding that depends on differences of places only."""
    return make(request.param)


@pytest.fixture(params=ROTARY)
def rotary_encoding(request: pytest.FixtureRequest) -> Rotary:
    """Every encoding by frequencies and a basis."""
    return rotary(request.param)


@pytest.fixture(params=ROTARY)
def starting_rotary(request: pytest.FixtureRequest) -> Rotary:
    """Every encoding by frequencies and a basis, with its initial parameters."""
    return rotary(request.param, at_start=True)


@pytest.fixture(params=SPATIAL)
def spatial_encoding(request: pytest.FixtureRequest) -> PositionEncoding:
    """Relative encodings of three axes, one of each kind."""
    return make(request.param)


@pytest.fixture(params=KINDS)
def starting_encoding(request: pytest.FixtureRequest) -> PositionEncoding:
    """Every encoding, with its initial parameters."""
    return make(request.param, at_start=True)


@pytest.fixture
def draw() -> Draw:
    """Returns normal float64 numbers of a shape, the same in every run."""
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)
