"""The peers of benchmarks/encodings.py compute what ours compute, at the same parameters."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from stringline import CayleyString, CirculantString, ComRopeLd, LieRE, PositionEncoding

published = import_module("published_encodings")


def _circulant(peer: nn.Module) -> PositionEncoding:
    encoding = CirculantString(2, 32, 3, block=16, wavelengths=(1.0, 2.0)).double()
    scale = encoding.get_buffer("frequency_model.scale") / 32**0.5
    encoding.get_parameter("frequency_model.scaled").data = (
        peer.get_parameter("c").detach().unsqueeze(0) / scale
    )
    return encoding


def _cayley(peer: nn.Module) -> PositionEncoding:
    encoding = CayleyString(2, 32, 3, wavelengths=(1.0, 2.0)).double()
    s = peer.get_parameter("s").detach()
    rows, columns = torch.triu_indices(32, 32, offset=1)
    # Theirs multiplies tokens by P, ours by its transpose; P^T is the Cayley map of -S.
    encoding.get_parameter("basis_model.skew").data = -(s - s.mT)[rows, columns].reshape(1, 1, -1)
    scale = encoding.get_buffer("frequency_model.scale")
    encoding.get_parameter("frequency_model.scaled").data = (
        peer.get_parameter("omega").detach().unsqueeze(0) / scale
    )
    return encoding


def _comrope(peer: nn.Module) -> PositionEncoding:
    encoding = ComRopeLd(2, 32, 3, block=8).double()
    a = peer.get_parameter("a").detach()[:, 0]
    encoding.set_angle_matrices(a - a.mT)
    encoding.get_parameter("frequency_model.directions").data = (
        peer.get_parameter("factors").detach()[..., 0, 0].expand(2, -1, -1)
    )
    return encoding


def _liere(peer: nn.Module) -> PositionEncoding:
    encoding = LieRE(2, 32, 3, block=8).double()
    a = peer.get_parameter("a").detach()
    rows, columns = torch.triu_indices(8, 8, offset=1)
    encoding.get_parameter("entries").data = (a - a.mT)[..., rows, columns]
    return encoding


@pytest.mark.parametrize(
    ("make", "ours"),
    [
        (published.CirculantByFft, _circulant),
        (published.CayleyPerToken, _cayley),
        (lambda heads, size: published.ExponentialPerToken(heads, size, 8, comrope=True), _comrope),
        (lambda heads, size: published.ExponentialPerToken(heads, size, 8, comrope=False), _liere),
    ],
    ids=["circulant", "cayley", "comrope", "liere"],
)
def test_logits_agree(
    make: Callable[[int, int], Any], ours: Callable[[nn.Module], PositionEncoding]
) -> None:
    torch.manual_seed(0)
    peer = make(2, 32).double()
    encoding = ours(peer)
    x, r = torch.randn(1, 2, 6, 32, dtype=torch.float64), torch.rand(1, 6, 3, dtype=torch.float64)

    def logits(q: Tensor, k: Tensor) -> Tensor:
        return (q @ k.mT).detach()

    places = encoding.prepare(r)
    expected = logits(*peer.turned(x, x.flip(-2), r))
    torch.testing.assert_close(
        logits(encoding.rotate(x, places), encoding.rotate(x.flip(-2), places)),
        expected,
        rtol=0,
        atol=1e-9,
    )
