"""Gradients of encodings, and their dependence on parameters."""

import pytest
import torch
from tests.encoders.conftest import Draw
from torch import Tensor
from torch.func import functional_call

from stringline.encoders.positions.absolute import SinusoidalEncoding
from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.rotary import (
    CayleyString,
    FixedRotary,
    Rope,
    RopeInLearnedBasis,
    TensorProductString,
)


def test_gradients_agree_with_finite_differences(encoding: PositionEncoding, draw: Draw) -> None:
    x = draw(1, encoding.heads, 2, encoding.head_dim).requires_grad_()
    r = draw(1, 2, encoding.axes).requires_grad_()
    _check_gradients(encoding, x, r)


def test_gradients_are_finite_and_correct_at_initial_parameters(
    starting_encoding: PositionEncoding, draw: Draw
) -> None:
    x = draw(1, starting_encoding.heads, 2, starting_encoding.head_dim).requires_grad_()
    _check_gradients(starting_encoding, x, draw(1, 2, starting_encoding.axes).requires_grad_())
    with torch.no_grad():
        for parameter in starting_encoding.parameters():
            parameter.zero_()
    r = draw(1, 2, starting_encoding.axes).requires_grad_()
    _check_gradients(starting_encoding, x, r)


def _check_gradients(encoding: PositionEncoding, x: Tensor, r: Tensor) -> None:
    names = [f"encoding.{name}" for name, _ in encoding.named_parameters()]

    def everything(x: Tensor, r: Tensor, *parameters: Tensor) -> Tensor:
        return functional_call(
            _Everything(encoding), dict(zip(names, parameters, strict=True)), (x, r)
        )

    assert torch.autograd.gradcheck(everything, (x, r, *encoding.parameters()), fast_mode=True)


class _Everything(torch.nn.Module):
    """Rotates by one place and back by another, so that the gradient covers all methods."""

    def __init__(self, encoding: PositionEncoding) -> None:
        super().__init__()
        self.encoding = encoding

    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        places = self.encoding.prepare(r, torch.tensor([[True, False]]))
        embedded = (
            places.embed(x.transpose(1, 2).flatten(2)).unflatten(-1, x.shape[1:4:2]).transpose(1, 2)
        )
        turned: Tensor = self.encoding.rotate(embedded, places)
        factor = self.encoding.logit_factor(places, places)
        mixed = turned.sin() if factor is None else factor @ turned.sin()
        return self.encoding.rotate_inverse(mixed, places)


def test_a_learned_basis_gets_a_gradient_from_the_identity() -> None:
    encoding = CayleyString(2, 8, 3, wavelengths=(0.1, 1.0))
    assert encoding.basis_model is not None
    x = torch.randn(1, 2, 3, 8, generator=torch.Generator().manual_seed(0))
    turned = encoding.rotate(
        x, encoding.prepare(torch.rand(1, 3, 3, generator=torch.Generator().manual_seed(1)))
    )
    (turned @ turned.mT).square().sum().backward()
    gradient = next(encoding.basis_model.parameters()).grad
    assert gradient is not None
    row, column = torch.triu_indices(8, 8, offset=1)
    commutes = column - row == 4  # A rotation within a plane has no effect.
    assert gradient[0, 0, ~commutes].abs().min() > 1
    assert gradient[0, 0, commutes].abs().max() < 1e-2


def test_places_follow_changes_of_the_parameters(encoding: PositionEncoding, draw: Draw) -> None:
    if not list(encoding.parameters()):
        return
    x, r = draw(1, encoding.heads, 3, encoding.head_dim), draw(1, 3, encoding.axes)
    encoding.eval()
    before = _Everything3(encoding)(x, r)
    optimiser = torch.optim.SGD(encoding.parameters(), lr=0.1)
    (before.square() * draw(encoding.head_dim)).sum().backward()
    optimiser.step()
    after = _Everything3(encoding)(x, r)
    fresh = make_like(encoding)
    torch.testing.assert_close(after, _Everything3(fresh)(x, r), rtol=0, atol=1e-12)
    assert (after - before).abs().max() > 1e-5


class _Everything3(_Everything):
    """The same with a place for every token."""

    def forward(self, x: Tensor, r: Tensor) -> Tensor:
        places = self.encoding.prepare(r)
        embedded = (
            places.embed(x.transpose(1, 2).flatten(2)).unflatten(-1, x.shape[1:4:2]).transpose(1, 2)
        )
        turned: Tensor = self.encoding.rotate(embedded, places)
        factor = self.encoding.logit_factor(places, places)
        return self.encoding.rotate_inverse(
            turned.flip(-2) if factor is None else factor @ turned, places
        )


def make_like(encoding: PositionEncoding) -> PositionEncoding:
    """Returns a new encoding with the same parameters."""
    other = encoding.redrawn(5)
    other.load_state_dict(encoding.state_dict())
    return other


def test_at_zero_rotations_are_the_identity_and_all_parameters_learn(
    encoding: PositionEncoding, draw: Draw
) -> None:
    if isinstance(
        encoding, FixedRotary | Rope | RopeInLearnedBasis | TensorProductString | SinusoidalEncoding
    ):
        with pytest.raises(ValueError, match="cannot start at zero"):
            encoding.zero_()
        return
    encoding.zero_()
    x, r = draw(2, encoding.heads, 4, encoding.head_dim), draw(2, 4, encoding.axes)
    places = encoding.prepare(r)
    q = encoding.rotate(x, places)
    torch.testing.assert_close(q @ q.mT, x @ x.mT, rtol=0, atol=1e-11)
    if list(encoding.parameters()):
        (_Everything3(encoding)(x, r) * draw(encoding.head_dim)).sum().backward()
        assert any(p.grad is not None and p.grad.abs().max() > 1e-3 for p in encoding.parameters())
