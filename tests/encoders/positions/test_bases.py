"""Orthogonal bases: the properties of each map from free parameters."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from tests.encoders.conftest import BASES, Draw

from stringline import (
    ButterflyGivens,
    CayleyBasis,
    ExponentialBasis,
    FourierBasis,
    GivensBasis,
    HouseholderBasis,
)
from stringline.encoders.positions.bases import Basis, BasisFactory, spread

LEARNED = {
    name: factory for name, factory in BASES.items() if factory is not None and name != "fourier"
}


def _moved(factory: BasisFactory, draw: Draw, size: int = 16, by: float = 1.0) -> Basis:
    basis = factory(sets=2, size=size).double()
    with torch.no_grad():
        for parameter in basis.parameters():
            parameter += by * draw(*parameter.shape)
    return basis


@pytest.mark.parametrize("factory", LEARNED.values(), ids=LEARNED)
@pytest.mark.parametrize("by", [0.1, 1.0, 30.0])
def test_bases_are_rotations_for_all_parameters(
    factory: BasisFactory, by: float, draw: Draw
) -> None:
    basis = _moved(factory, draw, by=by)()
    identity = torch.eye(16, dtype=torch.float64).expand(2, -1, -1)
    torch.testing.assert_close(basis @ basis.mT, identity, rtol=0, atol=1e-12)
    assert (
        torch.linalg.det(basis).min() > 0 or factory is LEARNED["cayley_blocks"]
    )  # The order of columns may be odd there.
    assert (basis[0] - basis[1]).abs().max() > 1e-3


@pytest.mark.parametrize("factory", LEARNED.values(), ids=LEARNED)
def test_bases_start_at_the_identity_up_to_the_order_of_columns(factory: BasisFactory) -> None:
    basis = factory(sets=2, size=16).double()()
    torch.testing.assert_close(
        basis.sort(dim=-1).values[..., -1], torch.ones(2, 16, dtype=torch.float64)
    )
    if factory is not LEARNED["cayley_blocks"]:
        torch.testing.assert_close(basis, torch.eye(16, dtype=torch.float64).expand(2, -1, -1))


@pytest.mark.parametrize(
    ("factory", "entries"),
    [(CayleyBasis, 120), (ExponentialBasis, 120), (GivensBasis, 120), (ButterflyGivens, 32)],
)
def test_each_angle_changes_the_basis(factory: Callable[..., Basis], entries: int) -> None:
    basis = factory(sets=1, size=16).double()
    (parameter,) = basis.parameters()
    assert parameter.numel() == entries
    jacobian = torch.autograd.functional.jacobian(
        lambda values: torch.func.functional_call(
            basis, {next(iter(dict(basis.named_parameters()))): values}, ()
        ),
        parameter,
    )
    assert torch.linalg.matrix_rank(jacobian.reshape(256, entries)) == entries


def test_givens_rotates_every_pair_once() -> None:
    basis = GivensBasis(sets=1, size=8)
    pairs = {
        tuple(sorted((channel, int(partner))))
        for row in basis.partner
        for channel, partner in enumerate(row)
    }
    assert pairs == {(a, b) for b in range(8) for a in range(b)}


def test_one_angle_of_givens_is_a_plane_rotation() -> None:
    basis = GivensBasis(sets=1, size=4).double()
    with torch.no_grad():
        basis.angles[0, 1, 0] = 0.3
    rotation = basis().detach()[0]
    channel = int((rotation.diagonal() < 0.999).nonzero()[0])
    partner = int(basis.partner[1, channel])
    cos = torch.tensor(0.3, dtype=torch.float64).cos()
    sin = torch.tensor(0.3, dtype=torch.float64).sin()
    torch.testing.assert_close(rotation.diagonal()[[channel, partner]], cos.expand(2))
    torch.testing.assert_close(rotation[channel, partner].abs(), sin)
    torch.testing.assert_close(rotation[channel, partner], -rotation[partner, channel])


def test_a_band_leaves_the_rest_of_s_at_zero() -> None:
    basis = CayleyBasis(sets=1, size=16, bandwidth=2)
    assert sum(p.numel() for p in basis.parameters()) == 15 + 14
    assert ((basis.columns - basis.rows) <= 2).all()


def test_blocks_act_on_neighbouring_channels(draw: Draw) -> None:
    blocks = draw(1, 3, 4, 4)
    dense = spread(blocks)[0]
    pairs = dense.unflatten(1, (2, 3, 2)).transpose(0, 1)  # (half, row, block, plane)
    for block in range(3):
        rows = slice(4 * block, 4 * block + 4)
        torch.testing.assert_close(
            torch.cat((pairs[0, rows, block], pairs[1, rows, block]), dim=1), blocks[0, block]
        )
    assert (dense != 0).sum() == 3 * 16


def test_cayley_has_no_singular_point(draw: Draw) -> None:
    assert _moved(CayleyBasis, draw, by=1e6)().isfinite().all()


def test_bases_stay_precise_under_autocast(draw: Draw) -> None:
    for factory in LEARNED.values():
        basis = _moved(factory, draw).float()
        with torch.autocast("cpu", torch.bfloat16):
            rounded = basis()
        torch.testing.assert_close(rounded, basis(), rtol=0, atol=0)
        assert basis.bfloat16()().dtype == torch.float32


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CayleyBasis(1, 16, block=6), "block is 6; allowed: even divisors of head_dim 16"),
        (lambda: CayleyBasis(1, 16, bandwidth=16), "bandwidth is 16; allowed: 1 to 15"),
        (lambda: ButterflyGivens(1, 24), "head_dim is 24; allowed for a butterfly: powers of two"),
        (
            lambda: HouseholderBasis(1, 16, reflections=3),
            "reflections is 3; allowed: even numbers from 2",
        ),
        (
            partial(FourierBasis, 1, 16, block=12),
            "block is 12; allowed: even divisors of head_dim 16",
        ),
    ],
)
def test_invalid_settings_are_rejected(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
