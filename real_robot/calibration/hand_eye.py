"""Hand-eye calibration: the pose of a camera on its parent, from images of a board.

For pose i, T_camera_board = X^-1 A_i Y, with X = T_parent_camera and Y = T_carrier_board unknown
and A_i = T_parent_carrier known from the joints. Eye in hand: the camera is on an arm and the board
stands still, so the parent is the gripper and A_i = T_base_gripper^-1. Eye to hand: the camera
stands still and the gripper holds the board, so the parent is the base and A_i = T_base_gripper.

The initial value is the best of OpenCV's closed forms: Park and Martin (1994), Daniilidis (1999)
for A X = X B; Shah (2013), Li, Wang and Wu (2010) for A X = Z B. These weight the board's pose of
each image alike, although it is less exact the flatter the board is seen. So X and Y are refined
together on the pixels of all corners, as in bundle adjustment (Tabb and Ahmad Yousef 2017, "Solving
the robot-world hand-eye(s) calibration problem with iterative methods", reprojection error), with a
loss that is robust to a single bad image (soft L1, 1 pixel).

The poses of the arms must differ enough. The rotation between hand and camera follows from pairs of
motions about different axes; motions about one axis leave it, and the position along that axis,
undetermined (Tsai and Lenz 1989, "A New Technique for Fully Autonomous and Efficient 3D Robotics
Hand/Eye Calibration", section II).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.datasets.pointclouds.camera_check import size_of
from stringline.real_robot.calibration.board import BoardPose, locate, projected, rms
from stringline.real_robot.calibration.opencv_library import opencv, optimisation

FEWEST_POSES = 6
LEAST_TURN_DEG = 20.0
LEAST_ACROSS_DEG = 10.0


def check_pose_variety(frames: Sequence[Matrix]) -> str:
    """Checks the variety of poses and describes it.

    The frames (4, 4) are those of the board's carrier in the frame of the camera's parent.

    Raises:
        ValueError: The poses are too few, too similar, or rotated about one axis only.
    """
    if len(frames) < FEWEST_POSES:
        raise ValueError(f"the board was seen from {len(frames)} poses; needed: {FEWEST_POSES}.")
    turns = np.array([_rotation_deg(a, b) for a, b in combinations(frames, 2)])
    largest = float(np.linalg.norm(turns, axis=1).max())
    if largest < LEAST_TURN_DEG:
        raise ValueError(
            f"the poses are too similar: no two of them differ by more than {largest:.1f} degrees; "
            f"needed: {LEAST_TURN_DEG:g}. Tilt and turn the hand more."
        )
    main = np.linalg.eigh(turns.T @ turns)[1][:, -1]
    across = float(np.linalg.norm(turns - np.outer(turns @ main, main), axis=1).max())
    if across < LEAST_ACROSS_DEG:
        raise ValueError(
            f"the poses turn about one axis only: {largest:.0f} degrees about it, {across:.1f} "
            f"about others; needed: {LEAST_ACROSS_DEG:g}. Tilt the hand to another side as well."
        )
    return (
        f"{len(frames)} poses, turned by up to {largest:.0f} degrees, {across:.0f} of them about "
        "other axes"
    )


def _rotation_deg(a: Matrix, b: Matrix) -> NDArray[np.float64]:
    """Returns the rotation vector (3,) in degrees between two frames."""
    vector = np.asarray(opencv().Rodrigues(a[:3, :3] @ b[:3, :3].T)[0], np.float64)
    return np.rad2deg(vector.reshape(3))


Floats = NDArray[np.float64]
Pair = tuple[Matrix, Matrix]

_FOLDS = 5
_ROBUST_PX = 1.0


@dataclass(frozen=True, eq=False)
class Fit:
    """The solution from all images.

    Attributes:
        T_parent_camera: (4, 4) X, metres.
        T_carrier_board: (4, 4) Y, metres.
        rms_px: Root mean square reprojection error of all corners.
        each_px: (K,) the same of each image.
        held_mm: Root mean square distance between the board's pose in an image and its prediction
            without that image, in the camera's frame (cross-validation).
        held_deg: The same of the rotation.
        std_mm: Standard deviation of the camera's position, from the curvature of the errors.
        std_deg: The same of its rotation.
        scale: Factor by which a larger board would explain the images best.
    """

    T_parent_camera: Matrix
    T_carrier_board: Matrix
    rms_px: float
    each_px: Floats
    held_mm: float
    held_deg: float
    std_mm: float
    std_deg: float
    scale: float


def solve(found: Sequence[BoardPose]) -> Fit:
    """Solves X and Y from images of one camera at sufficiently varied poses."""
    X, Y, result, _ = _refined(found, closed_form(found))
    scale = _refined(found, (X, Y), scaled=True)[3]
    held = np.array([error for fold in range(_FOLDS) for error in _held_out(found, fold, (X, Y))])
    held_mm, held_deg = (float(value) for value in np.sqrt((held**2).mean(axis=0)))
    each = _errors(X, Y, found)
    counts = np.array([len(one.points) for one in found])
    rms_px = float(np.sqrt((each**2 * counts).sum() / counts.sum()))
    return Fit(X, Y, rms_px, each, held_mm, held_deg, *_standard_deviation(result), scale)


def closed_form(found: Sequence[BoardPose]) -> Pair:
    """Returns X and Y (4, 4) of the closed form with the smallest median reprojection error."""
    starts = [(X, Y, float(np.median(_errors(X, Y, found)))) for X, Y in _closed_forms(found)]
    X, Y, _ = min(starts, key=lambda start: float(np.nan_to_num(start[2], nan=np.inf)))
    return X, Y


def _closed_forms(found: Sequence[BoardPose]) -> Iterator[Pair]:
    """Yields the solution of each closed form."""
    cv2 = opencv()
    seen = [one.T_camera_board for one in found]
    moved = [one.T_parent_carrier for one in found]
    back = [inverse(T) for T in moved]
    for method in (cv2.CALIB_HAND_EYE_PARK, cv2.CALIB_HAND_EYE_DANIILIDIS):
        X = _pose(cv2.calibrateHandEye(*_split(back), *_split(seen), method=method))
        boards = [T_carrier @ X @ T for T_carrier, T in zip(back, seen, strict=True)]
        yield X, mean_pose(boards)
    for method in (cv2.CALIB_ROBOT_WORLD_HAND_EYE_SHAH, cv2.CALIB_ROBOT_WORLD_HAND_EYE_LI):
        result = cv2.calibrateRobotWorldHandEye(*_split(seen), *_split(moved), method=method)
        T_board_carrier = _pose(result[:2])
        T_camera_parent = _pose(result[2:])
        yield inverse(T_camera_parent), inverse(T_board_carrier)


def _split(transforms: Sequence[Matrix]) -> tuple[list[Floats], list[Floats]]:
    return [T[:3, :3].copy() for T in transforms], [T[:3, 3:].copy() for T in transforms]


def _pose(solution: Sequence[Any]) -> Matrix:
    """Returns the pose (4, 4) of a solver's rotation, which may not be orthogonal, and position."""
    rotation, position = (np.asarray(part, dtype=np.float64) for part in solution)
    return pose(position.reshape(3), nearest_rotation(rotation))


