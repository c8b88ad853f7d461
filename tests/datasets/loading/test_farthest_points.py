"""Farthest point sampling by a naive reference, and the clouds that it makes of a scene."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.datasets.loading.test_workspace_clouds import (
    SEEN_BY,
    WORKSPACE,
    maker,
    scene,
)
from tests.policies.demonstrations import CAMERAS, CONTRACT, make_store

from stringline import Windows
from stringline.datasets.loading.farthest_points import (
    SampledCloudMaker,
    SampledCloudSettings,
    farthest_points,
)
from stringline.datasets.loading.workspace_clouds import Cloud, Workspace

SEEN = replace(CONTRACT, cameras=tuple(SEEN_BY))


def sampled(**settings: object) -> SampledCloudMaker:
    return SampledCloudMaker(SEEN_BY, WORKSPACE, SEEN, SampledCloudSettings(**settings))  # type: ignore[arg-type]


def places(cloud: Cloud) -> set[tuple[float, ...]]:
    return {tuple(row) for row in cloud.points[: cloud.count].tolist()}


def gaps(points: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Returns the distance of each point from the nearest chosen one."""
    found: np.ndarray = np.linalg.norm(points[:, None] - points[chosen], axis=-1).min(axis=1)
    return found


@pytest.mark.parametrize("count", [1, 2, 17, 60])
def test_each_point_is_the_farthest_from_those_before(count: int) -> None:
    points = np.random.default_rng(count).normal(size=(60, 3))
    chosen = farthest_points(points, count)
    assert len(set(chosen.tolist())) == count
    middle = np.linalg.norm(points - points.mean(axis=0), axis=1)
    assert middle[chosen[0]] == middle.max()
    for number in range(1, count):
        away = gaps(points, chosen[:number])
        assert away[chosen[number]] == pytest.approx(away.max())


def test_the_largest_gap_is_at_most_twice_the_least_possible_one() -> None:
    points = np.random.default_rng(1).random((9, 3))
    for count in (2, 3):
        choices = np.stack(np.meshgrid(*[np.arange(9)] * count), -1).reshape(-1, count)
        least = min(gaps(points, choice).max() for choice in choices)
        assert gaps(points, farthest_points(points, count)).max() <= 2 * least


def test_the_order_of_the_points_does_not_matter() -> None:
    points = np.random.default_rng(2).random((200, 3)).astype(np.float32)
    order = np.random.default_rng(3).permutation(200)
    first, second = (each[farthest_points(each, 40)] for each in (points, points[order]))
    np.testing.assert_array_equal(first, second)


def test_few_points_are_all_chosen() -> None:
    points = np.random.default_rng(4).random((5, 3))
    assert sorted(farthest_points(points, 9).tolist()) == list(range(5))
    assert farthest_points(points, 2, first=3)[0] == 3


def test_a_sampled_cloud_has_the_points_above_the_support_that_are_far_apart() -> None:
    every = maker()(scene())
    cloud = sampled(points=64)(scene())
    assert cloud.count == 64
    assert places(cloud) < places(every)
    assert (cloud.points[:, 2] > cloud.support + 0.005).all()
    above = every.points[: every.count]
    above = above[above[:, 2] > every.support + 0.005]
    fewer = above[np.random.default_rng(0).choice(len(above), 64, replace=False)]
    kept, drawn = (
        np.linalg.norm(above[:, None] - each, axis=-1).min(axis=1).max()
        for each in (cloud.points, fewer)
    )
    assert kept < 0.6 * drawn
    low = sampled(points=64, support=True)(scene()).points[:, 2]
    assert (low < cloud.support + 0.005).sum() > 10


def test_an_empty_table_is_sampled_itself() -> None:
    box = Workspace((0.15, -0.3, -0.05), (0.3, 0.3, 0.4))
    cloud = SampledCloudMaker(SEEN_BY, box, SEEN, SampledCloudSettings(points=32))(scene())
    assert cloud.count == 32
    assert np.abs(cloud.points[:, 2]).max() < 0.005


def test_clouds_are_the_same_in_each_call_and_decided_by_their_settings() -> None:
    first, second = (sampled(points=64)(scene()) for _ in range(2))
    assert first.points.tobytes() == second.points.tobytes()
    makers = [
        maker(),
        sampled(),
        sampled(points=64),
        sampled(support=True),
        sampled(robot=False),
    ]
    assert len({each.digest for each in makers}) == len(makers)
    assert sampled().embodiment is None
    assert sampled(robot=False).embodiment is not None


def test_a_cloud_with_too_few_points_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    few = sampled(points=1024, voxel_m=0.05)
    with caplog.at_level(logging.WARNING):
        clouds = [few(scene()) for _ in range(2)]
    assert len(caplog.records) == 1
    assert f"{clouds[0].count} points; 1024" in caplog.text
    assert "voxel_m" in caplog.text
    assert (clouds[0].points[clouds[0].count :] == 0).all()


def test_a_robot_without_kinematics_cannot_be_removed() -> None:
    unknown = replace(SEEN, embodiment="sawyer")
    SampledCloudMaker(SEEN_BY, WORKSPACE, unknown, SampledCloudSettings())
    with pytest.raises(ValueError, match=r"clouds.robot .*sawyer.*true"):
        SampledCloudMaker(SEEN_BY, WORKSPACE, unknown, SampledCloudSettings(robot=False))


def test_windows_contain_the_clouds_of_their_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = make_store(tmp_path / "store", 2)
    wide = Workspace((-2.0, -2.0, -2.0), (2.0, 2.0, 2.0))
    cameras = [CONTRACT.camera(name) for name in CAMERAS[:2]]
    clouds = SampledCloudMaker(
        cameras, wide, CONTRACT, SampledCloudSettings(points=32, voxel_m=0.05)
    )
    chosen = {"chunk": 4, "cameras": CAMERAS[:2], "clouds": clouds}
    every = Windows(store, **chosen, clouds_hz=50.0, past=(8,))
    assert every.step.tolist() == 2 * list(range(0, 24, 4))
    batch = every.batch(np.arange(12))
    assert batch["past/cloud/points"].shape == (12, 1, 32, 3)
    assert not any(key.startswith(("past/rgb", "past/depth")) for key in batch)
    for kind in ("points", "colours", "count"):
        now = batch[f"cloud/{kind}"].reshape(2, 6, *batch[f"cloud/{kind}"].shape[1:])
        past = batch[f"past/cloud/{kind}"][:, 0].reshape(now.shape)
        np.testing.assert_array_equal(past[:, 2:], now[:, :-2])
        np.testing.assert_array_equal(past[:, :2], now[:, [0, 0]])
    assert batch["past_mask"][:, 0].tolist() == 2 * [False, False, True, True, True, True]
    assert Windows(store, **chosen).step.tolist() == 2 * [0, 8, 16]
    assert not any(key.startswith("past") for key in Windows(store, **chosen)[0])
