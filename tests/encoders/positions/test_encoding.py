"""Properties of all position encodings."""

import pytest
import torch
from tests.encoders.conftest import KINDS, Draw, make
from torch import Tensor

from stringline import CayleyString, LieRE, NoEncoding, PositionEncoding
from stringline.encoders.positions.rotary import Rotary
from stringline.testing import check_encoding


def _logits(encoding: PositionEncoding, q: Tensor, k: Tensor, r_q: Tensor, r_k: Tensor) -> Tensor:
    """Returns the logits before scaling, (B, heads, N_q, N_k)."""
    places_q, places_k = encoding.prepare(r_q), encoding.prepare(r_k)
    logits = encoding.rotate(q, places_q) @ encoding.rotate(k, places_k).mT
    factor = encoding.logit_factor(places_q, places_k)
    return logits if factor is None else logits * factor


@pytest.mark.parametrize("kind", KINDS)
def test_the_promise_of_encodings(kind: str) -> None:
    check_encoding(lambda: make(kind))


def test_rotations_depend_on_differences_only(rotary_encoding: Rotary, draw: Draw) -> None:
    encoding = rotary_encoding
    a, b = draw(2, 5, encoding.axes), draw(2, 5, encoding.axes)
    between = encoding.rotation(a).mT @ encoding.rotation(b)
    torch.testing.assert_close(between, encoding.rotation(b - a), rtol=0, atol=1e-12)
    assert (encoding.rotation(a) - encoding.rotation(b)).abs().amax(
        dim=(-1, -2)
    ).min() > 0.01  # In every head.


@pytest.mark.parametrize(("block", "breaks"), [(2, False), (4, True), (8, True)])
def test_rotations_of_liere_do_not_unless_its_blocks_are_planes(
    block: int, breaks: bool, draw: Draw
) -> None:
    encoding = LieRE(2, 16, 2, block=block).double()
    a, b = draw(2, 5, 2), draw(2, 5, 2)
    error = (encoding.rotation(a).mT @ encoding.rotation(b) - encoding.rotation(b - a)).abs().max()
    assert (error > 0.5) == breaks
    assert breaks or error < 1e-10


