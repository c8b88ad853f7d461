"""Linear attention with places: RoFormer's form."""

from functools import partial

import pytest
import torch
from tests.encoders.conftest import Draw

from stringline import CayleyString, LinearAttention, PositionEncoding, RopeMixed
from stringline.encoders.vision.vit import VisionTransformer


@pytest.mark.parametrize("values", [True, False])
def test_outputs_equal_the_formula_pair_by_pair(
    spatial_encoding: PositionEncoding, values: bool, draw: Draw
) -> None:
    torch.manual_seed(0)
    encoding, layer = spatial_encoding, LinearAttention(32, 2, values=values).double()
    x, r = draw(2, 5, 32), draw(2, 5, 3)
    q, k, v = layer.qkv(x).unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4)
    q, k = q.relu() + 1e-6, k.relu() + 1e-6
    places = encoding.prepare(r)
    factor = encoding.logit_factor(places, places)
    outputs = []
    for i in range(5):
        between = encoding.rotation(r[:, i, None]).mT @ encoding.rotation(r)
        turned_k, turned_v = ((between @ each.unsqueeze(-1)).squeeze(-1) for each in (k, v))
        weights = (q[:, :, i, None] * turned_k).sum(-1)
        weights = weights if factor is None else weights * factor[:, :, i]
        weights = weights / (q[:, :, i, None] * k).sum(-1).sum(-1, keepdim=True)
        outputs.append((weights.unsqueeze(-1) * (turned_v if values else v)).sum(dim=2).flatten(1))
    torch.testing.assert_close(
        layer(x, places), layer.out(torch.stack(outputs, dim=1)), rtol=0, atol=1e-11
    )


def test_a_common_shift_has_no_effect(spatial_encoding: PositionEncoding, draw: Draw) -> None:
    torch.manual_seed(0)
    network = VisionTransformer(spatial_encoding, 32, depth=2, attention=LinearAttention).double()
    x, r = draw(2, 5, 32), draw(2, 5, 3)
    torch.testing.assert_close(network(x, r + 2.0), network(x, r), rtol=0, atol=1e-9)


def test_the_denominator_stays_positive_for_zero_features() -> None:
    layer = LinearAttention(16, 2)
    torch.nn.init.constant_(layer.qkv.bias, -100.0)
    encoding = CayleyString(2, 8, 3, wavelengths=(0.1, 1.0))
    assert layer(torch.zeros(1, 4, 16), encoding.prepare(torch.rand(1, 4, 3))).isfinite().all()


def test_the_basis_adds_capacity_and_is_not_folded() -> None:
    make = partial(VisionTransformer, dim=32, depth=1, attention=LinearAttention)
    network = make(CayleyString(2, 16, 3, wavelengths=(0.1, 1.0)))
    with pytest.raises(ValueError, match="a ReLU separates projection and rotation"):
        network.fold_()
    make(RopeMixed(2, 16, 3, wavelengths=(0.1, 1.0))).fold_()


def test_an_invalid_width_is_rejected() -> None:
    with pytest.raises(ValueError, match="dim is 36 with 4 heads; allowed: multiples of 8"):
        LinearAttention(36, 4)
