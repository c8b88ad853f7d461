"""Training copies: images shrink as in Pillow, holes have no weight in depth, positions stay."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.datasets.conftest import MakeEpisode

from stringline import Contract, EpisodeAttributes, EpisodeStore
from stringline.datasets.cameras.resampling import (
    DepthResampling,
    ImageSize,
    resample_colour,
    resample_depth,
    resample_intrinsics,
)
from stringline.datasets.editing.derived_stores import Resolution, cache
from stringline.datasets.editing.edit import delete, trim
from stringline.datasets.store.store import verify_store

SIZES = st.tuples(st.integers(1, 40), st.integers(1, 40))


@settings(max_examples=60)
@given(SIZES, SIZES, st.integers(0, 9))
def test_colour_is_the_mean_over_the_area(
    old: tuple[int, int], new: tuple[int, int], seed: int
) -> None:
    """Shrinking agrees with Pillow's box filter within 1; Pillow rounds between two passes."""
    new = min(old[0], new[0]), min(old[1], new[1])
    images = np.random.default_rng(seed).integers(0, 256, (2, *old, 3), np.uint8)
    resampled = resample_colour(images, *new)
    assert resampled.shape == (2, *new, 3)
    for got, image in zip(resampled, images, strict=True):
        box = np.asarray(
            Image.fromarray(image).resize((new[1], new[0]), Image.Resampling.BOX), np.int16
        )
        # Pillow counts a pixel at an edge fully or not at all: only whole factors are comparable.
        if old[0] % new[0] == 0 and old[1] % new[1] == 0:
            assert np.abs(box - got).max() <= 1


@settings(max_examples=60)
@given(SIZES, SIZES, st.integers(0, 9))
def test_the_mean_of_an_image_stays(old: tuple[int, int], new: tuple[int, int], seed: int) -> None:
    """Areas cover the image once, for any sizes; rounding is half a value at most."""
    images = np.random.default_rng(seed).integers(0, 256, (3, *old, 3), np.uint8)
    before, after = images.mean((1, 2)), resample_colour(images, *new).mean((1, 2))
    np.testing.assert_allclose(after, before, atol=0.51)


def test_the_same_size_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (20, 7, 5, 3), np.uint8)
    depth = rng.integers(0, 65536, (20, 7, 5)).astype(np.uint16)
    np.testing.assert_array_equal(resample_colour(images, 7, 5), images)
    np.testing.assert_array_equal(resample_depth(depth, 7, 5), depth)
    np.testing.assert_array_equal(resample_depth(depth, 7, 5, "valid_mean"), depth)
    np.testing.assert_array_equal(resample_depth(depth, 7, 5, "nearest"), depth)


