"""Tensor-product STRING: the factor, the long tokens, and that they agree."""

import pytest
import torch
from tests.encoders.conftest import Draw

from stringline.encoders.positions.rotary import TensorProductString


@pytest.mark.parametrize("share_heads", [True, False])
def test_the_factor_is_the_mean_of_cosines(share_heads: bool, draw: Draw) -> None:
    encoding = TensorProductString(
        2, 16, 3, features=5, wavelengths=(0.5, 2.0), share_heads=share_heads
    ).double()
    a, b = draw(2, 4, 3), draw(2, 6, 3)
    factor = encoding.logit_factor(encoding.prepare(a), encoding.prepare(b))
    between = a[:, :, None] - b[:, None]
    expected = torch.einsum("bijk,hkm->bhijm", between, encoding.frequencies()).cos().mean(dim=-1)
    torch.testing.assert_close(factor, expected, rtol=0, atol=1e-12)
    same = encoding.logit_factor(encoding.prepare(a), encoding.prepare(a))
    assert same is not None
    torch.testing.assert_close(same.diagonal(dim1=-2, dim2=-1), torch.ones_like(same[..., 0]))


def test_long_tokens_have_the_products_of_the_factored_logits(draw: Draw) -> None:
    encoding = TensorProductString(2, 16, 3, features=5, wavelengths=(0.5, 2.0)).double()
    q, k, a, b = draw(2, 2, 4, 16), draw(2, 2, 6, 16), draw(2, 4, 3), draw(2, 6, 3)
    places_q, places_k = encoding.prepare(a), encoding.prepare(b)
    factor = encoding.logit_factor(places_q, places_k)
    assert factor is not None
    long_q, long_k = places_q.expand(q), places_k.expand(k)
    assert long_q.shape == (2, 2, 4, 10 * 16)
    torch.testing.assert_close(long_q @ long_k.mT, (q @ k.mT) * factor, rtol=0, atol=1e-12)


def test_the_factor_stays_precise_under_autocast(draw: Draw) -> None:
    encoding = TensorProductString(2, 16, 3, wavelengths=(0.5, 2.0))
    places = encoding.prepare(draw(1, 4, 3).float())
    with torch.autocast("cpu", torch.bfloat16):
        rounded = encoding.logit_factor(places, places)
    torch.testing.assert_close(rounded, encoding.logit_factor(places, places), rtol=0, atol=0)
