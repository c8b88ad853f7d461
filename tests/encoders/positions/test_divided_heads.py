"""Divided heads equal attention of each group with its own encoding, for every kind of encoding."""

import pytest
import torch
from tests.encoders.conftest import KINDS, Draw, make

from stringline import CayleyString, PositionEncoding
from stringline.encoders.positions.composite import DividedHeads, divided, with_time
from stringline.encoders.vision.vit import VisionTransformer


def both(kind: str) -> tuple[DividedHeads, list[PositionEncoding]]:
    """Returns two encodings of a kind with different parameters, and their union."""
    one, other = make(kind), make(kind)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    return DividedHeads([one, other]).double(), [one, other]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_group_of_heads_has_its_own_encoding(kind: str, draw: Draw) -> None:
    joined, parts = both(kind)
    r = draw(2, 5, joined.axes)
    known = torch.tensor([[True, True, False, True, True]] * 2)
    places = joined.prepare(r, known)
    q, k = draw(2, joined.heads, 5, joined.head_dim), draw(2, joined.heads, 5, joined.head_dim)
    tokens = draw(2, 5, joined.heads * joined.head_dim)
    first, axes = 0, parts[0].axes
    for group, part in enumerate(parts):
        heads = slice(first, first + part.heads)
        alone = part.prepare(r[..., group * axes : (group + 1) * axes], known)
        torch.testing.assert_close(places.rotate(q)[:, heads], alone.rotate(q[:, heads]))
        torch.testing.assert_close(
            places.rotate_inverse(k)[:, heads], alone.rotate_inverse(k[:, heads])
        )
        width = slice(first * part.head_dim, (first + part.heads) * part.head_dim)
        torch.testing.assert_close(
            places.embed(tokens)[..., width], alone.embed(tokens[..., width])
        )
        factor, expected = places.logit_factor(places), alone.logit_factor(alone)
        assert (factor is None) == (expected is None)
        if factor is not None and expected is not None:
            torch.testing.assert_close(factor[:, heads], expected.expand(-1, part.heads, -1, -1))
        first += part.heads


@pytest.mark.parametrize("kind", ["cayley", "circulant_8", "mixed_per_head", "rope_in_givens"])
def test_folding_changes_nothing(kind: str, draw: Draw) -> None:
    joined, _ = both(kind)
    network = VisionTransformer(joined, joined.heads * joined.head_dim, depth=2).double()
    x, r = draw(2, 5, joined.heads * joined.head_dim), draw(2, 5, joined.axes)
    expected = network(x, r)
    network.fold_()
    torch.testing.assert_close(network(x, r), expected)


def test_further_places_have_the_basis_of_the_first(draw: Draw) -> None:
    joined, _ = both("cayley")
    r = draw(2, 5, joined.axes)
    first = joined.prepare(draw(2, 3, joined.axes))
    x = draw(2, joined.heads, 5, joined.head_dim)
    torch.testing.assert_close(joined.prepare(r, like=first).rotate(x), joined.prepare(r).rotate(x))


def test_time_is_common_to_all_groups(draw: Draw) -> None:
    """A common shift of the time of all tokens has no effect; one of a group's space neither."""
    parts = divided(
        lambda **sizes: CayleyString(wavelengths=(0.1, 2.0), **sizes),
        heads=3,
        head_dim=8,
        axes=3,
        groups=2,
    )
    assert [part.heads for part in parts] == [2, 1]
    frequencies = [part.frequencies() for part in parts if isinstance(part, CayleyString)]
    assert not torch.equal(*frequencies), "the groups start with different frequencies"
    joined = DividedHeads([with_time(part, (0.2, 8.0)) for part in parts], common=1).double()
    assert joined.axes == 7
    network = VisionTransformer(joined, 24, depth=1).double()
    x, r = draw(2, 5, 24), draw(2, 5, 7)
    shift = torch.tensor([0.3, -1.0, 2.0, 0.0, 0.5, 0.1, 4.0], dtype=torch.float64)
    torch.testing.assert_close(network(x, r + shift), network(x, r))
    known = torch.tensor([[True, True, False, True, True]] * 2)
    later = r + torch.tensor([0.0] * 6 + [1.0], dtype=torch.float64) * ~known[..., None]
    assert (network(x, later, known) - network(x, r, known)).abs().max() > 1e-4, "own time counts"


def test_fewer_heads_than_frames_are_reported() -> None:
    with pytest.raises(ValueError, match=r"2 heads for 3 frames; allowed: at least one head"):
        divided(CayleyString, heads=2, head_dim=8, axes=3, groups=3)
