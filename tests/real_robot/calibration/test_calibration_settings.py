"""Settings of a calibration: their refusal, files of poses, and checks before any motion."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stringline import IIWA14, SafetyLimits
from stringline.real_robot.calibration.calibration_settings import (
    CalibrationSettings,
    read_poses,
    write_poses,
)
from stringline.real_robot.calibration.visit import check_first_motion, check_reachable

GOOD: dict[str, Any] = {
    "method": "board",
    "cameras": ["wrist"],
    "poses": [IIWA14.home.tolist()] * 2,
    "file": "a.yaml",
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"camera": "wrist"},
            "There is no setting of a calibration 'camera'. Did you mean 'cameras'",
        ),
        ({"method": "bored"}, "There is no method of calibration 'bored'. Did you mean 'board'"),
        (
            {"cameras": []},
            "calibration.cameras is empty. iiwa14 has overhead, wrist",
        ),
        ({"cameras": ["wrists"]}, "There is no camera 'wrists'. Did you mean 'wrist'"),
        ({"held_by": "left"}, "There is no arm 'left'"),
        (
            {"held_by": "arm"},
            "The camera 'wrist' and the board are both on arm; one of them must move",
        ),
        ({"cameras": ["overhead"]}, "The camera 'overhead' and the board both stand still"),
        ({"poses": [[0.0] * 7]}, r"Pose 1 is .*; iiwa14 has 8 joints: arm/a1, .* arm/gripper"),
        (
            {"poses": [[0.0] * 7 + [float("nan")]]},
            "The poses contain a value that is not a finite number",
        ),
        ({"poses": []}, "The list of poses is empty: calibration.poses"),
        ({"speed": 0}, r"calibration.speed must be a number above 0 \(got 0.0\)"),
        (
            {"method": "clouds"},
            "method=clouds needs another camera, which is calibrated: calibration.reference",
        ),
        ({"poses_file": "/nowhere.yaml"}, "The file of poses /nowhere.yaml cannot be read"),
    ],
)
def test_settings_that_determine_no_pose_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CalibrationSettings.of(GOOD | change, IIWA14)


def test_poses_that_were_visited_can_be_visited_again(tmp_path: Path) -> None:
    file = tmp_path / "poses.yaml"
    file.write_text(write_poses([IIWA14.home, IIWA14.home + 0.1234]))
    found = CalibrationSettings.of(GOOD | {"poses": None, "poses_file": str(file)}, IIWA14).poses
    assert found is not None
    np.testing.assert_allclose(found, [IIWA14.home, IIWA14.home + 0.1234], atol=1e-4)
    for text in ("a: [", "poses: 3"):
        file.write_text(text)
        with pytest.raises(ValueError, match="The file of poses"):
            read_poses(file)


def test_poses_are_checked_before_anything_moves() -> None:
    limits = SafetyLimits.of(IIWA14, cartesian_speed=None, table_clearance=0.01)
    assert check_reachable(np.stack([IIWA14.home] * 2), IIWA14, limits) == "2, in reach"
    low, twisted = IIWA14.home.copy(), IIWA14.home.copy()
    low[1], twisted[0] = 1.4, 3.0
    with pytest.raises(ValueError, match=r"pose 2: arm/a1 is 3\.000; allowed: -2\.957 to 2\.957"):
        check_reachable([IIWA14.home, twisted], IIWA14, limits)
    with pytest.raises(
        ValueError, match=r"pose 1: an arm would be -\d+ mm over the table; needed: 10"
    ):
        check_reachable([low], IIWA14, limits)
    forwards, backwards = IIWA14.home.copy(), IIWA14.home.copy()
    forwards[[1, 3, 5]], backwards[[1, 3, 5]] = (0.7, -1.9, -0.66), (0.7, -1.9, 1.74)
    high = SafetyLimits.of(IIWA14, cartesian_speed=None, table_height=0.08)
    with pytest.raises(
        ValueError, match=r"the way to pose 2: an arm would be -\d+ mm over the table; needed: 0"
    ):
        check_reachable([forwards, backwards], IIWA14, high)
    with pytest.raises(
        ValueError, match=r"the way to pose 1: an arm would be -\d+ mm over the table; needed: 0"
    ):
        check_first_motion(forwards, backwards, IIWA14, high, near=False)
    with pytest.raises(
        ValueError,
        match=(r"arm/a6 is 2\.40 rad away from pose 1; allowed: 0\.5.* \(robot\.approach_s=8\)"),
    ):
        check_first_motion(forwards, backwards, IIWA14, limits, near=True)
    check_first_motion(IIWA14.home + 0.4, IIWA14.home, IIWA14, limits, near=True)
    low[1] = 1.0  # The start of the arms may be outside of the limits.
    check_first_motion(low, IIWA14.home, IIWA14, limits, near=False)
