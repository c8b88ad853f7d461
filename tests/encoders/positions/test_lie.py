"""LieRE against its definition."""

import pytest
import torch
from tests.encoders.conftest import Draw

from stringline.encoders.positions.encoding import MatrixPlaces
from stringline.encoders.positions.lie import LieRE


@pytest.mark.parametrize("block", [2, 4, 16])
@pytest.mark.parametrize("share_heads", [True, False])
def test_rotations_are_the_exponential_of_the_sum_of_generators(
    block: int, share_heads: bool, draw: Draw
) -> None:
    encoding = LieRE(2, 16, 3, block=block, share_heads=share_heads).double()
    r = draw(2, 4, 3) / 4
    for head, generators in enumerate(encoding.generators().detach()):
        dense = torch.stack([torch.block_diag(*blocks) for blocks in generators])
        assert torch.equal(dense, -dense.mT)
        expected = torch.linalg.matrix_exp(torch.einsum("bnk,kij->bnij", r, dense).contiguous())
        torch.testing.assert_close(encoding.rotation(r)[:, head], expected, rtol=0, atol=1e-10)


def test_the_initial_values_are_those_of_the_paper() -> None:
    entries = LieRE(12, 64, 2, block=64).entries.detach()
    assert entries.shape == (1, 2, 1, 2016)
    assert 0 <= entries.min() < 0.05
    assert 6.2 < entries.max() <= 6.2832


def test_equal_grids_share_one_exponential(monkeypatch: pytest.MonkeyPatch, draw: Draw) -> None:
    encoding = LieRE(2, 16, 2, block=8).double()
    grid = (
        torch.cartesian_prod(torch.linspace(0, 1, 3), torch.linspace(0, 1, 4))
        .double()
        .expand(5, -1, -1)
    )
    computed: list[int] = []
    exponential = encoding._exponential
    monkeypatch.setattr(
        encoding,
        "_exponential",
        lambda r: computed.append(r.shape[0] * r.shape[1]) or exponential(r),
    )
    places = encoding.prepare(grid)
    assert computed == [12]
    assert isinstance(places, MatrixPlaces)
    torch.testing.assert_close(places.rotations, exponential(grid), rtol=0, atol=1e-14)


def test_gradients_reach_the_generators_through_shared_places(draw: Draw) -> None:
    encoding, x = LieRE(2, 16, 2, block=8, uniform=1.0).double(), draw(2, 2, 3, 16)
    r = draw(1, 3, 2).expand(2, -1, -1)
    gradients = []
    for coordinates in (r, r.clone().requires_grad_()):  # With and without sharing.
        encoding.zero_grad()
        encoding.rotate(x, encoding.prepare(coordinates)).sin().sum().backward()
        assert encoding.entries.grad is not None
        gradients.append(encoding.entries.grad.clone())
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(ValueError, match="block is 5; allowed: divisors of head_dim 16 from 2"):
        LieRE(2, 16, 3, block=5)
    with pytest.raises(ValueError, match=r"uniform must be a number above 0 \(got 0.0\)"):
        LieRE(2, 16, 3, uniform=0.0)