@settings(max_examples=60)
@given(SIZES, SIZES, st.floats(0, 1), st.integers(0, 9))
def test_holes_do_not_reduce_depth(
    old: tuple[int, int], new: tuple[int, int], holes: float, seed: int
) -> None:
    """A wall at 60000 counts with holes: each pixel is 60000, or 0 if most of its area is empty."""
    rng = np.random.default_rng(seed)
    depth = np.where(rng.random((2, *old)) < holes, 0, 60000).astype(np.uint16)
    for how in get_args(DepthResampling):
        assert set(np.unique(resample_depth(depth, *new, how=how))) <= {0, 60000}
    if old[0] % new[0] == 0 and old[1] % new[1] == 0:
        blocks = depth.reshape(2, new[0], old[0] // new[0], new[1], old[1] // new[1]) > 0
        for how in ("nearest_valid", "valid_mean"):
            np.testing.assert_array_equal(
                resample_depth(depth, *new, how) > 0, blocks.mean((2, 4)) >= 0.5
            )


def test_only_the_mean_adds_values() -> None:
    """At an edge, the default depth of imports and training copies is on one of the surfaces."""
    depth = np.array([[[100, 300], [0, 200]]], np.uint16)
    assert resample_depth(depth, 1, 1, "valid_mean").item() == 200
    rng = np.random.default_rng(0)
    edge = rng.choice(np.array([500, 900], np.uint16), (3, 12, 12))
    assert set(np.unique(resample_depth(edge, 5, 5, "nearest"))) == {500, 900}
    assert set(np.unique(resample_depth(edge, 5, 5))) == {500, 900}
    assert set(np.unique(ImageSize(5, 5, "resize").depth(edge[0]))) == {500, 900}
    assert set(np.unique(resample_depth(edge, 5, 5, "valid_mean"))) - {500, 900}


@settings(max_examples=60)
@given(SIZES, SIZES, st.integers(0, 9))
def test_the_depth_is_that_of_the_nearest_valid_pixel_of_the_area(
    old: tuple[int, int], new: tuple[int, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    depth = rng.integers(1, 2**16, (1, *old)).astype(np.uint16)
    depth[rng.random(depth.shape) < 0.3] = 0
    resampled = resample_depth(depth, *new)[0]
    rows, columns = (np.arange(size) + 0.5 for size in old)
    for row, column in np.argwhere(resampled > 0):
        down = abs(rows / old[0] * new[0] - row - 0.5)
        across = abs(columns / old[1] * new[1] - column - 0.5)
        half = [(0.5 + 0.5 * new[axis] / old[axis]) for axis in (0, 1)]
        inside = (down[:, None] < half[0] - 1e-9) & (across < half[1] - 1e-9) & (depth[0] > 0)
        square = (down * old[0] / new[0])[:, None] ** 2 + (across * old[1] / new[1]) ** 2
        distance = np.where(inside, square, np.inf)
        near = distance < distance.min() + 1e-4
        assert resampled[row, column] in depth[0][near]


def test_intrinsics_follow_the_pixels() -> None:
    """A point is projected to the same share of the width and the height."""
    before = np.array([[600, 0, 311.5], [0, 590, 250.25], [0, 0, 1]], np.float32)
    after = resample_intrinsics(before, (480, 640), (96, 128))
    place = np.array([0.1, -0.2, 1.3])
    (u, v, w), (x, y, z) = before @ place, after @ place
    np.testing.assert_allclose((x / z / 128, y / z / 96), (u / w / 640, v / w / 480), rtol=1e-6)


@pytest.fixture
def store(tmp_path: Path, contract: Contract, make_episode: MakeEpisode) -> EpisodeStore:
    """Three episodes; `front` is 6x8 with depth, `wrist` 4x4."""
    store = EpisodeStore.create(tmp_path / "store")
    for seed in range(3):
        store.write(
            make_episode(seed=seed),
            EpisodeAttributes(contract, "reach", seed, True, instruction="touch it"),
        )
    return store


def test_a_training_copy(store: EpisodeStore, tmp_path: Path) -> None:
    resolution = Resolution(3, 4)
    copy = cache(store, tmp_path / "copy", resolution)
    assert copy.names() == store.names()
    assert verify_store(copy) == {}
    for name in copy.names():
        old, new = store.episode(name), copy.episode(name)
        assert resolution.size(old) == new.nbytes
        assert new.attributes.contract.camera("front").height == 3
        assert new.attributes.extra["cache"] == {
            "of": name,
            "height": 3,
            "width": 4,
            "depth": "nearest_valid",
        }
        assert replace(new.attributes, contract=old.attributes.contract, extra={}) == old.attributes
        np.testing.assert_array_equal(
            new.arrays["rgb/front"], resample_colour(old.arrays["rgb/front"], 3, 4)
        )
        np.testing.assert_array_equal(
            new.arrays["depth/front"], resample_depth(old.arrays["depth/front"], 3, 4)
        )
        np.testing.assert_allclose(
            new.arrays["intrinsics/wrist"],
            old.arrays["intrinsics/wrist"] * [[1], [0.75], [1]],
            rtol=1e-6,
        )
        for key in set(old.arrays) - {
            f"{kind}/{name}"
            for kind in ("rgb", "depth", "intrinsics")
            for name in ("front", "wrist")
        }:
            np.testing.assert_array_equal(new.arrays[key], old.arrays[key])


def test_chosen_cameras_only(store: EpisodeStore, tmp_path: Path) -> None:
    resolution = Resolution(6, 8, ["front"], "nearest")
    copy = cache(store, tmp_path / "copy", resolution)
    episode = copy.episode(copy.names()[0])
    assert not [key for key in episode.arrays if key.endswith("/wrist")]
    assert [camera.name for camera in episode.attributes.contract.cameras] == ["front"]
    assert resolution.size(store.episode(episode.name)) == episode.nbytes


def test_a_copy_of_colours_only(store: EpisodeStore, tmp_path: Path) -> None:
    resolution = Resolution(3, 4, depth_method="none")
    copy = cache(store, tmp_path / "copy", resolution)
    assert verify_store(copy) == {}
    old, episode = (each.episode(copy.names()[0]) for each in (store, copy))
    assert not any(camera.depth for camera in episode.attributes.contract.cameras)
    assert "depth/front" in old.arrays
    assert set(episode.arrays) == {key for key in old.arrays if not key.startswith("depth/")}
    assert resolution.size(old) == episode.nbytes


def test_a_copy_is_completed_not_repeated(store: EpisodeStore, tmp_path: Path) -> None:
    copy = cache(store, tmp_path / "copy", Resolution(3, 4))
    first, *others = copy.names()
    (copy.path / first).rename(tmp_path / "away")
    times = {name: (copy.path / name / "zarr.json").stat().st_mtime_ns for name in others}
    assert cache(store, copy.path, Resolution(3, 4)).names() == store.names()
    assert {name: (copy.path / name / "zarr.json").stat().st_mtime_ns for name in others} == times


def test_a_copy_of_a_store_that_was_edited_since_is_refused(
    store: EpisodeStore, tmp_path: Path
) -> None:
    """It would keep a deleted episode, and both forms of a trimmed one."""
    cache(store, tmp_path / "copy", Resolution(3, 4))
    gone, short, *_ = store.names()
    delete(store, [gone])
    trim(store, [short], to_s=0.3)
    with pytest.raises(ValueError, match=rf"holds 2 of 3 episodes .* \({gone}, {short}\)"):
        cache(store, tmp_path / "copy", Resolution(3, 4))


def test_mistakes(
    store: EpisodeStore, tmp_path: Path, contract: Contract, make_episode: MakeEpisode
) -> None:
    cache(store, tmp_path / "copy", Resolution(3, 4))
    with pytest.raises(
        ValueError,
        match="has images of front 3x4, wrist 3x4; requested: front 2x4, wrist 2x4. Choose another",
    ):
        cache(store, tmp_path / "copy", Resolution(2, 4))
    with pytest.raises(
        ValueError,
        match="'wrist' was recorded at 4x4, smaller than a training copy at 6x4. Choose at most",
    ):
        cache(store, tmp_path / "new", Resolution(6, 4))
    with pytest.raises(ValueError, match="There is no camera 'frond'. Did you mean 'front'"):
        cache(store, tmp_path / "new", Resolution(3, 4, ["frond"]))
    with pytest.raises(ValueError, match="allowed: positive numbers"):
        Resolution(0, 4)
    with pytest.raises(ValueError, match="way to resample depth 'nearst'. Did you mean 'nearest'"):
        Resolution(3, 4, None, "nearst")  # type: ignore[arg-type]
    other = EpisodeStore.create(tmp_path / "other")
    other.write(make_episode(), EpisodeAttributes(contract, "reach", 9))
    with pytest.raises(ValueError, match=r"copy holds 3 of 3 episodes that this command would not"):
        cache(other, tmp_path / "copy", Resolution(3, 4))


@pytest.mark.parametrize(
    "spoil", [lambda data: data[:-1], lambda data: bytes([data[0] ^ 1]) + data[1:]]
)
def test_a_damaged_episode_does_not_prevent_copies_of_the_others(
    store: EpisodeStore, tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    """The damaged one is not copied, since its copy would have valid checksums."""
    bad, *good = store.names()
    chunk = store.path / bad / "rgb.front/c/0/0/0/0"
    chunk.write_bytes(spoil(chunk.read_bytes()))
    with pytest.raises(
        ValueError,
        match=f"1 of 3 episodes are damaged, the others are done. Episode {bad}: rgb/front has",
    ):
        cache(store, tmp_path / "copy", Resolution(3, 4))
    assert EpisodeStore.open(tmp_path / "copy").names() == good
