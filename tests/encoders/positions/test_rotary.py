"""Each encoding against its published definition."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stringline.encoders.positions.rotary import CayleyString, CirculantString, RopeMixed

Draw = Callable[..., Tensor]


@pytest.mark.parametrize("block", [4, 8, 16])
@pytest.mark.parametrize("share_heads", [True, False])
def test_circulant_is_the_exponential_of_its_generators(block: int, share_heads: bool, draw: Draw) -> None:
    encoding = CirculantString(2, 16, 3, block=block, share_heads=share_heads, wavelengths=(0.5, 5.0)).double()
    with torch.no_grad():
        encoding.scaled_coefficients.copy_(draw(*encoding.scaled_coefficients.shape))
    r = draw(1, 4, 3)
    row, column = torch.meshgrid(torch.arange(block), torch.arange(block), indexing="ij")
    for head, coefficients in enumerate(encoding.coefficients().detach()):
        generators = []
        for axis in range(3):
            circulant = torch.block_diag(*(c[(row - column) % block] for c in coefficients[axis]))
            generators.append(circulant - circulant.mT)
        exponent = torch.einsum("nk,kij->nij", r[0], torch.stack(generators))
        expected = torch.linalg.matrix_exp(exponent)
        torch.testing.assert_close(encoding.rotation(r)[0, head], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("share_heads", [True, False])
def test_cayley_is_the_exponential_of_its_generators(share_heads: bool, draw: Draw) -> None:
    encoding = CayleyString(2, 16, 3, share_heads=share_heads, wavelengths=(0.5, 5.0)).double()
    with torch.no_grad():
        encoding.skew.copy_(draw(*encoding.skew.shape))
    r = draw(1, 4, 3)
    row, column = torch.triu_indices(16, 16, offset=1)
    for head in range(encoding.sets):
        skew = torch.zeros(16, 16, dtype=torch.float64)
        skew[row, column] = encoding.skew[head].detach()
        skew = skew - skew.mT
        basis = (torch.eye(16) - skew) @ torch.linalg.inv(torch.eye(16) + skew)
        generators = []
        for omega in encoding.frequencies()[head].detach():
            planes = torch.zeros(16, 16, dtype=torch.float64)
            planes[torch.arange(8) + 8, torch.arange(8)] = omega
            generators.append(basis @ (planes - planes.mT) @ basis.mT)
        exponent = torch.einsum("nk,kij->nij", r[0], torch.stack(generators))
        torch.testing.assert_close(encoding.rotation(r)[0, head], torch.linalg.matrix_exp(exponent), rtol=0, atol=1e-10)


def test_wavelengths_cover_what_was_asked_for() -> None:
    encoding = RopeMixed(4, 32, 3, share_heads=False, wavelengths=(0.04, 2.0))
    wavelength = 2 * math.pi / encoding.frequencies().norm(dim=1)
    assert wavelength.shape == (4, 16)
    torch.testing.assert_close(wavelength[:, 0], torch.full((4,), 0.04))
    torch.testing.assert_close(wavelength[:, -1], torch.full((4,), 2.0))
    ratios = wavelength[0, 1:] / wavelength[0, :-1]
    torch.testing.assert_close(ratios, ratios[:1].expand(15), rtol=1e-4, atol=0)


def test_directions_are_isotropic() -> None:
    encoding = RopeMixed(1, 20_000, 3, wavelengths=(1.0, 1.0))
    direction = encoding.frequencies()[0].detach() / (2 * math.pi)
    torch.testing.assert_close(direction @ direction.mT / 10_000, torch.eye(3) / 3, rtol=0, atol=0.02)
    assert direction.mean(dim=1).abs().max() < 0.02


def test_parameters_are_of_the_size_of_weights_in_any_unit() -> None:
    metres = RopeMixed(2, 32, 3, wavelengths=(0.04, 2.0))
    millimetres = RopeMixed(2, 32, 3, wavelengths=(40.0, 2000.0))
    torch.testing.assert_close(metres.scaled_frequencies, millimetres.scaled_frequencies)
    assert metres.scaled_frequencies.abs().max() < 10


def test_theta_restores_the_start_of_the_published_code() -> None:
    encoding = RopeMixed(4, 64, 2, share_heads=False, theta=10.0)
    omega = encoding.frequencies().detach()
    magnitude = 10 ** (-4 * torch.arange(16) / 64)
    torch.testing.assert_close(omega.norm(dim=1), magnitude.repeat(2).expand(4, 32), rtol=1e-5, atol=0)
    torch.testing.assert_close((omega[..., :16] * omega[..., 16:]).sum(dim=1), torch.zeros(4, 16), rtol=0, atol=1e-6)
    direction = omega[..., :16] / magnitude
    torch.testing.assert_close(direction, direction[..., :1].expand_as(direction))
    assert len({round(float(x), 4) for x in direction[:, 0, 0]}) == 4


def test_turning_planes_of_circulant_start_as_those_of_mixed() -> None:
    circulant = CirculantString(2, 16, 3, block=8, share_heads=False, wavelengths=(0.04, 2.0), seed=3)
    mixed = RopeMixed(2, 12, 3, share_heads=False, wavelengths=(0.04, 2.0), seed=3)
    planes = circulant.frequencies().unflatten(-1, (2, 4))
    torch.testing.assert_close(planes[..., 0], torch.zeros_like(planes[..., 0]))
    torch.testing.assert_close(planes[..., 1:].flatten(-2), mixed.frequencies(), rtol=1e-4, atol=1e-4)


def test_cayley_starts_as_mixed() -> None:
    cayley, mixed = (kind(2, 16, 3, wavelengths=(0.04, 2.0), seed=3) for kind in (CayleyString, RopeMixed))
    torch.testing.assert_close(cayley.frequencies(), mixed.frequencies())
    torch.testing.assert_close(cayley.basis(), torch.eye(16).unsqueeze(0))


def test_sharing_decides_the_number_of_parameter_sets() -> None:
    counts = {
        share: sum(p.numel() for p in CayleyString(4, 16, 3, share_heads=share, wavelengths=(0.1, 1.0)).parameters())
        for share in (True, False)
    }
    assert counts == {True: 3 * 8 + 120, False: 4 * (3 * 8 + 120)}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: RopeMixed(2, 16, 3), "wavelengths None, theta None"),
        (lambda: RopeMixed(2, 16, 3, theta=10.0), "theta for 2 axes only"),
        (lambda: RopeMixed(2, 16, 2, theta=10.0, wavelengths=(1.0, 2.0)), "one of them"),
        (lambda: RopeMixed(2, 16, 2, theta=1.0), "theta above 1"),
        (lambda: RopeMixed(2, 16, 3, wavelengths=(2.0, 1.0)), "0 < shortest <= longest"),
        (lambda: RopeMixed(2, 15, 3, wavelengths=(1.0, 2.0)), "head_dim even"),
        (
            lambda: CirculantString(2, 16, 3, block=5, wavelengths=(1.0, 2.0)),
            "block is 5; allowed: even divisors of head_dim 16",
        ),
        (lambda: CirculantString(2, 24, 3, block=16, wavelengths=(1.0, 2.0)), "block is 16"),
    ],
)
def test_settings_that_do_not_fit_are_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
