"""rerun's own reader finds every entity of a recording with its numbers."""

import importlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.pointclouds.clouds import fused_cloud
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.viewing.rerun_recording import Recorder

CAMERAS = ("overhead", "wrist_left", "wrist_right", "table")


@pytest.fixture(scope="module")
def chunks(
    episode: StoredEpisode, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Any]]:
    """The chunks of a saved recording by entity."""
    path = tmp_path_factory.mktemp("recording") / "new" / "episode.rrd"
    Recorder(episode, cloud_hz=2.0, cloud_points=10**6, jpeg_quality=None).save(path)
    found = defaultdict(list)
    for chunk in (
        importlib.import_module("rerun.chunk").RrdReader(str(path)).store().stream().to_chunks()
    ):
        found[chunk.entity_path].append(chunk.to_record_batch())
    return found


def values(batches: list[Any], column: str) -> list[Any]:
    """Returns the rows of a column, in the order of steps."""
    rows = [
        (step, value)
        for batch in batches
        if column in batch.schema.names
        for step, value in zip(
            batch["step"].to_pylist() if "step" in batch.schema.names else [0] * batch.num_rows,
            batch[column].to_pylist(),
            strict=True,
        )
    ]
    return [value for _, value in sorted(rows, key=lambda row: row[0])]


@pytest.mark.slow
def test_every_entity_exists(episode: StoredEpisode, chunks: dict[str, list[Any]]) -> None:
    contract = episode.attributes.contract
    expected = {
        "/world",
        "/world/cloud",
        "/instruction",
        "/world/grippers/left",
        "/world/grippers/right",
        "/world/robot",
    }
    expected |= {f"/world/cameras/{name}{below}" for name in CAMERAS for below in ("", "/rgb")}
    expected |= {f"/depth/{name}" for name in CAMERAS}
    expected |= {f"/action/{dimension.name}" for dimension in contract.action}
    expected |= {f"/joints/position/{joint}" for joint in contract.joints}
    assert set(chunks) - {"/__properties"} == expected


def test_actions_images_and_depth_are_those_of_the_episode(
    episode: StoredEpisode, chunks: dict[str, list[Any]]
) -> None:
    for column, dimension in enumerate(episode.attributes.contract.action):
        got = np.concatenate(values(chunks[f"/action/{dimension.name}"], "Scalars:scalars"))
        np.testing.assert_array_equal(got.astype(np.float32), episode.arrays["action"][:, column])
    for kind, path, column in (
        ("rgb", "/world/cameras/table/rgb", "Image:buffer"),
        ("depth", "/depth/table", "DepthImage:buffer"),
    ):
        expected = episode.arrays[f"{kind}/table"]
        got = values(chunks[path], column)
        assert len(got) == len(expected) == 5
        for image, (buffer,) in zip(expected, got, strict=True):
            np.testing.assert_array_equal(
                np.array(buffer, np.uint8), np.frombuffer(image.tobytes(), np.uint8)
            )


def test_poses_are_those_of_the_episode(
    episode: StoredEpisode, chunks: dict[str, list[Any]]
) -> None:
    paths = {f"/world/grippers/{arm}": f"T_base_gripper/{arm}" for arm in ("left", "right")}
    paths |= {f"/world/cameras/{name}": f"T_base_camera/{name}" for name in CAMERAS}
    for path, key in paths.items():
        T = episode.arrays[key].reshape(-1, 4, 4)
        places = np.array(values(chunks[path], "Transform3D:translation")).reshape(-1, 3)
        columns = np.array(values(chunks[path], "Transform3D:mat3x3")).reshape(
            -1, 3, 3
        )  # Rerun stores matrices by columns.
        np.testing.assert_allclose(places, T[:, :3, 3], atol=1e-7)
        np.testing.assert_allclose(columns.swapaxes(1, 2), T[:, :3, :3], atol=1e-7)


def test_capsules_stand_around_the_links_at_the_measured_joints(
    episode: StoredEpisode, chunks: dict[str, list[Any]]
) -> None:
    found = {
        name: values(chunks["/world/robot"], f"Capsules3D:{name}")
        for name in ("lengths", "radii", "translations", "quaternions")
    }
    for step in (0, 40):
        expected = ALOHA.capsules(episode.arrays["joints/position"][step])
        starts = np.array(found["translations"][step])
        x, y, z, w = np.array(found["quaternions"][step]).T
        axes = np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], 1)
        ends = starts + axes * np.array(found["lengths"][step])[:, None]
        np.testing.assert_allclose(starts, [each.start for each in expected], atol=1e-6)
        np.testing.assert_allclose(ends, [each.end for each in expected], atol=1e-6)
        np.testing.assert_allclose(found["radii"][step], [each.radius for each in expected])


@pytest.mark.slow
def test_the_cloud_is_the_fused_one(episode: StoredEpisode, chunks: dict[str, list[Any]]) -> None:
    clouds = values(chunks["/world/cloud"], "Points3D:positions")
    assert len(clouds) == 4, "two per second"
    np.testing.assert_allclose(np.array(clouds[0]), fused_cloud(episode, 0).points, atol=1e-6)
    np.testing.assert_allclose(np.array(clouds[2]), fused_cloud(episode, 50).points, atol=1e-6)


def test_invalid_cameras_and_numbers(episode: StoredEpisode, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no camera 'overheat'. Did you mean 'overhead'"):
        Recorder(episode, ["overheat"])
    with pytest.raises(ValueError, match="Got cloud_hz=0, cloud_points=60000"):
        Recorder(episode, cloud_hz=0)
    with pytest.raises(ValueError, match=r"jpeg_quality is 101; allowed: 1 to 100, or null"):
        Recorder(episode, jpeg_quality=101)
    with pytest.raises(ValueError, match=r"written as a .rrd file; got .*episode.mp4"):
        Recorder(episode).save(tmp_path / "episode.mp4")
