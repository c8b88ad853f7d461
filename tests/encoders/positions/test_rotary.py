"""Each encoding against its published definition."""

import math
from collections.abc import Callable

import pytest
import torch
from tests.encoders.conftest import BASES, FREQUENCIES, Draw

from stringline.encoders.positions.bases import BasisFactory
from stringline.encoders.positions.frequencies import (
    AxialFrequencies,
    CirculantFrequencies,
    FrequencyFactory,
    MixedFrequencies,
)
from stringline.encoders.positions.rotary import (
    CayleyString,
    CirculantString,
    Rope,
    RopeMixed,
    RotaryEncoding,
)


@pytest.mark.parametrize("block", [4, 8, 16])
@pytest.mark.parametrize("share_heads", [True, False])
def test_circulant_is_the_exponential_of_its_generators(
    block: int, share_heads: bool, draw: Draw
) -> None:
    encoding = CirculantString(
        2, 16, 3, block=block, share_heads=share_heads, wavelengths=(0.5, 5.0)
    ).double()
    frequencies = encoding.frequency_model
    assert isinstance(frequencies, CirculantFrequencies)
    with torch.no_grad():
        frequencies.scaled.copy_(draw(*frequencies.scaled.shape))
    r = draw(1, 4, 3)
    row, column = torch.meshgrid(torch.arange(block), torch.arange(block), indexing="ij")
    for head, coefficients in enumerate(frequencies.coefficients().detach()):
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
    entries = encoding.get_parameter("basis_model.skew")
    with torch.no_grad():
        entries.copy_(draw(*entries.shape))
    r = draw(1, 4, 3)
    row, column = torch.triu_indices(16, 16, offset=1)
    for head in range(encoding.sets):
        skew = torch.zeros(16, 16, dtype=torch.float64)
        skew[row, column] = entries[head, 0].detach()
        skew = skew - skew.mT
        basis = (torch.eye(16) - skew) @ torch.linalg.inv(torch.eye(16) + skew)
        generators = []
        for omega in encoding.frequencies()[head].detach():
            planes = torch.zeros(16, 16, dtype=torch.float64)
            planes[torch.arange(8) + 8, torch.arange(8)] = omega
            generators.append(basis @ (planes - planes.mT) @ basis.mT)
        exponent = torch.einsum("nk,kij->nij", r[0], torch.stack(generators))
        torch.testing.assert_close(
            encoding.rotation(r)[0, head], torch.linalg.matrix_exp(exponent), rtol=0, atol=1e-10
        )


def test_wavelengths_cover_the_given_range() -> None:
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
    torch.testing.assert_close(
        direction @ direction.mT / 10_000, torch.eye(3) / 3, rtol=0, atol=0.02
    )
    assert direction.mean(dim=1).abs().max() < 0.02


def test_parameters_are_of_the_size_of_weights_in_any_unit() -> None:
    metres = RopeMixed(2, 32, 3, wavelengths=(0.04, 2.0))
    millimetres = RopeMixed(2, 32, 3, wavelengths=(40.0, 2000.0))
    stored = [
        encoding.get_parameter("frequency_model.scaled") for encoding in (metres, millimetres)
    ]
    torch.testing.assert_close(*stored)
    assert stored[0].abs().max() < 10


def test_theta_restores_the_initial_values_of_the_published_code() -> None:
    encoding = RopeMixed(4, 64, 2, share_heads=False, theta=10.0)
    omega = encoding.frequencies().detach()
    magnitude = 10 ** (-4 * torch.arange(16) / 64)
    torch.testing.assert_close(
        omega.norm(dim=1), magnitude.repeat(2).expand(4, 32), rtol=1e-5, atol=0
    )
    torch.testing.assert_close(
        (omega[..., :16] * omega[..., 16:]).sum(dim=1), torch.zeros(4, 16), rtol=0, atol=1e-6
    )
    direction = omega[..., :16] / magnitude
    torch.testing.assert_close(direction, direction[..., :1].expand_as(direction))
    assert len({round(float(x), 4) for x in direction[:, 0, 0]}) == 4


def test_rotating_planes_of_circulant_start_as_those_of_mixed() -> None:
    circulant = CirculantString(
        2, 16, 3, block=8, share_heads=False, wavelengths=(0.04, 2.0), seed=3
    )
    mixed = RopeMixed(2, 12, 3, share_heads=False, wavelengths=(0.04, 2.0), seed=3)
    planes = circulant.frequencies().unflatten(-1, (2, 4))
    torch.testing.assert_close(planes[..., 0], torch.zeros_like(planes[..., 0]))
    torch.testing.assert_close(
        planes[..., 1:].flatten(-2), mixed.frequencies(), rtol=1e-4, atol=1e-4
    )


def test_cayley_starts_as_mixed() -> None:
    cayley, mixed = (
        kind(2, 16, 3, wavelengths=(0.04, 2.0), seed=3) for kind in (CayleyString, RopeMixed)
    )
    torch.testing.assert_close(cayley.frequencies(), mixed.frequencies())
    torch.testing.assert_close(cayley.basis(), torch.eye(16).unsqueeze(0))


