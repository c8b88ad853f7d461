"""Integer frequencies per radian, with which a full turn has no effect."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from stringline import CayleyBasis, MixedFrequencies, RotaryEncoding
from stringline.encoders.coordinates.canonical import WholeOnCircle

MIXED = partial(MixedFrequencies, wavelengths=(0.2, 6.0))


def _encoding() -> RotaryEncoding:
    frequencies = partial(WholeOnCircle, frequencies=MIXED, angles=[1])
    return RotaryEncoding(
        2, 16, 3, frequencies=frequencies, basis=CayleyBasis, share_heads=False
    ).double()


def test_only_the_angles_are_rounded() -> None:
    made = WholeOnCircle(2, 3, 8, frequencies=MIXED, angles=[1])
    omega, under = made(), made.frequencies()
    assert torch.equal(omega[:, 1], under[:, 1].round())
    assert torch.equal(omega[:, [0, 2]], under[:, [0, 2]])
    assert (omega[:, 1] != under[:, 1]).all()


def test_a_full_turn_of_one_token_has_no_effect() -> None:
    coordinates = torch.randn(
        1, 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    turned = coordinates.clone()
    turned[0, 2, 1] += 2 * math.pi
    turned[0, 4, 1] -= 4 * math.pi
    whole, free = _encoding(), RotaryEncoding(2, 16, 3, frequencies=MIXED).double()
    torch.testing.assert_close(
        whole.rotation(turned), whole.rotation(coordinates), rtol=0, atol=1e-12
    )
    assert (free.rotation(turned) - free.rotation(coordinates)).abs().max() > 0.5


def test_gradients_pass_through_the_rounding() -> None:
    made = WholeOnCircle(1, 2, 4, frequencies=MIXED)
    weight = torch.randn(1, 2, 4)
    (made() * weight).sum().backward()
    expected = torch.autograd.grad(
        (made.frequencies() * weight).sum(), list(made.frequencies.parameters())
    )
    for parameter, gradient in zip(made.parameters(), expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradient)


def test_initial_values_are_those_of_the_wrapped_frequencies() -> None:
    made = WholeOnCircle(1, 3, 8, frequencies=MIXED)
    before: Tensor = made()
    made.reset_parameters(7)
    assert not torch.equal(made(), before)
    made.reset_parameters(0)
    assert torch.equal(made(), before)
    made.zero_()
    assert made().abs().max() == 0


@pytest.mark.parametrize("angles", [[], [3], [-1]])
def test_angles_that_are_not_axes_are_rejected(angles: list[int]) -> None:
    with pytest.raises(ValueError, match="angles are .*at least one of the axes 0 to 2"):
        WholeOnCircle(1, 3, 8, frequencies=MIXED, angles=angles)
