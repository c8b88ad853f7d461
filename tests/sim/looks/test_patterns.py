"""Textures are deterministic, within range, and fit together at their edges."""

from itertools import chain

import numpy as np
import pytest

from stringline.sim.looks.families import HELD_OUT, OF_OBJECT, SEEN, Family

SIDE = 64
ALL = {
    family.name: family
    for half in (SEEN, HELD_OUT)
    for family in chain(half.tables, half.floors, half.walls, half.objects, OF_OBJECT.values())
}


@pytest.mark.parametrize("family", ALL.values(), ids=list(ALL))
def test_a_texture_is_determined_by_its_seed(family: Family) -> None:
    first, again, other = (family.pattern(SIDE, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert first.shape == (SIDE, SIDE, 3)
    assert first.min() >= 0
    assert first.max() <= 1
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert all(0 <= value <= 1 for value in family.gloss)


@pytest.mark.parametrize("family", [*SEEN.tables, *HELD_OUT.tables], ids=lambda each: each.name)
def test_the_edges_of_a_table_fit_together(family: Family) -> None:
    image = family.pattern(128, np.random.default_rng(0))
    for axis in (0, 1):
        steps = np.abs(np.diff(image, axis=axis)).mean(axis=(1 - axis, 2))
        across = np.abs(image.take(0, axis) - image.take(-1, axis)).mean()
        assert across <= 1.5 * steps.max(), "like a joint within the image"
