"""Every position encoding once, in float64 and away from its start, so that no property holds by a zero."""

from collections.abc import Callable

import pytest
import torch

from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.rotary import CayleyString, CirculantString, FixedRotary, NoEncoding, RopeMixed

HEADS, HEAD_DIM = 2, 16
METRES = (0.2, 2.0)

KINDS: dict[str, Callable[[], PositionEncoding]] = {
    "none": lambda: NoEncoding(HEADS, HEAD_DIM, 3),
    "fixed": lambda: FixedRotary(HEADS, 5 * torch.randn(HEADS, 3, HEAD_DIM // 2, generator=torch.Generator().manual_seed(1))),
    "mixed": lambda: RopeMixed(HEADS, HEAD_DIM, 3, wavelengths=METRES),
    "mixed_per_head": lambda: RopeMixed(HEADS, HEAD_DIM, 3, wavelengths=METRES, share_heads=False),
    "mixed_grid": lambda: RopeMixed(HEADS, HEAD_DIM, 2, theta=100.0),
    "cayley": lambda: CayleyString(HEADS, HEAD_DIM, 3, wavelengths=METRES),
    "cayley_per_head": lambda: CayleyString(HEADS, HEAD_DIM, 3, wavelengths=METRES, share_heads=False),
    "circulant_4": lambda: CirculantString(HEADS, HEAD_DIM, 3, block=4, wavelengths=METRES),
    "circulant_8": lambda: CirculantString(HEADS, HEAD_DIM, 3, block=8, wavelengths=METRES, share_heads=False),
    "circulant_16": lambda: CirculantString(HEADS, HEAD_DIM, 1, block=16, wavelengths=METRES),
}
KINDS_3D = [name for name in KINDS if name not in ("mixed_grid", "circulant_16")]


def make(kind: str, *, at_start: bool = False) -> PositionEncoding:
    """Returns the encoding in float64; unless `at_start`, its parameters are moved at random."""
    encoding = KINDS[kind]().double()
    if not at_start:
        generator = torch.Generator().manual_seed(2)
        with torch.no_grad():
            for parameter in encoding.parameters():
                parameter += 0.2 * torch.randn(parameter.shape, dtype=parameter.dtype, generator=generator)
    return encoding


@pytest.fixture(params=KINDS)
def encoding(request: pytest.FixtureRequest) -> PositionEncoding:
    """Every encoding."""
    return make(request.param)


@pytest.fixture(params=KINDS_3D)
def spatial_encoding(request: pytest.FixtureRequest) -> PositionEncoding:
    """Every encoding of three axes."""
    return make(request.param)


@pytest.fixture(params=KINDS)
def starting_encoding(request: pytest.FixtureRequest) -> PositionEncoding:
    """Every encoding, as its constructor leaves it."""
    return make(request.param, at_start=True)


@pytest.fixture
def draw() -> Callable[..., torch.Tensor]:
    """Returns normal float64 numbers of the shape that is asked for, the same in every run."""
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)