def mean_pose(poses: Iterable[Matrix]) -> Matrix:
    """Returns the median position and the mean rotation (4, 4) of poses.

    The mean is the chordal one of Hartley et al. (2013), "Rotation Averaging", section 5.3.
    """
    stacked = np.stack(list(poses))
    rotation = nearest_rotation(stacked[:, :3, :3].sum(axis=0))
    return pose(np.median(stacked[:, :3, 3], axis=0), rotation)


def nearest_rotation(matrix: Floats) -> Floats:
    """Returns the rotation (3, 3) nearest to a matrix; the identity for one that is not finite."""
    if not np.isfinite(matrix).all():
        return np.eye(3)
    U, _, V = np.linalg.svd(matrix)
    return np.asarray(U @ np.diag([1.0, 1.0, np.linalg.det(U @ V)]) @ V)


def _errors(X: Matrix, Y: Matrix, found: Sequence[BoardPose]) -> Floats:
    """Returns the root mean square reprojection error of each image (K,)."""
    back = inverse(X)
    return np.array(
        [
            rms(projected(back @ one.T_parent_carrier @ Y, one.points, one.intrinsics) - one.pixels)
            for one in found
        ]
    )


def _refined(
    found: Sequence[BoardPose], start: Pair, *, scaled: bool = False
) -> tuple[Matrix, Matrix, Any, float]:
    """Minimises the reprojection errors; returns X, Y, SciPy's result and the board's scale."""
    of_point = np.repeat(np.arange(len(found)), [len(one.points) for one in found])
    A = np.stack([one.T_parent_carrier for one in found])
    K = np.stack([one.intrinsics for one in found])[of_point]
    points = np.concatenate([one.points for one in found])
    pixels = np.concatenate([one.pixels for one in found])

    def errors(change: Floats) -> Floats:
        X, Y = _moved(start, change)
        T = (inverse(X) @ A @ Y)[of_point]
        larger = points * (change[12] if scaled else 1.0)
        seen = (K @ (T[:, :3, :3] @ larger[..., None] + T[:, :3, 3:]))[..., 0]
        return np.asarray((seen[:, :2] / seen[:, 2:] - pixels).reshape(-1))

    first = np.zeros(12 + scaled)
    first[12:] = 1.0
    result = optimisation().least_squares(
        errors, first, loss="soft_l1", f_scale=_ROBUST_PX, x_scale="jac"
    )
    X, Y = _moved(start, result.x)
    return X, Y, result, float(result.x[12]) if scaled else 1.0


