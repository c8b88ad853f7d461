"""Angles and quaternions against scipy's, and interpolation of poses, half a turn included."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from stringline.datasets.embodiments.transforms import pose, rotation_vector, turned
from stringline.sim.teleop.page import three_numbers
from stringline.sim.teleop.steering import (
    angles_of_pose,
    apart,
    between,
    pose_of_angles,
    pose_of_quaternion,
)

ROTATIONS = Rotation.random(40, rng=np.random.default_rng(1))


def test_angles_are_heading_tilt_and_roll_about_the_axes_in_turn() -> None:
    for rotation in ROTATIONS:
        heading_tilt_roll = rotation.as_euler("ZYX", degrees=True)
        T = pose_of_angles([1.0, 2.0, 3.0], heading_tilt_roll)
        np.testing.assert_allclose(T, pose([1.0, 2.0, 3.0], rotation.as_matrix()), atol=1e-12)
        np.testing.assert_allclose(angles_of_pose(T), heading_tilt_roll, atol=1e-9)


@pytest.mark.parametrize("tilt", [90.0, -90.0])
def test_straight_down_and_up_have_angles_too(tilt: float) -> None:
    T = pose_of_angles([0.0, 0.0, 0.0], [30.0, tilt, 50.0])
    angles = angles_of_pose(T)
    assert angles[2] == 0.0
    np.testing.assert_allclose(pose_of_angles([0.0, 0.0, 0.0], angles), T, atol=1e-9)


def test_quaternions_of_any_length_are_poses() -> None:
    for rotation in ROTATIONS:
        wxyz = 3.0 * rotation.as_quat(scalar_first=True)
        np.testing.assert_allclose(
            pose_of_quaternion([1.0, 2.0, 3.0], wxyz),
            pose([1, 2, 3], rotation.as_matrix()),
            atol=1e-12,
        )
    with pytest.raises(
        ValueError, match=r"The quaternion \[0.0, 0.0, 0.0, 0.0\] is not a rotation"
    ):
        pose_of_quaternion([0, 0, 0], [0, 0, 0, 0])


def test_three_numbers_in_common_notations() -> None:
    for text in ("-0.2, 0, 1e-1", " -.2  0.0 0.1 ", "-0.2,0,0.1"):
        assert three_numbers(text).tolist() == [-0.2, 0.0, 0.1]
    for text in ("", "1, 2", "1 2 3 4", "1, 2, x", "1, nan, 3", "1, 2, inf"):
        with pytest.raises(
            ValueError, match=rf"Got '{text}'; allowed: three numbers, such as -0.2, 0, 0.25"
        ):
            three_numbers(text)


def test_rotation_vectors_and_back() -> None:
    for rotation in (*ROTATIONS, Rotation.from_rotvec([np.pi, 0, 0]), Rotation.identity()):
        vector = rotation_vector(rotation.as_matrix())
        np.testing.assert_allclose(turned(vector), rotation.as_matrix(), atol=1e-9)
        assert np.linalg.norm(vector) == pytest.approx(rotation.magnitude())


def test_ways_are_even_in_place_and_turn() -> None:
    start = pose([0.1, 0.2, 0.3], ROTATIONS[0].as_matrix())
    for turn in ([0.0, 0.0, np.pi], [1.0, -0.5, 0.2]):
        goal = pose([0.4, 0.2, -0.1], start[:3, :3] @ Rotation.from_rotvec(turn).as_matrix())
        metres, radians = apart(start, goal)
        assert (metres, radians) == (pytest.approx(0.5), pytest.approx(np.linalg.norm(turn)))
        for share in (0.0, 0.25, 0.7, 1.0):
            here = between(start, goal, share)
            np.testing.assert_allclose(
                apart(start, here), (share * metres, share * radians), atol=1e-7
            )
            np.testing.assert_allclose(
                apart(here, goal), ((1 - share) * metres, (1 - share) * radians), atol=1e-7
            )
