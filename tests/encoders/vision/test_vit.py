"""The transformer over tokens with positions."""

import copy
from typing import Any

import pytest
import torch
from tests.encoders.conftest import Draw

from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.rotary import (
    CayleyString,
    CirculantString,
    NoEncoding,
    RopeMixed,
)
from stringline.encoders.vision.attention import PositionalAttention
from stringline.encoders.vision.vit import Size, VisionTransformer


def _network(encoding: PositionEncoding, **choices: Any) -> VisionTransformer:
    torch.manual_seed(0)
    network = VisionTransformer(
        encoding, encoding.heads * encoding.head_dim, depth=2, mlp_ratio=2, **choices
    ).double()
    torch.nn.init.normal_(network.unplaced_mark)
    return network


@pytest.mark.parametrize("share_layers", [True, False])
@pytest.mark.parametrize("values", [True, False])
def test_folding_does_not_change_the_outputs(
    encoding: PositionEncoding, values: bool, share_layers: bool, draw: Draw
) -> None:
    network = _network(encoding, values=values, share_layers=share_layers)
    x, r = draw(2, 5, 32), draw(2, 5, encoding.axes)
    before = network(x, r)
    network.fold_()
    torch.testing.assert_close(network(x, r), before, rtol=0, atol=1e-11)
    assert all(each.basis() is None for each in network.encodings)


def test_examples_of_a_batch_are_independent(
    spatial_encoding: PositionEncoding, draw: Draw
) -> None:
    network, x, r = _network(spatial_encoding), draw(3, 5, 32), draw(3, 5, 3)
    has_position = draw(3, 5) > -0.5
    together = network(x, r, has_position)
    for i in range(3):
        torch.testing.assert_close(
            network(x[i, None], r[i, None], has_position[i, None])[0],
            together[i],
            rtol=0,
            atol=1e-12,
        )


def test_a_token_without_a_place_has_a_mark(draw: Draw) -> None:
    network, x, r = _network(NoEncoding(2, 16, 3)), draw(1, 5, 32), draw(1, 5, 3)
    has_position = torch.tensor([[True, True, False, True, True]])
    marked = x.clone()
    marked[:, 2] += network.unplaced_mark
    torch.testing.assert_close(network(x, r, has_position), network(marked, r))
    assert not torch.allclose(network(x, r, has_position), network(x, r))


def test_registers_have_no_place_and_exchange_information(
    spatial_encoding: PositionEncoding, draw: Draw
) -> None:
    network = _network(spatial_encoding, registers=2)
    x, r, shift = draw(2, 5, 32), draw(2, 5, 3), draw(1, 1, 3)
    has_position = torch.tensor([[True, True, False, True, True], [True] * 5])
    registers, tokens = network.encode(x, r, has_position)
    assert registers.shape == (2, 2, 32)
    assert tokens.shape == (2, 5, 32)
    for got, expected in zip(
        network.encode(x, r + shift, has_position), (registers, tokens), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-9)
    network.fold_()
    for got, expected in zip(network.encode(x, r, has_position), (registers, tokens), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-11)
    assert "registers" in network.no_weight_decay()


@pytest.mark.parametrize(
    ("size", "millions"), [("tiny", 5.4), ("small", 21.4), ("base", 85.3), ("large", 302.6)]
)
def test_sizes_are_those_of_the_papers(size: Size, millions: float) -> None:
    with torch.device("meta"):
        network = VisionTransformer.of_size(size, NoEncoding)
    assert sum(p.numel() for p in network.blocks.parameters()) / 1e6 == pytest.approx(
        millions, rel=0.02
    )
    assert network.registers is not None
    assert len(network.registers) == 1


def test_layers_share_an_encoding_or_have_separate_ones() -> None:
    shared, own = (
        _network(RopeMixed(2, 16, 3, wavelengths=(0.1, 1.0)), share_layers=share)
        for share in (True, False)
    )
    assert [len(network.encodings) for network in (shared, own)] == [1, 2]
    first, second = (each.get_parameter("frequency_model.scaled") for each in own.encodings)
    assert not torch.equal(first, second)
    torch.testing.assert_close(first, shared.encodings[0].get_parameter("frequency_model.scaled"))


