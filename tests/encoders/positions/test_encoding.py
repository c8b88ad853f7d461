"""What holds for every position encoding, whatever its kind."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.rotary import CayleyString, FixedRotary, NoEncoding

Draw = Callable[..., Tensor]


def test_the_origin_turns_nothing(encoding: PositionEncoding) -> None:
    rotation = encoding.rotation(torch.zeros(1, 1, encoding.axes, dtype=torch.float64))
    identity = torch.eye(encoding.head_dim, dtype=torch.float64).expand_as(rotation)
    torch.testing.assert_close(rotation, identity, rtol=0, atol=1e-12)


def test_rotations_depend_on_differences_only(encoding: PositionEncoding, draw: Draw) -> None:
    a, b = draw(2, 5, encoding.axes), draw(2, 5, encoding.axes)
    between = encoding.rotation(a).mT @ encoding.rotation(b)
    torch.testing.assert_close(between, encoding.rotation(b - a), rtol=0, atol=1e-12)
    if not isinstance(encoding, NoEncoding):
        assert (encoding.rotation(a) - encoding.rotation(b)).abs().amax(dim=(-1, -2)).min() > 0.02  # In every head.


def test_frequencies_and_basis_have_the_shapes_of_the_face(encoding: PositionEncoding) -> None:
    sets = encoding.frequencies().shape[0]
    assert sets in (1, encoding.heads)
    assert encoding.frequencies().shape == (sets, encoding.axes, encoding.head_dim // 2)
    basis = encoding.basis()
    if basis is not None:
        identity = torch.eye(encoding.head_dim, dtype=torch.float64).expand_as(basis)
        torch.testing.assert_close(basis @ basis.mT, identity, rtol=0, atol=1e-12)


def test_apply_is_the_rotation_seen_in_the_basis(encoding: PositionEncoding, draw: Draw) -> None:
    x, r = draw(2, encoding.heads, 5, encoding.head_dim), draw(2, 5, encoding.axes)
    applied = encoding.apply(x, encoding.prepare(r))
    basis = encoding.basis()
    turned = applied if basis is None else applied @ basis.mT
    torch.testing.assert_close(turned, (encoding.rotation(r) @ x.unsqueeze(-1)).squeeze(-1), rtol=0, atol=1e-12)


def test_invert_undoes_apply(encoding: PositionEncoding, draw: Draw) -> None:
    x, places = draw(2, encoding.heads, 5, encoding.head_dim), encoding.prepare(draw(2, 5, encoding.axes))
    torch.testing.assert_close(encoding.invert(encoding.apply(x, places), places), x, rtol=0, atol=1e-12)


def test_queries_meet_keys_of_other_places(encoding: PositionEncoding, draw: Draw) -> None:
    q, k = draw(2, encoding.heads, 3, encoding.head_dim), draw(2, encoding.heads, 4, encoding.head_dim)
    r_q, r_k = draw(2, 3, encoding.axes), draw(2, 4, encoding.axes)
    logits = encoding.apply(q, encoding.prepare(r_q)) @ encoding.apply(k, encoding.prepare(r_k)).mT
    for i in range(3):
        turned = encoding.rotation(r_k - r_q[:, i, None]) @ k.unsqueeze(-1)
        torch.testing.assert_close(logits[:, :, i], (turned.squeeze(-1) * q[:, :, i, None]).sum(-1), rtol=0, atol=1e-11)


def test_a_common_shift_changes_no_logit(encoding: PositionEncoding, draw: Draw) -> None:
    q, r = draw(2, encoding.heads, 6, encoding.head_dim), draw(2, 6, encoding.axes)
    placed = torch.tensor([[True, True, False, True, False, True], [False] * 6])

    def logits(coordinates: Tensor) -> Tensor:
        turned = encoding.apply(q, encoding.prepare(coordinates, placed))
        return turned @ turned.mT

    shift = 3 * draw(1, 1, encoding.axes)
    torch.testing.assert_close(logits(r + shift), logits(r), rtol=0, atol=1e-9)


def test_tokens_without_a_place_stand_at_the_centroid(encoding: PositionEncoding, draw: Draw) -> None:
    x, r = draw(2, encoding.heads, 4, encoding.head_dim), draw(2, 4, encoding.axes)
    placed = torch.tensor([[True, False, True, True], [False, False, False, False]])
    expected = torch.stack((r[0], torch.zeros_like(r[1])))
    expected[0, 1] = r[0, [0, 2, 3]].mean(dim=0)
    r[~placed] = torch.nan
    applied = encoding.apply(x, encoding.prepare(r, placed))
    torch.testing.assert_close(applied, encoding.apply(x, encoding.prepare(expected)), rtol=0, atol=1e-12)


def test_gradients_agree_with_finite_differences(encoding: PositionEncoding, draw: Draw) -> None:
    x, r = draw(1, encoding.heads, 2, encoding.head_dim).requires_grad_(), draw(1, 2, encoding.axes).requires_grad_()
    _check_gradients(encoding, x, r)


def test_gradients_are_finite_and_right_at_the_start(starting_encoding: PositionEncoding, draw: Draw) -> None:
    x = draw(1, starting_encoding.heads, 2, starting_encoding.head_dim).requires_grad_()
    _check_gradients(starting_encoding, x, draw(1, 2, starting_encoding.axes).requires_grad_())
    with torch.no_grad():
        for parameter in starting_encoding.parameters():
            parameter.zero_()
    r = draw(1, 2, starting_encoding.axes).requires_grad_()
    _check_gradients(starting_encoding, x, r)


def _check_gradients(encoding: PositionEncoding, x: Tensor, r: Tensor) -> None:
    names = [name for name, _ in encoding.named_parameters()]

    def logits(x: Tensor, r: Tensor, *parameters: Tensor) -> Tensor:
        return functional_call(_Logits(encoding), dict(zip(names, parameters, strict=True)), (x, r))

    names = [f"encoding.{name}" for name in names]
    assert torch.autograd.gradcheck(logits, (x, r, *encoding.parameters()), fast_mode=True)


class _Logits(torch.nn.Module):
    """Turns by one place and back by another: every part of the face takes part in the gradient."""

    def __init__(self, encoding: PositionEncoding) -> None:
        super().__init__()
        self.encoding = encoding

    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        places = self.encoding.prepare(r, torch.tensor([[True, False]]))
        turned: Tensor = self.encoding.apply(x, places)
        return self.encoding.invert(turned.sin(), places)


def test_a_learned_basis_gets_a_gradient_from_the_identity() -> None:
    encoding = CayleyString(2, 8, 3, wavelengths=(0.1, 1.0))
    x = torch.randn(1, 2, 3, 8, generator=torch.Generator().manual_seed(0))
    turned = encoding.apply(x, encoding.prepare(torch.rand(1, 3, 3, generator=torch.Generator().manual_seed(1))))
    (turned @ turned.mT).square().sum().backward()
    assert encoding.skew.grad is not None
    row, column = torch.triu_indices(8, 8, offset=1)
    commutes = column - row == 4  # Turning a plane in itself changes nothing.
    assert encoding.skew.grad[0, ~commutes].abs().min() > 1
    assert encoding.skew.grad[0, commutes].abs().max() < 1e-2


def test_phases_under_autocast_are_those_of_float32(encoding: PositionEncoding, draw: Draw) -> None:
    encoding.float()
    x, r = draw(2, encoding.heads, 5, encoding.head_dim).float(), 2 * draw(2, 5, encoding.axes).float()
    plain = encoding.apply(x, encoding.prepare(r))
    with torch.autocast("cpu", torch.bfloat16):
        places = encoding.prepare(r)
    torch.testing.assert_close(encoding.apply(x, places), plain, rtol=0, atol=0)
    assert encoding.apply(x.bfloat16(), places).dtype == torch.bfloat16


def test_places_are_never_older_than_the_parameters(encoding: PositionEncoding, draw: Draw) -> None:
    if not list(encoding.parameters()):
        return
    x, r = draw(1, encoding.heads, 3, encoding.head_dim), draw(1, 3, encoding.axes)
    encoding.eval()
    before = encoding.invert(encoding.apply(x, encoding.prepare(r)).flip(-2), encoding.prepare(r))
    optimiser = torch.optim.SGD(encoding.parameters(), lr=0.1)
    (before.square() * draw(16)).sum().backward()
    optimiser.step()
    after = encoding.apply(x, encoding.prepare(r))
    basis = encoding.basis()
    dense = (encoding.rotation(r) @ x.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(after if basis is None else after @ basis.mT, dense, rtol=0, atol=1e-12)
    changed = encoding.invert(after.flip(-2), encoding.prepare(r))
    assert (changed - before).abs().max() > 1e-4


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
        q, k, v = (encoding.apply(each, places) for each in (q, k, v))
        y = encoding.invert(torch.softmax(q @ k.mT / 40, dim=-1) @ v, places)
        return y.transpose(1, 2).flatten(2) @ weights[3].mT

    before = attention(encoding)
    encoding.fold_(*weights)
    encoding.fold_(*biases)
    torch.testing.assert_close(attention(FixedRotary(encoding.heads, encoding.frequencies())), before, rtol=1e-11, atol=1e-11)


def test_another_draw_is_independent(starting_encoding: PositionEncoding) -> None:
    before = starting_encoding.frequencies().detach().clone()
    other = starting_encoding.redrawn(7)
    assert isinstance(other, type(starting_encoding))
    torch.testing.assert_close(other.frequencies(), starting_encoding.redrawn(7).frequencies(), rtol=0, atol=0)
    torch.testing.assert_close(starting_encoding.frequencies(), before, rtol=0, atol=0)
    if list(starting_encoding.parameters()):
        assert not torch.equal(other.frequencies(), before)


def test_no_parameter_decays(encoding: PositionEncoding) -> None:
    assert encoding.no_weight_decay() == {name for name, _ in encoding.named_parameters()}


def test_it_is_still_a_module_that_functions_can_be_applied_to(encoding: PositionEncoding) -> None:
    seen: list[torch.nn.Module] = []
    torch.nn.Sequential(encoding).apply(seen.append)
    assert encoding in seen


@pytest.mark.parametrize(
    ("shape", "dtype", "placed", "message"),
    [
        ((2, 5, 7), torch.float32, None, r"Coordinates are \(2, 5, 7\) torch.float32; allowed: \(B, N, 3\)"),
        ((5, 3), torch.float32, None, r"allowed: \(B, N, 3\)"),
        ((2, 5, 3), torch.int64, None, "torch.int64; allowed"),
        ((2, 5, 3), torch.float32, torch.ones(2, 4, dtype=torch.bool), r"placed is \(2, 4\) torch.bool; allowed: \(2, 5\)"),
        ((2, 5, 3), torch.float32, torch.ones(2, 5), "placed is .* torch.float32"),
    ],
)
def test_coordinates_that_do_not_fit_are_refused(
    shape: tuple[int, ...], dtype: torch.dtype, placed: Tensor | None, message: str
) -> None:
    encoding = CayleyString(2, 16, 3, wavelengths=(0.1, 1.0))
    with pytest.raises(ValueError, match=message):
        encoding.prepare(torch.zeros(shape, dtype=dtype), placed)
