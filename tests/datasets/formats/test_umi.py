"""Imports of UMI's replay buffers, written by zarr in the documented layout, and their errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from imagecodecs.numcodecs import Jpegxl
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from tests.datasets.formats.conftest import Import
from tests.datasets.formats.replay_buffers import LENGTHS, replay_buffer

from stringline.datasets.formats.diffusion_policy import UmiReader

READER = UmiReader(gripper_open_m=0.08, control_hz=60)


@pytest.fixture
def hand(samples: Any) -> dict[str, NDArray[Any]]:
    """Returns the series of a gripper of UMI."""
    rng, steps = np.random.default_rng(0), sum(LENGTHS)
    return {
        "camera0_rgb": np.stack([samples.image(frame) for frame in range(steps)]),
        "robot0_eef_pos": rng.normal(size=(steps, 3)).astype(np.float32),
        "robot0_eef_rot_axis_angle": rng.normal(size=(steps, 3)).astype(np.float32),
        "robot0_gripper_width": rng.uniform(0, 0.08, (steps, 1)).astype(np.float32),
        "robot0_demo_start_pose": rng.normal(size=(steps, 6)),
    }


@pytest.mark.parametrize("codec", [Jpegxl(level=99, numthreads=1), None])
def test_hand_held_grippers_are_imported(
    tmp_path: Path, imported: Import, samples: Any, hand: dict[str, NDArray[Any]], codec: Any
) -> None:
    path = replay_buffer(tmp_path / "cup.zarr.zip", hand, {"camera0_rgb": codec} if codec else None)
    assert samples.size_of(path) < 100_000
    store, outcome = imported(READER, path)
    assert outcome.refused == {}
    episode = store.episodes()[1]
    arrays, contract = episode.arrays, episode.attributes.contract
    rows = slice(5, 13)
    pose = arrays["T_base_gripper/robot0"]
    np.testing.assert_allclose(pose[:, :3, 3], hand["robot0_eef_pos"][rows])
    turned = Rotation.from_rotvec(hand["robot0_eef_rot_axis_angle"][rows]).as_matrix()
    np.testing.assert_allclose(pose[:, :3, :3], turned, atol=1e-6)
    np.testing.assert_allclose(
        arrays["joints/position"], hand["robot0_gripper_width"][rows] / 0.08, rtol=1e-6
    )
    np.testing.assert_allclose(arrays["action"][:-1, :3], hand["robot0_eef_pos"][6:13])
    np.testing.assert_allclose(arrays["action"][:-1, 3:6], hand["robot0_eef_rot_axis_angle"][6:13])
    np.testing.assert_array_equal(arrays["action"][-1], arrays["action"][-2])
    off = np.abs(arrays["rgb/camera0_rgb"].astype(int) - hand["camera0_rgb"][rows])
    assert off.max() <= (8 if codec else 0)
    assert (contract.arms, contract.joints) == (("robot0",), ("robot0/gripper",))
    assert contract.control_hz == 60
    kinds = [dimension.kind for dimension in contract.action]
    assert kinds == ["position"] * 3 + ["rotation"] * 3 + ["gripper"]


@pytest.mark.parametrize(
    ("change", "message"),
    [(600.0, "is 600; allowed: at most 10 m. Are these millimetres?"), (np.inf, "is inf")],
)
def test_poses_in_millimetres_are_named(
    tmp_path: Path, imported: Import, hand: dict[str, NDArray[Any]], change: float, message: str
) -> None:
    hand["robot0_eef_pos"][2, 1] = change
    path = replay_buffer(tmp_path / "cup.zarr", hand)
    why = imported(READER, path)[1].refused["episode 0 (cup.zarr)"]
    assert message in why
    assert "at frame 2" in why


def test_missing_and_invalid_options_are_reported() -> None:
    with pytest.raises(ValueError, match="set the width of an open gripper, format.gripper_open_m"):
        UmiReader(control_hz=60)
    with pytest.raises(ValueError, match="has closed=0.0 and opened=0.0; they must differ."):
        UmiReader(gripper_open_m=0.0, control_hz=60)


def test_other_replay_buffers_are_refused(tmp_path: Path) -> None:
    action = np.zeros((sum(LENGTHS), 14), np.float32)
    path = replay_buffer(tmp_path / "set.zarr", {"action": action})
    with pytest.raises(ValueError, match="is not a buffer of UMI: it has no robot0_eef_pos"):
        list(READER.episodes(path))
