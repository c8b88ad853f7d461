"""Poses of the arms that determine the pose of a camera, or do not."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from stringline.datasets.embodiments.transforms import Matrix, pose
from stringline.real_robot.calibration.hand_eye import check_pose_variety


def rotations(turns_deg: Sequence[tuple[float, float, float]]) -> list[Matrix]:
    return [
        pose((0.1 * place, 0.0, 0.0), Rotation.from_rotvec(np.radians(turn)).as_matrix())
        for place, turn in enumerate(turns_deg)
    ]


@pytest.mark.parametrize(
    ("turns_deg", "message"),
    [
        ([(0, 0, 0), (30, 0, 0), (0, 30, 0)], "the board was seen from 3 poses; needed: 6"),
        (
            [(step, 0, 2 * step) for step in range(6)],
            r"too similar: no two of them differ by more than 11\.2 degrees; needed: 20",
        ),
        (
            [(0, 0, 12 * step) for step in range(6)],
            r"about one axis only: 60 degrees about it, 0\.0 about others; needed: 10",
        ),
        ([(0.8 * step, 0, 12 * step) for step in range(6)], r"about one axis only: 60 degrees"),
    ],
)
def test_poses_that_leave_a_motion_undetermined_are_refused(
    turns_deg: list[tuple[float, float, float]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_pose_variety(rotations(turns_deg))


def test_poses_about_two_axes_suffice() -> None:
    turns = [(0, 0, 0), (30, 0, 0), (0, 30, 0), (-30, 0, 0), (0, -30, 0), (0, 0, 30)]
    assert (
        check_pose_variety(rotations(turns))
        == "6 poses, turned by up to 60 degrees, 60 of them about other axes"
    )