def test_projections_are_stored_in_a_constant_basis(draw: Draw) -> None:
    encoding = CirculantString(2, 16, 3, block=8, wavelengths=(0.04, 2.0)).double()
    kept, x, r = _network(encoding), draw(2, 5, 32), draw(2, 5, 3)
    assert kept.encodings[0].basis() is None
    assert {id(one) for one in kept.encodings[0].parameters()} == {
        id(one) for one in encoding.parameters()
    }
    multiplied = copy.deepcopy(kept)
    basis = encoding.basis()
    assert basis is not None
    for block in multiplied.blocks:
        assert isinstance(block.attention, PositionalAttention)
        block.attention.fold_(basis.mT)  # Takes the basis out of the weights again, as P P^T = I.
    multiplied.encodings = torch.nn.ModuleList([encoding])  # type: ignore[assignment]
    torch.testing.assert_close(multiplied(x, r), kept(x, r), rtol=0, atol=1e-11)
    multiplied.fold_()
    projection = "blocks.0.attention.qkv.weight"
    torch.testing.assert_close(multiplied.state_dict()[projection], kept.state_dict()[projection])


def test_a_learned_basis_is_kept() -> None:
    encoding = CayleyString(2, 16, 3, wavelengths=(0.04, 2.0))
    assert encoding.without_constant_basis() is encoding


def test_every_layer_trains_its_encoding(draw: Draw) -> None:
    network = _network(CayleyString(2, 16, 3, wavelengths=(0.5, 5.0)), share_layers=False)
    (network(draw(2, 5, 32), draw(2, 5, 3)) * draw(32)).sum().backward()
    for each in network.encodings:
        for parameter in each.parameters():
            assert parameter.grad is not None
            assert parameter.grad.abs().max() > 1e-6


def test_parameters_without_weight_decay_exist() -> None:
    network = _network(CayleyString(2, 16, 3, wavelengths=(0.5, 5.0)), share_layers=False)
    names = {name for name, _ in network.named_parameters()}
    assert network.no_weight_decay() <= names
    assert network.no_weight_decay() == {
        name for name in names if name.startswith("encodings.") or name == "unplaced_mark"
    }


def test_outputs_follow_the_parameters_of_the_encoding(draw: Draw) -> None:
    network = _network(CayleyString(2, 16, 3, wavelengths=(0.5, 5.0))).eval()
    x, r = draw(2, 5, 32), draw(2, 5, 3)
    before = network(x, r)
    with torch.no_grad():
        for parameter in network.encodings[0].parameters():
            parameter += 0.1 * draw(*parameter.shape)
    assert (network(x, r) - before).abs().max() > 1e-3


def test_bfloat16_stays_near_float32(spatial_encoding: PositionEncoding, draw: Draw) -> None:
    network = _network(spatial_encoding).float()
    x = draw(2, 5, 32).float()
    r = draw(2, 5, 3).float()
    exact = network(x, r)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = network(x, r)
    torch.testing.assert_close(rounded.float(), exact, rtol=0, atol=0.1)
    rounded.float().square().sum().backward()
    assert all(
        p.grad is not None and p.grad.isfinite().all() for p in network.encodings[0].parameters()
    )


def test_relative_values_learn_the_offset_of_another_token() -> None:
    """Two equal tokens: only relative values contain the distance of the other."""
    assert _error_of_learning_an_offset(values=True) < 0.02
    assert _error_of_learning_an_offset(values=False) > 0.2  # The variance of the offset is 1/3.


def _error_of_learning_an_offset(*, values: bool) -> float:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    network = VisionTransformer(
        RopeMixed(2, 16, 1, wavelengths=(1.0, 8.0)), 32, depth=1, values=values
    )
    head = torch.nn.Linear(32, 1)
    optimiser = torch.optim.AdamW([*network.parameters(), *head.parameters()], lr=1e-2)
    loss = torch.tensor(torch.inf)
    for _ in range(60):
        offset = 2 * torch.rand(64, generator=generator) - 1
        anywhere = 10 * torch.rand(64, generator=generator)
        r = torch.stack((anywhere, anywhere + offset), dim=1).unsqueeze(-1)
        loss = (head(network(torch.ones(64, 2, 32), r))[:, 0, 0] - offset).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return loss.item()


def test_an_invalid_width_is_rejected() -> None:
    with pytest.raises(ValueError, match="dim is 48; allowed: 32"):
        VisionTransformer(NoEncoding(2, 16, 3), 48)
