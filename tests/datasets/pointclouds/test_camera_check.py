"""The check finds and corrects a displaced camera, and rejects views with too little overlap."""

import numpy as np
import pytest
from tests.datasets.conftest import Knock

from stringline.datasets.embodiments.transforms import inverse, pose, rotation_about
from stringline.datasets.pointclouds.camera_check import check_cameras, determined, size_of
from stringline.datasets.pointclouds.clouds import depth_view
from stringline.datasets.store.episode import StoredEpisode

STEPS = (0, 80)
KNOCK = pose((0.0072, -0.0060, 0.0075), rotation_about([0.6, 0.64, 0.48], np.deg2rad(1.5)))


def test_the_displacement_is_the_required_one() -> None:
    np.testing.assert_allclose(size_of(KNOCK), (12.0, 1.5), atol=0.01)


@pytest.mark.slow
def test_correct_cameras_have_small_errors(episode: StoredEpisode) -> None:
    check = check_cameras(episode, steps=[40])
    assert check.reference == "overhead"
    through = {correction.camera: correction.through for correction in check.corrections}
    assert through == {"wrist_left": "overhead", "wrist_right": "overhead"}
    assert check.unreached == ("table",)
    for correction in check.corrections:
        distance, angle = size_of(correction.T_camera_corrected)
        assert distance < 2.0
        assert angle < 0.3
    refused = next(
        pair for pair in check.pairs if (pair.target, pair.source) == ("overhead", "table")
    )
    assert "no result; the common view is too small" in str(refused)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("camera", "reference"), [("wrist_left", "overhead"), ("overhead", "wrist_left")]
)
def test_a_displaced_camera_is_found_and_corrected(
    episode: StoredEpisode, knocked: Knock, camera: str, reference: str
) -> None:
    check = check_cameras(
        knocked(camera, KNOCK), steps=STEPS, cameras=["overhead", "wrist_left"], reference=reference
    )
    (pair,) = check.pairs
    (correction,) = check.corrections
    assert (correction.camera, correction.through) == (camera, reference)
    distance, angle = size_of(correction.T_camera_corrected)
    assert abs(distance - 12.0) < 2.0
    assert abs(angle - 1.5) < 0.3
    left_mm, left_deg = size_of(KNOCK @ correction.T_camera_corrected)
    assert left_mm < 2.0
    assert left_deg < 0.3
    assert all(move.fitness > 0.8 and move.rmse_mm < 3.0 for move in pair.used)
    true = depth_view(episode, camera, 0).T_base_camera
    if camera == "overhead":  # It does not move, so it has one pose.
        assert correction.T_base_camera is not None
        off_mm, off_deg = size_of(inverse(true) @ correction.T_base_camera)
        assert off_mm < 2.0
        assert off_deg < 0.3
    else:
        assert correction.T_base_camera is None
    assert f"{camera}: off by 1" in str(correction)
    assert correction.to_dict()["camera"] == camera


def test_cameras_that_cannot_be_compared(episode: StoredEpisode) -> None:
    with pytest.raises(ValueError, match="'table' can be compared with no other camera"):
        check_cameras(episode, steps=[0], cameras=["overhead", "table"], reference="table")
    with pytest.raises(
        ValueError, match=r"compared in pairs; only 'overhead' has depth and geometry"
    ):
        check_cameras(episode, cameras=["overhead"])
    with pytest.raises(ValueError, match="depth and geometry 'overheat'. Did you mean 'overhead'"):
        check_cameras(episode, reference="overheat")


def test_a_corner_determines_all_motions_and_a_plane_does_not() -> None:
    rng = np.random.default_rng(0)
    flat = np.concatenate((rng.uniform(-1, 1, (300, 2)), np.zeros((300, 1))), axis=1)
    corner = np.concatenate([np.roll(flat + 0.0, shift, axis=1) for shift in range(3)])
    normals = np.repeat(np.roll(np.eye(3)[2], 0)[None], 300, axis=0)
    assert determined(flat, normals) < 1e-12
    assert (
        determined(corner, np.concatenate([np.roll(normals, shift, axis=1) for shift in range(3)]))
        > 0.05
    )
    assert determined(flat[:0], normals[:0]) == 0