def _moved(start: Pair, change: Floats) -> Pair:
    """Returns both poses, moved in their own frames by (w_X, t_X, w_Y, t_Y, ...)."""
    X, Y = start
    return X @ motion_of(change[:6]), Y @ motion_of(change[6:12])


def motion_of(change: Floats) -> Matrix:
    """Returns the motion (4, 4) of a rotation vector and a translation (6,)."""
    angle = float(np.linalg.norm(change[:3]))
    return pose(
        change[3:], rotation_about(change[:3] / angle, angle) if angle > 1e-12 else np.eye(3)
    )


def _held_out(found: Sequence[BoardPose], fold: int, start: Pair) -> Iterator[tuple[float, float]]:
    """Yields the errors of position (mm) and rotation (degrees) of each image in a fold."""
    others = [one for place, one in enumerate(found) if place % _FOLDS != fold]
    held = [one for place, one in enumerate(found) if place % _FOLDS == fold]
    if not held:
        return
    X, Y, _, _ = _refined(others, start)
    for one in held:
        expected = inverse(X) @ one.T_parent_carrier @ Y
        seen, _ = locate(one.points, one.pixels, one.intrinsics, near=expected)
        centre = np.append(one.points.mean(axis=0), 1.0)
        error_mm = 1e3 * float(np.linalg.norm((expected @ centre - seen @ centre)[:3]))
        yield error_mm, size_of(inverse(expected) @ seen)[1]


def _standard_deviation(result: Any) -> tuple[float, float]:
    """Returns the standard deviations of the camera's position (mm) and rotation (degrees).

    The covariance is that of Gauss-Newton.
    """
    J = np.asarray(result.jac)
    freedom = max(len(J) - J.shape[1], 1)
    variance = np.diag(np.linalg.pinv(J.T @ J)) * 2 * float(result.cost) / freedom
    if np.linalg.matrix_rank(J) < J.shape[1]:
        return float("inf"), float("inf")
    std_m = float(np.sqrt(variance[3:6].sum()))
    return 1e3 * std_m, float(np.degrees(np.sqrt(variance[:3].sum())))
