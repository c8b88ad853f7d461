"""Uncertain places: rotations are the expected ones, which are damped."""

import pytest
import torch
from tests.encoders.conftest import Draw, make, rotary
from torch import Tensor

from stringline.encoders.positions.composite import with_time
from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.rotary import NoEncoding, Rotary
from stringline.encoders.vision.vit import VisionTransformer

KINDS = ("mixed_per_head", "cayley", "circulant_8", "comrope_ld")


@pytest.mark.parametrize("kind", KINDS)
def test_the_rotation_is_the_mean_over_places(kind: str, draw: Draw) -> None:
    """Agrees with a Monte Carlo mean within four of its standard errors."""
    encoding = rotary(kind)
    x = draw(1, encoding.heads, 1, encoding.head_dim)
    r, spread = draw(1, 1, encoding.axes), 0.1 * draw(1, 1, encoding.axes)
    samples = 20_000
    along = torch.randn(samples, 1, 1, dtype=torch.float64, generator=torch.manual_seed(3))
    drawn = encoding.rotate(
        x.expand(samples, -1, -1, -1), encoding.prepare(r + along * spread)
    ).detach()
    expected = encoding.rotate(x, encoding.prepare(r, spread=spread)).detach()
    error = drawn.std(dim=0) / samples**0.5
    assert ((drawn.mean(dim=0) - expected[0]).abs() <= 4.5 * error + 1e-12).all()
    exact = encoding.rotate(x, encoding.prepare(r)).detach()
    assert (expected - exact).abs().max() > 0.05  # The spread has an effect.


def test_no_spread_and_a_spread_of_zero_agree(rotary_encoding: Rotary, draw: Draw) -> None:
    x = draw(2, rotary_encoding.heads, 3, rotary_encoding.head_dim)
    r = draw(2, 3, rotary_encoding.axes)
    exact = rotary_encoding.rotate(x, rotary_encoding.prepare(r))
    zero = rotary_encoding.rotate(x, rotary_encoding.prepare(r, spread=torch.zeros_like(r)))
    assert torch.equal(exact, zero)


@pytest.mark.parametrize("kind", KINDS)
def test_the_way_back_is_the_transpose(kind: str, draw: Draw) -> None:
    """So a relative value passes through the expected rotation of the difference."""
    encoding = rotary(kind)
    x, y = draw(2, 1, encoding.heads, 4, encoding.head_dim)
    r = draw(1, 4, encoding.axes)
    places = encoding.prepare(r, spread=0.2 * draw(1, 4, encoding.axes))
    there = (encoding.rotate(x, places) * y).sum(dim=-1)
    torch.testing.assert_close(there, (x * encoding.rotate_inverse(y, places)).sum(dim=-1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_common_shift_has_no_effect(kind: str, draw: Draw) -> None:
    torch.manual_seed(0)
    network = VisionTransformer(rotary(kind), 32, depth=2, registers=1).double()
    x, r, spread = draw(2, 5, 32), draw(2, 5, 3), 0.2 * draw(2, 5, 3)
    known = torch.tensor([[True, True, True, False, True]]).expand(2, -1)
    here = network(x, r, known, spread=spread)
    torch.testing.assert_close(network(x, r + 7.0, known, spread=spread), here)
    assert (network(x, r, known) - here).abs().max() > 1e-3


def test_the_spread_of_a_token_without_a_position_is_ignored(draw: Draw) -> None:
    for encoding in (rotary("cayley"), with_time(rotary("cayley"), (0.1, 2.0)).double()):
        r, spread = draw(1, 3, encoding.axes), 0.1 * draw(1, 3, encoding.axes)
        known = torch.tensor([[True, False, True]])
        x = draw(1, encoding.heads, 3, encoding.head_dim)
        expected = encoding.rotate(x, encoding.prepare(r, known, spread=spread))
        spread[0, 1] = torch.nan
        assert torch.equal(encoding.rotate(x, encoding.prepare(r, known, spread=spread)), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_agree_with_finite_differences(kind: str, draw: Draw) -> None:
    encoding = rotary(kind)
    x = draw(1, encoding.heads, 2, encoding.head_dim).requires_grad_()
    r = draw(1, 2, encoding.axes).requires_grad_()
    spread = (0.3 * draw(1, 2, encoding.axes)).requires_grad_()

    def rotated(x: Tensor, r: Tensor, spread: Tensor) -> Tensor:
        return encoding.rotate(x, encoding.prepare(r, spread=spread))

    assert torch.autograd.gradcheck(rotated, (x, r, spread), fast_mode=True)


@pytest.mark.parametrize("kind", ["liere_8", "tensor_product", "sinusoidal", "learned"])
def test_encodings_without_planes_refuse_a_spread(kind: str, draw: Draw) -> None:
    encoding: PositionEncoding = make(kind)
    r = draw(1, 2, encoding.axes)
    with pytest.raises(
        ValueError, match=f"{type(encoding).__name__} got a spread .*; allowed: enc"
    ):
        encoding.prepare(r, spread=0.1 * r)


def test_bad_spreads_are_reported(draw: Draw) -> None:
    encoding, r = rotary("cayley"), draw(1, 2, 3)
    with pytest.raises(ValueError, match=r"spread is \(1, 2\) torch.float64; allowed: \(1, 2, 3\)"):
        encoding.prepare(r, spread=r[..., 0])
    with pytest.raises(ValueError, match="spread that is NaN or infinite"):
        encoding.prepare(r, spread=torch.full_like(r, torch.inf))
    assert NoEncoding(2, 16, 3).prepare(r, spread=r).embedding is None
