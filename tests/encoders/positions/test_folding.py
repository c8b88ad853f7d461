"""Folding of bases into projections."""

import pytest
import torch
from tests.encoders.conftest import Draw
from torch import Tensor

from stringline import CayleyString, PositionEncoding


def test_folding_is_exact(encoding: PositionEncoding, draw: Draw) -> None:
    dim = encoding.heads * encoding.head_dim
    x, r = draw(2, 5, dim), draw(2, 5, encoding.axes)
    weights, biases = [draw(dim, dim) for _ in range(4)], [draw(dim) for _ in range(3)]

    def attention(encoding: PositionEncoding) -> Tensor:
        q, k, v = (
            (x @ weight.mT + bias).unflatten(-1, (encoding.heads, -1)).transpose(1, 2)
            for weight, bias in zip(weights[:3], biases, strict=True)
        )
        places = encoding.prepare(r)
        q, k, v = (encoding.rotate(each, places) for each in (q, k, v))
        y = encoding.rotate_inverse(torch.softmax(q @ k.mT / 40, dim=-1) @ v, places)
        return y.transpose(1, 2).flatten(2) @ weights[3].mT

    before = attention(encoding)
    encoding.fold_(*weights)
    encoding.fold_(*biases)
    assert encoding.folded().basis() is None
    torch.testing.assert_close(attention(encoding.folded()), before, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("norm", "message"),
    [
        (torch.nn.LayerNorm(16), "LayerNorm"),
        (torch.nn.LayerNorm(16, elementwise_affine=False), "LayerNorm"),
        (torch.nn.RMSNorm(16), "RMSNorm"),
    ],
)
def test_folding_through_a_norm_is_rejected(norm: torch.nn.Module, message: str) -> None:
    encoding, weight = CayleyString(2, 16, 3, wavelengths=(0.1, 1.0)), torch.ones(32, 32)
    with pytest.raises(
        ValueError,
        match=f"{message}.*does not commute with a basis.*allowed: no normalisation, or an RMSNorm",
    ):
        encoding.fold_(weight, weight, norm=norm)
    assert torch.equal(weight, torch.ones(32, 32))
    encoding.fold_(weight, weight, norm=torch.nn.RMSNorm(16, elementwise_affine=False))
