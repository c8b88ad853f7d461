"""Assets: tight boxes, identity, names."""

import numpy as np
import pytest

from stringline.sim.scenes.asset_classes import CLASSES, make_asset, size_word
from stringline.sim.scenes.assets import Asset, Solid, Vectors

COUNT = 12


def surface(solid: Solid) -> Vectors:
    """Returns points (P, 3) of the surface of a solid, its extreme ones among them."""
    if solid.mesh is not None:
        local = solid.mesh.vertices
    elif solid.form == "box":
        local = np.array(np.meshgrid(*[(-1.0, 1.0)] * 3)).reshape(3, -1).T
    else:
        turn, rise = np.meshgrid(np.linspace(0, 2 * np.pi, 181), np.linspace(-1, 1, 91))
        wide = np.sqrt(1 - rise**2) if solid.form == "ellipsoid" else np.ones_like(rise)
        local = np.stack([wide * np.cos(turn), wide * np.sin(turn), rise], -1).reshape(-1, 3)
    return np.asarray(solid.centre + (local * solid.half) @ solid.rotation.T)


@pytest.mark.parametrize("name", CLASSES)
def test_boxes_are_tight(name: str) -> None:
    for variant in range(3):
        asset = make_asset(name, variant)
        points = np.concatenate([surface(solid) for solid in asset.solids])
        np.testing.assert_allclose(points.min(0), asset.low, atol=2e-4 + 2e-3 * asset.size.max())
        np.testing.assert_allclose(points.max(0), asset.high, atol=2e-4 + 2e-3 * asset.size.max())
        assert (points.min(0) >= asset.low - 1e-9).all()
        assert (points.max(0) <= asset.high + 1e-9).all()


def drawn() -> list[Asset]:
    return [make_asset(name, variant) for name in CLASSES for variant in range(COUNT)]


def test_there_are_30_classes_and_each_identity_is_one_form() -> None:
    assets = drawn()
    assert len(CLASSES) >= 30
    assert len({asset.identity for asset in assets}) == len(assets)
    assert len({tuple(asset.size.round(6)) for asset in assets}) == len(assets)
    for asset in assets:
        assert (
            asset.name.split()[-1] == asset.noun or " of " in asset.name or asset.name == "cactus"
        )


def test_a_variant_is_the_same_each_time() -> None:
    make_asset.cache_clear()
    first = make_asset("mug", 3)
    make_asset.cache_clear()
    again = make_asset("mug", 3)
    assert first is not again
    assert first.colour == again.colour
    for one, other in zip(first.solids, again.solids, strict=True):
        np.testing.assert_array_equal(one.centre, other.centre)
        assert one.colour == other.colour


def test_small_ones_are_smaller_than_large_ones() -> None:
    mugs = [make_asset("mug", variant) for variant in range(60)]
    lengths = {
        word: [np.linalg.norm(mug.size) for mug in mugs if size_word(mug) == word]
        for word in ("small", "", "large")
    }
    assert max(lengths["small"]) < min(lengths[""])
    assert max(lengths[""]) < min(lengths["large"])


def test_an_unknown_class_is_refused() -> None:
    with pytest.raises(ValueError, match="There is no class of assets 'mugg'. Did you mean 'mug'"):
        make_asset("mugg", 0)
    with pytest.raises(ValueError, match=r"variant must be an integer of at least 0 \(got -1\)."):
        make_asset("mug", -1)
