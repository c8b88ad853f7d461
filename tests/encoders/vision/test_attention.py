"""Attention over tokens with positions: its formula with dense matrices, and its properties."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from tests.encoders.conftest import Draw
from torch import Tensor

from stringline.encoders.positions.encoding import Places, PositionEncoding
from stringline.encoders.positions.rotary import RopeMixed
from stringline.encoders.vision.attention import LinearAttention, PositionalAttention, attend


def _attention(
    encoding: PositionEncoding,
    *,
    values: bool,
    qk_norm: Callable[[int], torch.nn.Module] | None = None,
) -> PositionalAttention:
    torch.manual_seed(0)
    dim = encoding.heads * encoding.head_dim
    layer = PositionalAttention(dim, encoding.heads, values=values, qk_norm=qk_norm).double()
    torch.nn.init.normal_(layer.qkv.bias)
    torch.nn.init.normal_(layer.out.bias)
    return layer


def _by_dense_matrices(
    layer: PositionalAttention,
    encoding: PositionEncoding,
    x: Tensor,
    r: Tensor,
    context: Tensor,
    r_context: Tensor,
) -> Tensor:
    """Returns sum_j a_ij R(r_j - r_i) v_j, a_ij = softmax_j(q_i^T R(r_j - r_i) k_j / sqrt(d))."""
    dim, heads = x.shape[-1], encoding.heads

    def project(tokens: Tensor, part: int) -> Tensor:
        rows = slice(part * dim, (part + 1) * dim)
        projected = tokens @ layer.qkv.weight[rows].mT + layer.qkv.bias[rows]
        return projected.unflatten(-1, (heads, -1)).transpose(1, 2)

    q, k, v = layer.q_norm(project(x, 0)), layer.k_norm(project(context, 1)), project(context, 2)
    factor = encoding.logit_factor(encoding.prepare(r), encoding.prepare(r_context))
    outputs = []
    for i in range(x.shape[1]):
        between = encoding.rotation(r[:, i, None]).mT @ encoding.rotation(r_context)
        turned_k, turned_v = ((between @ each.unsqueeze(-1)).squeeze(-1) for each in (k, v))
        logits = (q[:, :, i, None] * turned_k).sum(-1) / math.sqrt(encoding.head_dim)
        logits = logits if factor is None else logits * factor[:, :, i]
        mixed = torch.softmax(logits, dim=-1).unsqueeze(-1) * (turned_v if layer.values else v)
        outputs.append(mixed.sum(dim=2).flatten(1))
    return torch.stack(outputs, dim=1) @ layer.out.weight.mT + layer.out.bias


@pytest.mark.parametrize("values", [True, False])
def test_self_attention_equals_the_formula(
    encoding: PositionEncoding, values: bool, draw: Draw
) -> None:
    layer, x, r = _attention(encoding, values=values), draw(2, 4, 32), draw(2, 4, encoding.axes)
    expected = _by_dense_matrices(layer, encoding, x, r, x, r)
    torch.testing.assert_close(layer(x, encoding.prepare(r)), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("values", [True, False])
def test_cross_attention_equals_the_formula(
    encoding: PositionEncoding, values: bool, draw: Draw
) -> None:
    layer, x, context = _attention(encoding, values=values), draw(2, 3, 32), draw(2, 5, 32)
    r, r_context = draw(2, 3, encoding.axes), draw(2, 5, encoding.axes)
    expected = _by_dense_matrices(layer, encoding, x, r, context, r_context)
    got = layer(x, encoding.prepare(r), context, encoding.prepare(r_context))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("values", [True, False])
def test_folding_does_not_change_the_outputs(
    encoding: PositionEncoding, values: bool, draw: Draw
) -> None:
    layer, x, r = _attention(encoding, values=values), draw(2, 4, 32), draw(2, 4, encoding.axes)
    before = layer(x, encoding.prepare(r))
    layer.fold_(encoding.basis())
    after = layer(x, encoding.folded().prepare(r))
    torch.testing.assert_close(after, before, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    "qk_norm",
    [torch.nn.LayerNorm, partial(torch.nn.RMSNorm, elementwise_affine=False)],
    ids=["mean", "root"],
)
@pytest.mark.parametrize("values", [True, False])
def test_normalised_queries_and_keys_are_rotated_afterwards(
    qk_norm: Callable[[int], torch.nn.Module],
    values: bool,
    spatial_encoding: PositionEncoding,
    draw: Draw,
) -> None:
    layer = _attention(spatial_encoding, values=values, qk_norm=qk_norm)
    x = draw(2, 4, 32)
    context = draw(2, 5, 32)
    for norm in (layer.q_norm, layer.k_norm):
        for parameter in norm.parameters():
            torch.nn.init.normal_(parameter)
    r, r_context = draw(2, 4, 3), draw(2, 5, 3)
    places = spatial_encoding.prepare(r)
    expected = _by_dense_matrices(layer, spatial_encoding, x, r, x, r)
    torch.testing.assert_close(layer(x, places), expected, rtol=0, atol=1e-11)
    across = _by_dense_matrices(layer, spatial_encoding, x, r, context, r_context)
    torch.testing.assert_close(
        layer(x, places, context, spatial_encoding.prepare(r_context)), across, rtol=0, atol=1e-11
    )
    if spatial_encoding.basis() is None or qk_norm is not torch.nn.LayerNorm:
        layer.fold_(spatial_encoding.basis())
        torch.testing.assert_close(
            layer(x, spatial_encoding.folded().prepare(r)), expected, rtol=0, atol=1e-11
        )
    else:
        with pytest.raises(ValueError, match="LayerNorm.*does not commute with a basis"):
            layer.fold_(spatial_encoding.basis())
        torch.testing.assert_close(layer(x, places), expected, rtol=0, atol=1e-11)


def test_the_returned_weights_are_those_of_the_attention(
    spatial_encoding: PositionEncoding, draw: Draw
) -> None:
    attention = _attention(spatial_encoding, values=False)
    x = draw(2, 5, attention.qkv.in_features)
    places = spatial_encoding.prepare(draw(2, 5, spatial_encoding.axes))
    weights = attention.weights(x, places)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones_like(weights[..., 0]))
    dim = attention.qkv.in_features
    values = torch.nn.functional.linear(
        x, attention.qkv.weight[2 * dim :], attention.qkv.bias[2 * dim :]
    )
    values = values.unflatten(-1, (attention.heads, -1)).transpose(1, 2)
    torch.testing.assert_close(
        attention.out((weights @ values).transpose(1, 2).flatten(2)), attention(x, places)
    )


def test_precomputed_keys_and_values_serve_many_queries(
    spatial_encoding: PositionEncoding, draw: Draw
) -> None:
    layer = _attention(spatial_encoding, values=True)
    context = draw(2, 5, 32)
    r_context = draw(2, 5, 3)
    known = layer.precompute(context, spatial_encoding.prepare(r_context))
    for _ in range(2):
        x, places = draw(2, 3, 32), spatial_encoding.prepare(draw(2, 3, 3))
        expected = layer(x, places, context, spatial_encoding.prepare(r_context))
        torch.testing.assert_close(layer(x, places, known), expected, rtol=0, atol=1e-12)


def test_absent_tokens_have_no_effect(spatial_encoding: PositionEncoding, draw: Draw) -> None:
    layer, x, r = _attention(spatial_encoding, values=True), draw(2, 6, 32), draw(2, 6, 3)
    present = torch.tensor([[True, True, False, True, False, True], [True] * 6])
    got = layer(x, spatial_encoding.prepare(r), present=present)
    kept = present[0]
    expected = layer(x[:1, kept], spatial_encoding.prepare(r[:1, kept]))
    torch.testing.assert_close(got[:1, kept], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        got[1:], layer(x[1:], spatial_encoding.prepare(r[1:])), rtol=0, atol=1e-12
    )
    rounded = attend(*(draw(2, 2, 6, 8).bfloat16() for _ in "qkv"), present=present)
    assert rounded.isfinite().all()


def test_only_relative_values_contain_the_positions_of_others(draw: Draw) -> None:
    """For a single token the weight is one at all positions, so published RoPE has no effect."""
    encoding = RopeMixed(2, 16, 3, wavelengths=(0.5, 5.0)).double()
    x, context, r = draw(1, 1, 32), draw(1, 1, 32), draw(1, 1, 3)
    for values in (True, False):
        layer = _attention(encoding, values=values)
        near, far = (
            layer(x, encoding.prepare(r), context, encoding.prepare(r + offset))
            for offset in (0.0, 0.3)
        )
        assert torch.allclose(near, far) != values


def test_order_of_tokens_does_not_matter(spatial_encoding: PositionEncoding, draw: Draw) -> None:
    layer, x, r = _attention(spatial_encoding, values=True), draw(1, 6, 32), draw(1, 6, 3)
    order = [3, 1, 5, 0, 2, 4]
    shuffled = layer(x[:, order], spatial_encoding.prepare(r[:, order]))
    torch.testing.assert_close(
        shuffled, layer(x, spatial_encoding.prepare(r))[:, order], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 3e-2)]
)
def test_attend_is_softmax_attention_by_every_kernel(
    dtype: torch.dtype, tolerance: float, draw: Draw
) -> None:
    q, k, v = (draw(2, 3, 7, 8) for _ in range(3))
    expected = torch.softmax(q @ k.mT / math.sqrt(8), dim=-1) @ v
    got = attend(q.to(dtype), k.to(dtype), v.to(dtype))
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=tolerance)
    ones = torch.ones(2, 1, 7, 7, dtype=dtype)
    torch.testing.assert_close(
        attend(q.to(dtype), k.to(dtype), v.to(dtype), ones).double(),
        expected,
        rtol=0,
        atol=tolerance,
    )


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("factor", [None, 2.0])
def test_in_half_precision_only_inputs_and_outputs_are_rounded(
    autocast: bool, factor: float | None, draw: Draw
) -> None:
    """Large logits with small differences, as of neighbouring places, stay different."""
    q, k, v = ((6 * draw(2, 2, 40, 8)).bfloat16() for _ in "qkv")
    logit_factor = None if factor is None else torch.full((2, 1, 40, 40), factor)
    expected = attend(q.double(), k.double(), v.double(), logit_factor)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        got = attend(q, k, v, logit_factor)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.double(), expected, rtol=2**-8, atol=1e-4)


@pytest.mark.parametrize("values", [False, True])
def test_under_autocast_a_shift_of_all_places_has_no_effect(
    values: bool, spatial_encoding: PositionEncoding, draw: Draw
) -> None:
    """Places differ by small differences of large numbers, which must not be rounded."""
    layer = _attention(spatial_encoding, values=values).float()
    x = draw(2, 30, 32).float()
    r = draw(2, 30, 3).float()
    encoding = spatial_encoding.float()
    with torch.autocast("cpu", torch.bfloat16):
        here, there = (layer(x, encoding.prepare(place)) for place in (r, r + 3.0))
    assert here.dtype == torch.float32
    torch.testing.assert_close(there, here, rtol=0, atol=1e-4)


def test_a_logit_factor_multiplies_the_logits(draw: Draw) -> None:
    q, k, v, factor = draw(2, 3, 7, 8), draw(2, 3, 5, 8), draw(2, 3, 5, 8), draw(2, 1, 7, 5)
    expected = torch.softmax(q @ k.mT / math.sqrt(8) * factor, dim=-1) @ v
    torch.testing.assert_close(attend(q, k, v, factor), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("qk_norm", [None, torch.nn.LayerNorm], ids=["plain", "normalised"])
def test_a_network_in_half_precision_runs(
    qk_norm: Callable[[int], torch.nn.Module] | None, spatial_encoding: PositionEncoding, draw: Draw
) -> None:
    layer = _attention(spatial_encoding, values=True, qk_norm=qk_norm)
    x = draw(2, 4, 32)
    r = draw(2, 4, 3)
    exact = layer(x, spatial_encoding.prepare(r))
    rounded = layer.bfloat16()(x.bfloat16(), spatial_encoding.bfloat16().prepare(r.float()))
    assert rounded.dtype == torch.bfloat16
    assert (rounded.double() - exact).abs().mean() < 0.1 * exact.abs().mean()


def test_invalid_sizes_are_rejected() -> None:
    with pytest.raises(ValueError, match="dim is 36 with 4 heads; allowed: multiples of 8"):
        PositionalAttention(36, 4)


def test_a_context_without_places_is_rejected() -> None:
    layer = PositionalAttention(8, 2)
    with pytest.raises(ValueError, match="needs context_places"):
        layer(torch.zeros(1, 2, 8), Places(), torch.zeros(1, 3, 8))


@pytest.mark.parametrize("kind", [PositionalAttention, LinearAttention])
@pytest.mark.parametrize("shape", [(0, 4), (2, 0), (0, 0)])
def test_without_examples_or_tokens_the_output_is_empty(
    kind: type[torch.nn.Module], shape: tuple[int, int], spatial_encoding: PositionEncoding
) -> None:
    dim = spatial_encoding.heads * spatial_encoding.head_dim
    layer = kind(dim, spatial_encoding.heads)
    x = torch.zeros(*shape, dim, requires_grad=True)
    y = layer(x, spatial_encoding.prepare(torch.zeros(*shape, spatial_encoding.axes)))
    assert y.shape == x.shape
    y.sum().backward()


def _dense(layer: PositionalAttention, x: Tensor, places: Places, mask: Tensor) -> Tensor:
    """Returns the attention with values that are not rotated, by its weights and a mask (N, M)."""
    dim = x.shape[-1]
    weights = layer.weights(x, places) * mask
    weights = weights / weights.sum(dim=-1, keepdim=True)
    v = x @ layer.qkv.weight[2 * dim :].mT + layer.qkv.bias[2 * dim :]
    mixed = weights @ v.unflatten(-1, (layer.heads, -1)).transpose(1, 2)
    return layer.out(mixed.transpose(1, 2).flatten(2))


def test_masked_tokens_have_no_weight(spatial_encoding: PositionEncoding, draw: Draw) -> None:
    layer = _attention(spatial_encoding, values=False)
    x, places = draw(2, 5, 32), spatial_encoding.prepare(draw(2, 5, 3))
    before = torch.ones(5, 5, dtype=torch.bool).tril()
    apart = torch.tensor([True, True, True, False, True]).expand(5, 5).clone()
    shown = torch.tensor([[True, True, True, True, False]]).expand(2, -1)
    cases = (
        (before, None, None, True),
        (before, None, before[None, None], False),
        (before & apart, None, apart[None, None], True),
        (before & apart & shown[:1], shown, apart[None, None], True),
    )
    for expected, present, mask, causal in cases:
        got = layer(x, places, present=present, mask=mask, causal=causal)
        torch.testing.assert_close(got, _dense(layer, x, places, expected), rtol=0, atol=1e-11)


def test_a_mask_of_a_context_has_a_row_per_query(
    spatial_encoding: PositionEncoding, draw: Draw
) -> None:
    layer = _attention(spatial_encoding, values=True)
    x, context = draw(2, 3, 32), draw(2, 5, 32)
    places, around = (spatial_encoding.prepare(draw(2, n, 3)) for n in (3, 5))
    mask = torch.rand(2, spatial_encoding.heads, 3, 5) > 0.5
    mask[..., 0] = True
    got = layer(x, places, context, around, mask=mask)
    changed = context.clone()
    changed[:, 1] += 100.0
    hidden = mask.clone()
    hidden[..., 1] = False
    torch.testing.assert_close(
        layer(x, places, changed, around, mask=hidden),
        layer(x, places, context, around, mask=hidden),
        rtol=0,
        atol=1e-11,
    )
    assert not torch.equal(got, layer(x, places, context, around, mask=hidden))


@pytest.mark.slow
def test_dropout_acts_in_training_only(spatial_encoding: PositionEncoding, draw: Draw) -> None:
    dim = spatial_encoding.heads * spatial_encoding.head_dim
    torch.manual_seed(0)
    layer = PositionalAttention(dim, spatial_encoding.heads, dropout=0.5).double()
    x, places = draw(1, 6, dim), spatial_encoding.prepare(draw(1, 6, 3))
    whole = layer.eval()(x, places)
    assert torch.equal(layer(x, places), whole)
    layer.train()
    drawn = torch.stack([layer(x, places) for _ in range(800)])
    assert not torch.equal(drawn[0], drawn[1])
    error = (drawn.mean(0) - whole).abs()
    assert bool((error < 6 * drawn.std(0) / 800**0.5).all())  # The expectation is unchanged.


def test_invalid_masks_and_dropouts_are_refused(
    spatial_encoding: PositionEncoding, draw: Draw
) -> None:
    layer = _attention(spatial_encoding, values=False)
    x, places = draw(1, 3, 32), spatial_encoding.prepare(draw(1, 3, 3))
    with pytest.raises(ValueError, match=r"^causal is True with a context; allowed: attention of"):
        layer(x, places, x, places, causal=True)
    with pytest.raises(ValueError, match=r"^mask is \(3, 3\) torch.bool; allowed: \(B \| 1, heads"):
        layer(x, places, mask=torch.ones(3, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"^mask is \(1, 1, 3, 3\) torch.float32; allowed:"):
        layer(x, places, mask=torch.ones(1, 1, 3, 3))
    with pytest.raises(
        ValueError, match=r"^dropout must be a number of at least 0 and below 1 \(got 1.0\)\.$"
    ):
        PositionalAttention(32, 2, dropout=1.0)