def test_sharing_decides_the_number_of_parameter_sets() -> None:
    counts = {
        share: sum(
            p.numel()
            for p in CayleyString(4, 16, 3, share_heads=share, wavelengths=(0.1, 1.0)).parameters()
        )
        for share in (True, False)
    }
    assert counts == {True: 3 * 8 + 120, False: 4 * (3 * 8 + 120)}


def test_axial_frequencies_are_those_of_the_published_code() -> None:
    omega = Rope(4, 64, 2, theta=100.0).frequencies()
    assert omega.shape == (1, 2, 32)
    magnitude = 100 ** (-4 * torch.arange(16) / 64)
    torch.testing.assert_close(omega[0, 0], torch.cat((magnitude, torch.zeros(16))))
    torch.testing.assert_close(omega[0, 1], torch.cat((torch.zeros(16), magnitude)))


@pytest.mark.parametrize(
    ("head_dim", "axes", "shares"),
    [(64, 3, [11, 11, 10]), (64, 2, [16, 16]), (10, 4, [2, 1, 1, 1]), (30, 1, [15])],
)
def test_planes_are_split_as_evenly_as_possible(
    head_dim: int, axes: int, shares: list[int]
) -> None:
    omega = Rope(1, head_dim, axes, wavelengths=(1.0, 2.0)).frequencies()[0]
    assert [int((row > 0).sum()) for row in omega] == shares
    assert ((omega > 0).sum(dim=0) == 1).all()


def test_blocks_are_assigned_to_the_axes_in_turn() -> None:
    omega = AxialFrequencies(1, 3, 8, theta=10.0, block=4)()[0]
    assert omega.argmax(dim=0).tolist() == [0, 0, 1, 1, 2, 2, 0, 0]


def test_given_frequencies_are_the_initial_ones() -> None:
    omega = torch.arange(24.0).reshape(1, 3, 8)
    torch.testing.assert_close(MixedFrequencies(2, 3, 8, omega=omega)(), omega.expand(2, -1, -1))


@pytest.mark.parametrize("frequencies", FREQUENCIES.values(), ids=FREQUENCIES)
@pytest.mark.parametrize("basis", BASES.values(), ids=BASES)
@pytest.mark.parametrize("share", [(True, True), (False, False), (False, True), (True, False)])
def test_any_frequencies_combine_with_any_basis(
    frequencies: FrequencyFactory, basis: BasisFactory | None, share: tuple[bool, bool], draw: Draw
) -> None:
    encoding = RotaryEncoding(
        2, 16, 3, frequencies=frequencies, basis=basis, share_heads=share[0], share_basis=share[1]
    ).double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter += 0.3 * draw(*parameter.shape)
    a, b = draw(1, 3, 3), draw(1, 3, 3)
    alike = share[0] and (share[1] or basis is None or encoding.basis_blocks().shape[0] == 1)  # type: ignore[union-attr]
    assert encoding.rotation(a).shape == (1, 1 if alike else 2, 3, 16, 16)
    between = encoding.rotation(a).mT @ encoding.rotation(b)
    torch.testing.assert_close(between, encoding.rotation(b - a), rtol=0, atol=1e-12)
    x, places = draw(1, 2, 3, 16), encoding.prepare(a)
    torch.testing.assert_close(
        encoding.rotate_inverse(encoding.rotate(x, places), places), x, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: RopeMixed(2, 16, 3), "initialised by none; allowed: exactly one of"),
        (lambda: RopeMixed(2, 16, 3, theta=10.0), "theta with 3 axes and 8 planes"),
        (
            lambda: RopeMixed(2, 16, 2, theta=10.0, wavelengths=(1.0, 2.0)),
            "initialised by wavelengths, theta; allowed",
        ),
        (lambda: RopeMixed(2, 16, 2, theta=1.0), r"theta must be a number above 1 \(got 1.0\)"),
        (lambda: Rope(2, 4, 3, theta=10.0), "3 axes with 2 planes"),
        (
            lambda: AxialFrequencies(1, 2, 8, theta=10.0, block=6),
            "block is 6; allowed: even divisors of head_dim 16",
        ),
        (
            lambda: MixedFrequencies(1, 2, 8, omega=torch.ones(1, 2, 7)),
            r"omega has shape \(1, 2, 7\); allowed: \(1 | 1, 2, 8\)",
        ),
        (
            lambda: MixedFrequencies(1, 2, 8, uniform=0.0),
            r"uniform must be a number above 0 \(got 0.0\)",
        ),
        (lambda: Rope(2, 16, 3, theta=10.0).zero_(), "are fixed and cannot start at zero"),
        (lambda: RopeMixed(2, 16, 3, wavelengths=(2.0, 1.0)), "0 < shortest <= longest"),
        (lambda: RopeMixed(2, 15, 3, wavelengths=(1.0, 2.0)), "head_dim even"),
        (
            lambda: CirculantString(2, 16, 3, block=5, wavelengths=(1.0, 2.0)),
            "block is 5; allowed: even divisors of head_dim 16",
        ),
        (lambda: CirculantString(2, 24, 3, block=16, wavelengths=(1.0, 2.0)), "block is 16"),
    ],
)
def test_invalid_settings_are_rejected(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
