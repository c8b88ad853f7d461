"""Casting, saving, misuse and extension of encodings."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.encoders.conftest import KINDS, Draw, make
from torch import Tensor

from stringline.encoders.positions.bases import CayleyBasis
from stringline.encoders.positions.encoding import centroid
from stringline.encoders.positions.lie import ComRopeAp, ComRopeLd, LieRE
from stringline.encoders.positions.rotary import CayleyString, RopeMixed, Rotary
from stringline.encoders.training.trainer import Trainer
from stringline.encoders.vision.attention import PositionalAttention
from stringline.encoders.vision.vit import VisionTransformer


class OwnRotary(Rotary):
    """An encoding of a user: frequencies and a basis only."""

    def __init__(self) -> None:
        super().__init__(2, 16, 3)
        self.basis_model = CayleyBasis(1, 16)
        torch.nn.init.normal_(self.basis_model.skew)

    def frequencies(self) -> Tensor:
        return torch.linspace(-3, 3, 24, dtype=torch.float64).reshape(1, 3, 8)

    def basis_blocks(self) -> Tensor:
        return self.basis_model.blocks()

    def reset_parameters(self, seed: int) -> None:
        self.basis_model.reset_parameters(seed)


def test_a_custom_encoding_is_defined_by_its_parts(draw: Draw) -> None:
    encoding = OwnRotary().double()
    x, r = draw(1, 2, 4, 16), draw(1, 4, 3)
    q = encoding.rotate(x, encoding.prepare(r))
    turned = (encoding.rotation(r) @ x.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(q @ q.mT, turned @ turned.mT, rtol=0, atol=1e-11)
    layer = PositionalAttention(32, 2).double()
    tokens = draw(1, 4, 32)
    before = layer(tokens, encoding.prepare(r))
    layer.fold_(encoding.basis())
    torch.testing.assert_close(
        layer(tokens, encoding.folded().prepare(r)), before, rtol=0, atol=1e-11
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_optimiser_has_no_weight_decay_for_encodings(kind: str) -> None:
    network = VisionTransformer(make(kind), 32, depth=2, share_layers=False)
    decayed, _ = Trainer(steps=1, batch_size=1, weight_decay=0.1).parameter_groups(network)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    decaying = {names[id(parameter)] for parameter in decayed["params"]}  # type: ignore[attr-defined]
    assert decaying
    assert not {name for name in decaying if name.startswith("encodings.")}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("folded", [False, True])
def test_encodings_are_restored_from_files(
    kind: str, folded: bool, draw: Draw, tmp_path: Path
) -> None:
    written, read = (make(kind, at_start=start).float() for start in (False, True))
    if folded:
        written, read = written.folded(), read.folded()
    save_file(written.state_dict(), tmp_path / "encoding.safetensors")
    read.load_state_dict(load_file(tmp_path / "encoding.safetensors"))
    r = draw(1, 5, written.axes).float()
    torch.testing.assert_close(read.rotation(r), written.rotation(r), rtol=0, atol=0)


def test_frequencies_keep_their_meaning_in_a_network_of_another_unit() -> None:
    metres = RopeMixed(2, 16, 3, wavelengths=(0.04, 2.0))
    other = RopeMixed(2, 16, 3, wavelengths=(4.0, 200.0))
    other.load_state_dict(metres.state_dict())
    torch.testing.assert_close(other.frequencies(), metres.frequencies())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "kind", ["rope", "mixed", "circulant_8", "comrope_ld", "liere_8", "tensor_product", "learned"]
)
def test_casting_a_network_keeps_the_precision_of_places(
    kind: str, dtype: torch.dtype, draw: Draw
) -> None:
    network = VisionTransformer(make(kind).float(), 32, depth=1)
    (encoding,) = network.encodings
    x, r = draw(1, encoding.heads, 5, 16).float(), draw(1, 5, encoding.axes).float()
    before = encoding.rotate(x, encoding.prepare(r))
    network.to(dtype)
    assert network.norm.weight.dtype == dtype
    torch.testing.assert_close(encoding.rotate(x, encoding.prepare(r)), before, rtol=0, atol=0)


@pytest.mark.parametrize("without_position", ["queries", "keys"])
def test_cross_attention_is_invariant_if_one_side_has_no_place(
    without_position: str, draw: Draw
) -> None:
    encoding, layer = make("cayley"), PositionalAttention(32, 2).double()
    x, context, r, shift = draw(1, 3, 32), draw(1, 4, 32), draw(1, 4, 3), draw(1, 1, 3)

    def attended(r: Tensor) -> Tensor:
        unplaced = encoding.prepare(
            torch.zeros(1, 3, 3).double(),
            torch.zeros(1, 3, dtype=torch.bool),
            fallback_position=centroid(r),
        )
        placed = encoding.prepare(r)
        if without_position == "queries":
            return layer(x, unplaced, context, placed)
        return layer(context, placed, x, unplaced)

    torch.testing.assert_close(attended(r + shift), attended(r), rtol=0, atol=1e-9)
    assert (attended(1.3 * r) - attended(r)).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("batch", "tokens"), [(0, 4), (2, 0), (2, 1)])
def test_empty_inputs_are_valid(kind: str, batch: int, tokens: int) -> None:
    encoding = make(kind)
    x = torch.zeros(batch, encoding.heads, tokens, encoding.head_dim, dtype=torch.float64)
    places = encoding.prepare(torch.zeros(batch, tokens, encoding.axes, dtype=torch.float64))
    assert encoding.rotate_inverse(encoding.rotate(x, places), places).shape == x.shape


@pytest.mark.parametrize("kind", KINDS)
def test_keys_may_have_fewer_heads_if_heads_share_frequencies_and_basis(kind: str) -> None:
    """As in grouped-query attention."""
    encoding = make(kind)
    x = torch.randn(2, encoding.heads, 4, encoding.head_dim, dtype=torch.float64)
    places = encoding.prepare(torch.randn(2, 4, encoding.axes, dtype=torch.float64))
    basis = encoding.basis()
    if encoding.sets == 1 and (basis is None or len(basis) == 1):
        few = encoding.rotate(x[:, :1], places)
        torch.testing.assert_close(few, encoding.rotate(x, places)[:, :1], rtol=0, atol=1e-12)
        back = encoding.rotate_inverse(few, places)
        torch.testing.assert_close(back, x[:, :1], rtol=0, atol=1e-12)
    else:
        with pytest.raises(ValueError, match=rf"allowed: \(B, {encoding.heads} heads, N"):
            encoding.rotate(x[:, :1], places)


@pytest.mark.parametrize("kind", KINDS)
def test_encodings_are_built_on_the_meta_device_and_get_their_parameters_later(kind: str) -> None:
    with torch.device("meta"):
        empty = KINDS[kind]()
    assert all(parameter.is_meta for parameter in empty.parameters())
    full = KINDS[kind]()
    empty.load_state_dict(full.state_dict(), assign=True)
    assert not any(tensor.is_meta for tensor in (*empty.parameters(), *empty.buffers()))
    r = torch.randn(1, 3, full.axes)
    assert torch.equal(empty.rotation(r), full.rotation(r))


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda e, p: e.rotate(torch.zeros(2, 5, 16), p), r"shape \(2, 5, 16\)"),
        (lambda e, p: e.rotate(torch.zeros(2, 2, 5, 32), p), "16 channels"),
        (lambda e, p: e.rotate(torch.zeros(2, 3, 5, 16), p), "2 heads"),
        (lambda e, p: e.rotate(torch.zeros(2, 2, 1, 16), p), r"Tokens \(2, 2, 1, 16\) at 5 places"),
        (lambda e, p: e.rotate_inverse(torch.zeros(2, 2, 5, 8), p), "16 channels"),
    ],
)
def test_invalid_tokens_are_rejected(misuse: Callable[..., Tensor], message: str) -> None:
    encoding = RopeMixed(2, 16, 3, wavelengths=(0.1, 1.0), share_heads=False)
    with pytest.raises(ValueError, match=message):
        misuse(encoding, encoding.prepare(torch.zeros(2, 5, 3)))


def test_axes_without_a_block_are_rejected() -> None:
    with pytest.raises(ValueError, match="3 axes with 2 blocks"):
        ComRopeAp(2, 16, 3, block=8)


def test_draws_of_neighbouring_seeds_are_independent() -> None:
    first, second = (ComRopeLd(2, 16, 2, block=4, seed=seed) for seed in (0, 1))
    drawn = [
        {round(float(x), 5) for p in each.parameters() for x in p.detach().flatten() if x != 0}
        for each in (first, second)
    ]
    assert not drawn[0] & drawn[1]
    network = VisionTransformer(
        CayleyString(2, 16, 3, wavelengths=(0.1, 1.0), seed=1), 32, depth=3, share_layers=False
    )
    starts = [each.state_dict()["frequency_model.scaled"] for each in network.encodings]
    assert not any(torch.equal(a, b) for i, a in enumerate(starts) for b in starts[:i])


def test_absolute_encodings_are_not_built_for_every_layer() -> None:
    network = VisionTransformer(make("learned"), 32, depth=3, share_layers=False)
    assert len(network.encodings) == 1
    assert isinstance(make("liere_8"), LieRE)
    assert len(VisionTransformer(make("liere_8"), 32, depth=3, share_layers=False).encodings) == 3
