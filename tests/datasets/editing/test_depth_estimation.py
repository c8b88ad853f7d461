"""Estimated depth is stored in a copy, marked, and replaces existing depth only on request."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.datasets.conftest import MakeEpisode

from stringline import Contract, EpisodeAttributes, EpisodeStore
from stringline.datasets.editing.derived_stores import DepthEstimation, estimate_depth


def by_brightness(images: NDArray[Any]) -> NDArray[np.float64]:
    """An estimator with known results: 1 m per 100 of red; three pixels are invalid."""
    metres = images[..., 0] / 100.0
    metres[:, 0, :3] = (np.nan, -1.0, 11.0)
    return metres


@pytest.fixture
def store(contract: Contract, make_episode: MakeEpisode, tmp_path: Path) -> EpisodeStore:
    store = EpisodeStore.create(tmp_path / "store")
    for seed in range(2):
        store.write(
            make_episode(seed=seed), EpisodeAttributes(contract, "small", seed, extra={"kept": 1})
        )
    return store


def test_depth_is_written_and_marked(store: EpisodeStore, tmp_path: Path) -> None:
    estimation = DepthEstimation(by_brightness, "red", ["wrist"], depth_unit_m=0.0005, batch=3)
    copy = estimate_depth(store, tmp_path / "copy", estimation)
    assert copy.names() == store.names()
    for old, new in zip(store.episodes(), copy.episodes(), strict=True):
        contract = new.attributes.contract
        assert contract.camera("wrist") == replace(
            old.attributes.contract.camera("wrist"), depth="estimated", depth_unit_m=0.0005
        )
        assert contract.camera("front") == old.attributes.contract.camera("front")
        assert new.attributes.extra["kept"] == 1
        assert new.attributes.extra["estimated_depth"] == {
            "of": old.name,
            "model": "red",
            "cameras": ["wrist"],
        }
        depth = new.arrays["depth/wrist"]
        np.testing.assert_array_equal(
            depth[:, 1:], np.rint(old.arrays["rgb/wrist"][:, 1:, :, 0] * 20.0)
        )
        assert not depth[:, 0, :3].any(), "unknown depth is stored as no return"
        assert depth.nbytes == estimation.size(old)
        assert {key for key in new.arrays} - {key for key in old.arrays} == {"depth/wrist"}
        for key in old.arrays:
            np.testing.assert_array_equal(new.arrays[key], old.arrays[key])
        assert not new.damaged()
        assert "depth/wrist" not in old.arrays


def test_a_copy_is_completed(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode, tmp_path: Path
) -> None:
    estimation = DepthEstimation(by_brightness, "red", ["wrist"])
    first = estimate_depth(store, tmp_path / "copy", estimation)
    written = {name: (first.path / name / "zarr.json").stat().st_mtime_ns for name in first.names()}
    added = store.write(make_episode(seed=7), EpisodeAttributes(contract, "small", 7))
    copy = estimate_depth(store, tmp_path / "copy", estimation)
    assert set(copy.names()) - set(written) == {added}
    assert written == {
        name: (copy.path / name / "zarr.json").stat().st_mtime_ns for name in written
    }
    with pytest.raises(
        ValueError,
        match=r"has episodes with depth by red, not by blue. Choose another folder",
    ):
        estimate_depth(store, tmp_path / "copy", replace(estimation, model="blue"))


def test_existing_depth_is_replaced_only_on_request(store: EpisodeStore, tmp_path: Path) -> None:
    estimation = DepthEstimation(by_brightness, "red")
    with pytest.raises(
        ValueError,
        match=(
            r"Camera 'front' has simulated depth already, .*cameras=\[wrist\], or set "
            r"replace_depth=true"
        ),
    ):
        estimate_depth(store, tmp_path / "copy", estimation)
    assert not (tmp_path / "copy").exists()
    copy = estimate_depth(store, tmp_path / "copy", replace(estimation, replace_depth=True))
    for old, new in zip(store.episodes(), copy.episodes(), strict=True):
        assert [camera.depth for camera in new.attributes.contract.cameras] == [
            "estimated",
            "estimated",
        ]
        np.testing.assert_array_equal(
            new.arrays["depth/front"][:, 1:], old.arrays["rgb/front"][:, 1:, :, 0] * 10.0
        )
        assert (new.arrays["depth/front"] != old.arrays["depth/front"]).any()


def test_invalid_estimations(store: EpisodeStore, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no camera 'wirst'. Did you mean 'wrist'"):
        estimate_depth(store, tmp_path / "copy", DepthEstimation(by_brightness, "red", ["wirst"]))
    with pytest.raises(ValueError, match=r"batch must be an integer of at least 1"):
        DepthEstimation(by_brightness, "red", batch=0)
    with pytest.raises(ValueError, match="farthest_m is 100.0; allowed at a unit of 0.001 m"):
        DepthEstimation(by_brightness, "red", farthest_m=100.0)
    crooked = DepthEstimation(lambda images: by_brightness(images)[:, 1:], "crooked", ["wrist"])
    with pytest.raises(
        ValueError,
        match=r"crooked returned depth of shape \(7, 3, 4\) for images of shape \(7, 4, 4, 3\)",
    ):
        estimate_depth(store, tmp_path / "copy", crooked)
    assert EpisodeStore.open(tmp_path / "copy").names() == []
