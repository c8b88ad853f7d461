"""Rooms: numbers of objects, and placement without interpenetration."""

from itertools import combinations

import numpy as np
import pytest

from stringline.sim.scenes.asset_classes import make_asset
from stringline.sim.scenes.rooms import (
    ROOM_KINDS,
    Packing,
    PlacedAsset,
    Rectangle,
    Room,
    furnish,
    overlap,
)


def heights(one: PlacedAsset) -> tuple[float, float]:
    return one.position[2] + one.asset.low[2], one.position[2] + one.asset.high[2]


def ancestors(room: Room, number: int) -> set[int]:
    """Returns what carries an asset, directly or not."""
    support = room.placed[number].support
    return set() if support is None else {support} | ancestors(room, support)


@pytest.mark.parametrize("kind", ROOM_KINDS)
def test_objects_do_not_penetrate_each_other(kind: str) -> None:
    for number in range(6):
        room = furnish(kind, [number])
        assert 8 <= len(room.placed) <= 25
        for first, second in combinations(range(len(room.placed)), 2):
            if first in ancestors(room, second) or second in ancestors(room, first):
                continue
            a, b = room.placed[first], room.placed[second]
            above = heights(a)[0] >= heights(b)[1] - 1e-9 or heights(b)[0] >= heights(a)[1] - 1e-9
            assert above or not overlap(a.rectangle(), b.rectangle()), (a.asset, b.asset)


@pytest.mark.parametrize("kind", ROOM_KINDS)
def test_objects_stand_on_their_support_and_inside_of_the_room(kind: str) -> None:
    room = furnish(kind, [3])
    for one in room.placed:
        corners = one.rectangle().corners()
        assert (np.abs(corners) <= np.add(room.half, 1e-9)).all()
        if one.support is not None:
            below = room.placed[one.support]
            tops = [below.position[2] + top.z for top in below.asset.tops]
            assert np.abs(np.subtract(tops, heights(one)[0])).min() < 1e-9
            assert below.asset.stand != "wall"
        elif one.asset.stand == "floor":
            assert abs(heights(one)[0]) < 1e-9


def test_overlap_is_that_of_points() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        a, b = (
            Rectangle(*rng.uniform([-1, -1, 0.1, 0.1, -4], [1, 1, 0.8, 0.8, 4]).tolist())
            for _ in range(2)
        )
        grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 60)] * 2), -1).reshape(-1, 2)
        points = (grid * (a.half_x, a.half_y)) @ a.axes() + (a.x, a.y)
        local = np.abs((points - (b.x, b.y)) @ b.axes().T) - (b.half_x, b.half_y)
        depth = -local.max(1).min()
        # Points 0.03 apart miss only overlaps that are flatter than that.
        assert overlap(a, b) == (depth > 0) or abs(depth) < 0.05


def test_a_rectangle_beyond_the_edge_does_not_fit() -> None:
    packing = Packing(1.0, 1.0, 0.0)
    assert packing.fits(Rectangle(0.5, 0, 0.5, 0.5))
    assert not packing.fits(Rectangle(0.6, 0, 0.5, 0.5))
    packing.add(Rectangle(0.5, 0, 0.5, 0.5))
    assert packing.fits(Rectangle(-0.5, 0, 0.5, 0.5))
    assert not packing.fits(Rectangle(-0.4, 0, 0.5, 0.5))


def test_a_room_in_which_nothing_more_fits_is_named() -> None:
    expected = (
        r"Nothing more fits in a room of kind 'trays' after \d objects, of which "
        r"objects=\[12,12\] demands 12; allowed: fewer objects."
    )
    with pytest.raises(ValueError, match=expected):
        furnish("trays", [0], objects=(12, 12), choose=lambda name, rng: make_asset("bed", 0))
    with pytest.raises(ValueError, match="Did you mean 'trays'"):
        furnish("tray", [0])
    with pytest.raises(ValueError, match="allowed: the least number first"):
        furnish("trays", [0], objects=(9, 8))
