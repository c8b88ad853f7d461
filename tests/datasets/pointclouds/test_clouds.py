"""Clouds lie exactly on analytic planes, and on the table of the simulation."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stringline import Camera, pose, rotation_about
from stringline.datasets.pointclouds.clouds import (
    Cloud,
    back_projected,
    cloud_cameras,
    depth_view,
    find_episode,
    fused_cloud,
    open3d,
    transformed,
    write_ply,
)
from stringline.datasets.store.episode import StoredEpisode

TABLE_MM = 0.6  # Depth is stored in whole millimetres.
ALL = ["overhead", "wrist_left", "wrist_right", "table"]


def test_the_points_of_a_tilted_plane_lie_on_it() -> None:
    T = pose((0.1, -0.2, 0.9), rotation_about([1.0, 0.0, 0.0], np.pi - 0.4))
    K = np.array([[50.0, 0.5, 31.0], [0.0, 48.0, 23.0], [0.0, 0.0, 1.0]])
    u, v = np.meshgrid(np.arange(64) + 0.5, np.arange(48) + 0.5)
    y = (v - K[1, 2]) / K[1, 1]
    x = (u - K[0, 2] - K[0, 1] * y) / K[0, 0]
    down = T[2, 0] * x + T[2, 1] * y + T[2, 2]  # Descent of a ray with z = 1 in the base frame.
    depth = -T[2, 3] / down
    points = transformed(T, back_projected(depth, K))
    assert (depth > 0).all()
    np.testing.assert_allclose(points[..., 2], 0.0, atol=1e-12)
    np.testing.assert_allclose(
        points[0, 0, 0], T[0, 3] + depth[0, 0] * (T[0, :3] @ [x[0, 0], y[0, 0], 1.0]), atol=1e-12
    )


@pytest.mark.parametrize("step", [0, 57, -1])
def test_the_clouds_of_all_cameras_lie_on_the_table(episode: StoredEpisode, step: int) -> None:
    for cameras in (*([name] for name in ALL), None):
        points = fused_cloud(episode, step, cameras).points
        on_table = points[(np.abs(points[:, 2]) < 0.004)]
        assert len(on_table) > 0.25 * len(points)
        assert np.percentile(np.abs(on_table[:, 2]), 95) < TABLE_MM / 1000
        inside = (np.abs(points[:, 0]) < 0.59) & (np.abs(points[:, 1] - 0.019) < 0.37)
        assert points[inside, 2].min() > -0.002, "nothing is seen below the table's top"


def test_a_fused_cloud_contains_every_return_and_no_hole(episode: StoredEpisode) -> None:
    fused = fused_cloud(episode, 30)
    views = [depth_view(episode, name, 30) for name in ALL]
    holes = sum(int((view.depth == 0).sum()) for view in views)
    assert holes > 0
    assert len(fused) == sum(view.depth.size for view in views) - holes
    np.testing.assert_array_equal(
        fused.colours[: len(views[0].cloud())], views[0].colours[views[0].depth > 0]
    )
    assert not np.any(np.all(fused.points == views[0].T_base_camera[:3, 3], axis=1))


@pytest.mark.slow
def test_a_ply_file_reads_back_equal(episode: StoredEpisode, tmp_path: Path) -> None:
    cloud = fused_cloud(episode, -1)
    write_ply(cloud, tmp_path / "new" / "cloud.ply")
    again = open3d().io.read_point_cloud(str(tmp_path / "new" / "cloud.ply"))
    np.testing.assert_array_equal(np.asarray(again.points), cloud.points)
    np.testing.assert_array_equal(np.rint(np.asarray(again.colors) * 255), cloud.colours)


def test_invalid_ply_files(episode: StoredEpisode, tmp_path: Path) -> None:
    empty = Cloud(np.zeros((0, 3)), np.zeros((0, 3), np.uint8))
    with pytest.raises(ValueError, match=r"written as a .ply file; got .*cloud.obj"):
        write_ply(empty, tmp_path / "cloud.obj")
    with pytest.raises(ValueError, match=r"The cloud is empty: no camera has a valid depth pixel"):
        write_ply(empty, tmp_path / "cloud.ply")
    with pytest.raises(ValueError, match=r"has 100 steps; got step 100"):
        fused_cloud(episode, 100)


def test_cameras_without_a_cloud_are_reported_with_a_reason(episode: StoredEpisode) -> None:
    contract = episode.attributes.contract
    seeing = Camera("seeing", 4, 4, "measured")
    others = (
        Camera("flat", 4, 4),
        Camera("lost", 4, 4, "measured", has_geometry=False),
        Camera("bent", 4, 4, "measured", distortion_model="brown_conrady"),
    )
    assert cloud_cameras(contract.with_cameras(seeing, *others)) == ["seeing"]
    for name, reason in (
        ("flat", "it has no depth"),
        ("lost", "are unknown"),
        ("bent", "distorted \\('brown_conrady'\\)"),
    ):
        with pytest.raises(ValueError, match=f"There is no cloud: camera '{name}': .*{reason}"):
            cloud_cameras(contract.with_cameras(seeing, *others), ["seeing", name])
    with pytest.raises(ValueError, match=r"no camera 'overheat'. Did you mean 'overhead'"):
        cloud_cameras(contract, ["overheat"])
    with pytest.raises(ValueError, match=r"There is no cloud: there is no camera"):
        cloud_cameras(replace(contract, cameras=()))


def test_episodes_are_found_by_name_prefix_and_index() -> None:
    names = ["a.0000000001.aa", "a.0000000002.bb", "b.0000000001.cc"]
    assert [find_episode(names, asked) for asked in (None, "1", "-1", "b", names[1])] == [
        names[i] for i in (0, 1, 2, 2, 1)
    ]
    with pytest.raises(ValueError, match="'a.0000000001.ab'. Did you mean 'a.0000000001.aa'"):
        find_episode(names, "a.0000000001.ab")
    with pytest.raises(
        ValueError,
        match=r"2 episodes begin with 'a': a.0000000001.aa, a.0000000002.bb. Give a longer prefix",
    ):
        find_episode(names, "a")
    with pytest.raises(ValueError, match=r"The store has no episodes"):
        find_episode([], None)