def test_frequencies_and_basis_have_the_shapes_of_the_interface(rotary_encoding: Rotary) -> None:
    encoding = rotary_encoding
    sets = encoding.frequencies().shape[0]
    assert sets in (1, encoding.heads)
    assert encoding.frequencies().shape == (sets, encoding.axes, encoding.head_dim // 2)
    basis = encoding.basis()
    if basis is not None:
        identity = torch.eye(encoding.head_dim, dtype=torch.float64).expand_as(basis)
        torch.testing.assert_close(basis @ basis.mT, identity, rtol=0, atol=1e-12)


def test_rotations_are_the_exponential_of_the_generators(
    rotary_encoding: Rotary, draw: Draw
) -> None:
    r, generators = draw(1, 4, rotary_encoding.axes), rotary_encoding.generators()
    torch.testing.assert_close(generators, -generators.mT, rtol=0, atol=1e-12)
    expected = torch.linalg.matrix_exp(torch.einsum("bnk,hkij->bhnij", r, generators).contiguous())
    torch.testing.assert_close(rotary_encoding.rotation(r), expected, rtol=0, atol=1e-10)


def test_generators_commute_and_are_independent(rotary_encoding: Rotary) -> None:
    generators = rotary_encoding.generators()
    products = generators.unsqueeze(2) @ generators.unsqueeze(1)
    torch.testing.assert_close(
        products, products.transpose(1, 2), rtol=0, atol=1e-9 * float(products.detach().abs().max())
    )
    rank = torch.linalg.matrix_rank(generators.flatten(2))
    assert (rank == rotary_encoding.axes).all() == rotary_encoding.injective()


def test_initial_parameters_distinguish_places_where_possible(starting_rotary: Rotary) -> None:
    blocks_of_one_direction = starting_rotary.head_dim // getattr(starting_rotary, "block", 2)
    assert starting_rotary.injective() == (blocks_of_one_direction >= starting_rotary.axes)


def test_zero_frequencies_are_reported_as_not_injective() -> None:
    encoding = CayleyString(2, 16, 3, wavelengths=(0.1, 1.0))
    assert encoding.injective()
    assert not encoding.zero_().injective()


def test_rotate_is_the_rotation_in_the_basis(encoding: PositionEncoding, draw: Draw) -> None:
    x, r = draw(2, encoding.heads, 5, encoding.head_dim), draw(2, 5, encoding.axes)
    applied = encoding.rotate(x, encoding.prepare(r))
    basis = encoding.basis()
    turned = applied if basis is None else applied @ basis.mT
    torch.testing.assert_close(
        turned, (encoding.rotation(r) @ x.unsqueeze(-1)).squeeze(-1), rtol=0, atol=1e-12
    )


def test_queries_and_keys_may_have_different_places(
    relative_encoding: PositionEncoding, draw: Draw
) -> None:
    encoding = relative_encoding
    q = draw(2, encoding.heads, 3, encoding.head_dim)
    k = draw(2, encoding.heads, 4, encoding.head_dim)
    r_q, r_k = draw(2, 3, encoding.axes), draw(2, 4, encoding.axes)
    logits = _logits(encoding, q, k, r_q, r_k)
    for i in range(3):
        from_there = _logits(
            encoding, q[:, :, i, None], k, torch.zeros_like(r_q[:, :1]), r_k - r_q[:, i, None]
        )
        torch.testing.assert_close(logits[:, :, i, None], from_there, rtol=0, atol=1e-11)


def test_a_common_shift_changes_no_logit(relative_encoding: PositionEncoding, draw: Draw) -> None:
    encoding = relative_encoding
    q, r = draw(2, encoding.heads, 6, encoding.head_dim), draw(2, 6, encoding.axes)
    has_position = torch.tensor([[True, True, False, True, False, True], [False] * 6])
    shift = 3 * draw(1, 1, encoding.axes)
    for choice in (has_position, None):
        before, after = (
            encoding.prepare(r + offset, choice) for offset in (torch.zeros_like(shift), shift)
        )
        logits = [
            encoding.rotate(q, places) @ encoding.rotate(q, places).mT for places in (before, after)
        ]
        torch.testing.assert_close(*logits, rtol=0, atol=1e-9)
        factors = [encoding.logit_factor(places, places) for places in (before, after)]
        if factors[0] is not None:
            torch.testing.assert_close(*factors, rtol=0, atol=1e-9)


def test_a_common_shift_changes_float32_logits_by_a_thousandth_at_most(
    relative_encoding: PositionEncoding, draw: Draw
) -> None:
    encoding = relative_encoding.float()
    q = draw(2, encoding.heads, 32, encoding.head_dim).float()
    r = draw(2, 32, encoding.axes).float() * 2.5
    before = _logits(encoding, q, q, r, r)
    for length in (0.1, 0.5, 2.0):
        shift = torch.full((1, 1, encoding.axes), length / encoding.axes**0.5)
        after = _logits(encoding, q, q, r + shift, r + shift)
        assert (after - before).abs().max() <= 1e-3 * before.abs().max()


def test_a_common_shift_changes_logits_of_other_encodings(
    encoding: PositionEncoding, draw: Draw
) -> None:
    if encoding.relative or (isinstance(encoding, LieRE) and encoding.block == 2):
        return
    x, r = draw(2, 6, encoding.heads * encoding.head_dim), draw(2, 6, encoding.axes)
    q = x.unflatten(-1, (encoding.heads, -1)).transpose(1, 2)
    shift = torch.full((1, 1, encoding.axes), 0.3, dtype=torch.float64)
    embedded = [encoding.prepare(each).embed(x) for each in (r, r + shift)]
    logits = [_logits(encoding, q, q, each, each) for each in (r, r + shift)]
    assert max(float((a - b).detach().abs().max()) for a, b in (embedded, logits)) > 0.001


def test_each_example_has_its_own_places(encoding: PositionEncoding, draw: Draw) -> None:
    x = draw(1, encoding.heads, 4, encoding.head_dim).expand(3, -1, -1, -1)
    r = draw(3, 4, encoding.axes)
    places = encoding.prepare(r)
    together = (
        encoding.rotate(x, places),
        places.embed(x.flatten(1, 2)[:, :4].repeat(1, 1, encoding.heads)),
    )
    for i in range(3):
        alone = encoding.prepare(r[i, None])
        torch.testing.assert_close(
            encoding.rotate(x[:1], alone)[0], together[0][i], rtol=0, atol=1e-12
        )
        embedded = alone.embed(x.flatten(1, 2)[:1, :4].repeat(1, 1, encoding.heads))
        torch.testing.assert_close(embedded[0], together[1][i], rtol=0, atol=1e-12)
    differs = [not torch.equal(each[0], each[1]) for each in together]
    factor = encoding.logit_factor(places, places)
    differs.append(factor is not None and not torch.equal(factor[0], factor[1]))
    assert any(differs) != isinstance(encoding, NoEncoding)


def test_tokens_without_a_place_are_at_the_centroid(encoding: PositionEncoding, draw: Draw) -> None:
    x, r = draw(2, encoding.heads, 4, encoding.head_dim), draw(2, 4, encoding.axes)
    has_position = torch.tensor([[True, False, True, True], [False, False, False, False]])
    expected = torch.stack((r[0], torch.zeros_like(r[1])))
    expected[0, 1] = r[0, [0, 2, 3]].mean(dim=0)
    r[~has_position] = torch.nan
    applied = encoding.rotate(x, encoding.prepare(r, has_position))
    torch.testing.assert_close(
        applied, encoding.rotate(x, encoding.prepare(expected)), rtol=0, atol=1e-12
    )


def test_phases_under_autocast_are_those_of_float32(encoding: PositionEncoding, draw: Draw) -> None:
    encoding.float()
    x = draw(2, encoding.heads, 5, encoding.head_dim).float()
    r = 2 * draw(2, 5, encoding.axes).float()
    plain = encoding.rotate(x, encoding.prepare(r))
    with torch.autocast("cpu", torch.bfloat16):
        places = encoding.prepare(r)
    torch.testing.assert_close(encoding.rotate(x, places), plain, rtol=0, atol=0)
    assert encoding.rotate(x.bfloat16(), places).dtype == torch.bfloat16


def test_redrawn_encodings_are_independent(starting_encoding: PositionEncoding) -> None:
    before = {name: value.clone() for name, value in starting_encoding.state_dict().items()}
    first, again = starting_encoding.redrawn(7), starting_encoding.redrawn(7)
    assert isinstance(first, type(starting_encoding))
    for name, value in starting_encoding.state_dict().items():
        assert torch.equal(value, before[name])
        assert torch.equal(first.state_dict()[name], again.state_dict()[name])
    fixed = {
        "Rope",
        "VisionLlamaRope",
        "RopeInLearnedBasis",
        "SinusoidalEncoding",
    }  # Their initial values are not random.
    if list(starting_encoding.parameters()) and type(starting_encoding).__name__ not in fixed:
        assert any(
            not torch.equal(value, before[name]) for name, value in first.state_dict().items()
        )


def test_no_parameter_has_weight_decay(encoding: PositionEncoding) -> None:
    assert encoding.no_weight_decay() == {name for name, _ in encoding.named_parameters()}


def test_apply_visits_all_modules(encoding: PositionEncoding) -> None:
    """No method hides `torch.nn.Module.apply`, which works as in every module."""
    seen: list[torch.nn.Module] = []
    assert encoding.apply(seen.append) is encoding
    assert set(seen) == set(encoding.modules())
    torch.nn.Sequential(encoding).apply(seen.append)
    assert encoding in seen


@pytest.mark.parametrize(
    ("shape", "dtype", "has_position", "message"),
    [
        ((2, 5, 7), torch.float32, None, r"Coordinates are \(2, 5, 7\) torch.float32"),
        ((5, 3), torch.float32, None, r"allowed: \(B, N, 3\)"),
        ((2, 5, 3), torch.int64, None, "torch.int64; allowed"),
        (
            (2, 5, 3),
            torch.float32,
            torch.ones(2, 4, dtype=torch.bool),
            r"has_position is \(2, 4\) torch.bool; allowed: \(2, 5\)",
        ),
        ((2, 5, 3), torch.float32, torch.ones(2, 5), "has_position is .* torch.float32"),
    ],
)
def test_invalid_coordinates_are_rejected(
    shape: tuple[int, ...], dtype: torch.dtype, has_position: Tensor | None, message: str
) -> None:
    encoding = CayleyString(2, 16, 3, wavelengths=(0.1, 1.0))
    with pytest.raises(ValueError, match=message):
        encoding.prepare(torch.zeros(shape, dtype=dtype), has_position)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_coordinates_are_rejected_where_a_token_has_a_place(
    value: float,
) -> None:
    encoding = CayleyString(2, 16, 3, wavelengths=(0.1, 1.0))
    r = torch.zeros(1, 2, 3)
    r[0, 1, 2] = value
    encoding.prepare(r, torch.tensor([[True, False]]))
    with pytest.raises(ValueError, match="NaN or infinite; set has_position=False"):
        encoding.prepare(r)
