"""Poses of cameras that the data have: those of DROID in RLDS and in LeRobotDatasets."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tests.datasets.formats import droid_recordings as droid
from tests.datasets.formats.conftest import Run
from tests.datasets.formats.lerobot_recordings import LENGTHS, recorded
from tests.datasets.formats.small_sets import image, joints

POSES = "camera_extrinsics.cam_high"
AXES = {"axes": ["x", "y", "z", "roll", "pitch", "yaw"]}


def entries(path: Path, **cameras: dict[str, Any]) -> str:
    """Writes a calibration file and returns the option that names it."""
    path.write_text(yaml.safe_dump({"version": 1, "embodiment": "aloha", "cameras": cameras}))
    return f"cameras={path}"


def intrinsics(**changes: Any) -> dict[str, Any]:
    fx, cx, fy, cy = droid.INTRINSICS
    plain = {"parent": "recorded", "size": [720, 1280], "intrinsics": [fx, fy, cx, cy]}
    return plain | changes


@pytest.mark.slow
def test_poses_of_rlds_are_used_with_intrinsics_of_a_file(tmp_path: Path, run: Run) -> None:
    root = droid.droid(tmp_path / "set")
    status, output, _ = run(root, "rlds", *droid.RLDS)
    assert status == 0
    reason = "the format has no intrinsics of it; cameras=FILE adds them (`parent: recorded`)"
    for name in ("exterior_image_1_left", "exterior_image_2_left"):
        assert f"pose of {name}  2 of 2 episodes: {reason}" in output
    file = entries(tmp_path / "cameras.yaml", left=intrinsics(), right=intrinsics())
    status, output, episodes = run(root, "rlds", *droid.RLDS, droid.CHOSEN, file)
    assert status == 0, output
    assert "pose of" not in output
    assert "episode_metadata/extrinsics_wrist_cam  2 of 2 episodes: not a feature" in output
    for number, episode in enumerate(episodes):
        for camera, name in enumerate(("left", "right")):
            found = episode.arrays
            wanted = droid.pose(droid.pose_numbers(number, camera))
            np.testing.assert_allclose(found[f"T_base_camera/{name}"], wanted, atol=1e-6)
            np.testing.assert_allclose(found[f"intrinsics/{name}"], droid.K, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, "'hand' has `parent: recorded` in {file}, but the data have no poses of it; they hav"),
        (
            {"T_parent_camera": np.eye(4).tolist()},
            "The calibration of the camera 'hand' has `parent: recorded` and T_parent_camera; allo",
        ),
        ({"size": None}, "The calibration of the camera 'hand' lacks size."),
    ],
)
def test_a_pose_that_the_data_lack_is_an_error(
    tmp_path: Path, run: Run, entry: dict[str, Any], message: str
) -> None:
    """DROID's pose of the camera on the wrist is that of the first step, so it is not used."""
    root = droid.droid(tmp_path / "set")
    chosen = f"format.cameras={{{droid.WRIST}: hand}}"
    file = tmp_path / "cameras.yaml"
    option = entries(file, hand=intrinsics(**entry))
    status, output, episodes = run(root, "rlds", *droid.RLDS, chosen, option)
    assert (status, episodes) == (2, [])
    assert message.format(file=file) in output


def with_poses(root: Path, rows: Callable[[int, int], Any], names: Any) -> Path:
    """Adds poses of the camera to a LeRobotDataset; `rows` returns those of an episode."""
    info = root / "meta" / "info.json"
    plain = json.loads(info.read_text())
    plain["features"][POSES] = {"dtype": "float32", "shape": [6], "names": names}
    info.write_text(json.dumps(plain))
    for file in sorted(root.glob("data/*/*.parquet")):
        table = pq.read_table(file)
        episodes = np.asarray(table["episode_index"])
        parts = [rows(e, int((episodes == e).sum())) for e in dict.fromkeys(episodes.tolist())]
        column = pa.array(np.concatenate(parts).tolist(), pa.list_(pa.float32(), 6))
        pq.write_table(table.append_column(POSES, column), file)
    return root


def moving(episode: int, steps: int) -> Any:
    return np.array([droid.pose_numbers(episode, step) for step in range(steps)])


def still(episode: int, steps: int) -> Any:
    return np.tile(droid.pose_numbers(episode, 0), (steps, 1))


@pytest.mark.slow
@pytest.mark.parametrize(("version", "rows"), [("v2.1", moving), ("v3.0", still)])
def test_poses_of_lerobot_are_used_with_intrinsics_of_a_file(
    tmp_path: Path, run: Run, version: str, rows: Callable[[int, int], Any]
) -> None:
    samples = SimpleNamespace(image=image, joints=joints)
    root = with_poses(recorded(samples, tmp_path / "set", version, "image"), rows, AXES)
    options = ["format.depth={}"]
    entry = intrinsics(size=[16, 24], intrinsics=[20.0, 20.0, 12.0, 8.0])
    file = entries(tmp_path / "cameras.yaml", cam_high=entry)
    status, output, episodes = run(root, "lerobot", *options, file)
    assert status == 0, output
    order = sorted(range(len(LENGTHS)), key=lambda episode: LENGTHS[episode])
    for number, episode in zip(order, episodes, strict=True):
        numbers = rows(number, episode.steps)
        wanted = [droid.pose(row) for row in numbers] if rows is moving else droid.pose(numbers[0])
        np.testing.assert_allclose(episode.arrays["T_base_camera/cam_high"], wanted, atol=1e-6)
        assert episode.attributes.contract.camera("cam_high").has_geometry
    status, output, _ = run(root, "lerobot", *options)
    assert "pose of cam_high  3 of 3 episodes: the format has no intrinsics of it" in output


@pytest.mark.slow
def test_poses_that_cannot_be_read_cost_themselves(tmp_path: Path, run: Run) -> None:
    samples = SimpleNamespace(image=image, joints=joints)
    root = with_poses(recorded(samples, tmp_path / "set", "v2.1", "image"), still, AXES)
    file = sorted(root.glob("data/*/*.parquet"))[0]
    table = pq.read_table(file)
    lost = pa.array([None] * len(table), pa.list_(pa.float32(), 6))
    place = table.schema.get_field_index(POSES)
    pq.write_table(table.set_column(place, POSES, lost), file)
    status, output, episodes = run(root, "lerobot", "format.depth={}")
    assert (status, len(episodes)) == (0, 3)
    assert f"pose of cam_high  1 of 3 episodes: {POSES}" in output


@pytest.mark.slow
@pytest.mark.parametrize("names", [None, {"axes": ["x", "y", "z", "rx", "ry", "rz"]}])
def test_numbers_with_other_names_are_no_poses(tmp_path: Path, run: Run, names: Any) -> None:
    """They may be rotation vectors, so they stay a series."""
    samples = SimpleNamespace(image=image, joints=joints)
    root = with_poses(recorded(samples, tmp_path / "set", "v2.1", "image"), still, names)
    status, output, episodes = run(root, "lerobot", "format.depth={}")
    assert status == 0
    assert "pose of" not in output
    assert episodes[0].arrays["series/camera_extrinsics/cam_high"].shape == (LENGTHS[2], 6)
