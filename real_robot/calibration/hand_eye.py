"""Where a camera sits on what carries it, by a board that is seen from many poses of the arms.

For pose i, T_camera_board = X^-1 A_i Y, with X = T_parent_camera and Y = T_carrier_board unknown
and A_i = T_parent_carrier known from the joints. With the camera on an arm and a board that stands,
the parent is the gripper and A_i = T_base_gripper^-1 (eye in hand); with a camera that stands and a
board in the gripper, the parent is the base and A_i = T_base_gripper (eye to hand).

The start is the best of OpenCV's closed forms: Park and Martin (1994), Daniilidis (1999) for A X =
X B; Shah (2013), Li, Wang and Wu (2010) for A X = Z B. They weigh each image's own guess of the
board's pose alike, which is worse the flatter the board is seen. So X and Y are refined together on
the pixels of all corners, as in bundle adjustment (Tabb and Ahmad Yousef 2017, "Solving the
robot-world hand-eye(s) calibration problem with iterative methods", reprojection error), with a
loss that a single bad image cannot pull far (soft L1, 1 pixel).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.datasets.pointclouds.camera_check import size_of
from stringline.real_robot.calibration.detections import Shot, locate, projected, rms
from stringline.real_robot.calibration.opencv_library import opencv, optimisation
from stringline.real_robot.calibration.pose_averages import middle, nearest_rotation

Floats = NDArray[np.float64]
Pair = tuple[Matrix, Matrix]

_FOLDS = 5
_ROBUST_PX = 1.0


@dataclass(frozen=True, eq=False)
class Fit:
    """What all looks together say.

    Attributes:
        T_parent_camera: (4, 4) X, metres.
        T_carrier_board: (4, 4) Y, metres.
        rms_px: Root of the mean square distance between corners and where they should be.
        each_px: (K,) the same of each look.
        held_mm: How far the board was seen from where looks that did not have this one put it, in
            the camera's frame, root of the mean square over all looks.
        held_deg: The same of its rotation.
        unsure_mm: Standard deviation of the place of the camera, by the curvature of the errors.
        unsure_deg: The same of its rotation.
        scale: By which factor the board had to be larger than it is said to be, to be explained
            best.
    """

    T_parent_camera: Matrix
    T_carrier_board: Matrix
    rms_px: float
    each_px: Floats
    held_mm: float
    held_deg: float
    unsure_mm: float
    unsure_deg: float
    scale: float


def solve(shots: Sequence[Shot]) -> Fit:
    """Finds where the camera sits.

    Args:
        shots: Of one camera, from poses that differ enough (`variety.py`).
    """
    X, Y, result, _ = _refined(shots, closed_form(shots))
    scale = _refined(shots, (X, Y), scaled=True)[3]
    held = np.array([away for fold in range(_FOLDS) for away in _held_out(shots, fold, (X, Y))])
    held_mm, held_deg = (float(value) for value in np.sqrt((held**2).mean(axis=0)))
    each = _errors(X, Y, shots)
    counts = np.array([len(shot.points) for shot in shots])
    rms_px = float(np.sqrt((each**2 * counts).sum() / counts.sum()))
    return Fit(X, Y, rms_px, each, held_mm, held_deg, *_unsure(result), scale)


def closed_form(shots: Sequence[Shot]) -> Pair:
    """Returns X and Y (4, 4) by the closed form that explains the pixels of the median look best."""
    starts = [(X, Y, float(np.median(_errors(X, Y, shots)))) for X, Y in _starts(shots)]
    X, Y, _ = min(starts, key=lambda start: float(np.nan_to_num(start[2], nan=np.inf)))
    return X, Y


def _starts(shots: Sequence[Shot]) -> Iterator[Pair]:
    """Yields what each closed form says."""
    cv2 = opencv()
    seen = [shot.T_camera_board for shot in shots]
    moved = [shot.T_parent_carrier for shot in shots]
    back = [inverse(T) for T in moved]
    for method in (cv2.CALIB_HAND_EYE_PARK, cv2.CALIB_HAND_EYE_DANIILIDIS):
        X = pose(
            *_place_and_turn(cv2.calibrateHandEye(*_split(back), *_split(seen), method=method))
        )
        yield (
            X,
            middle(
                T_carrier_parent @ X @ T for T_carrier_parent, T in zip(back, seen, strict=True)
            ),
        )
    for method in (cv2.CALIB_ROBOT_WORLD_HAND_EYE_SHAH, cv2.CALIB_ROBOT_WORLD_HAND_EYE_LI):
        found = cv2.calibrateRobotWorldHandEye(*_split(seen), *_split(moved), method=method)
        T_board_carrier = pose(*_place_and_turn(found[:2]))
        T_camera_parent = pose(*_place_and_turn(found[2:]))
        yield inverse(T_camera_parent), inverse(T_board_carrier)


def _split(transforms: Sequence[Matrix]) -> tuple[list[Floats], list[Floats]]:
    return [T[:3, :3].copy() for T in transforms], [T[:3, 3:].copy() for T in transforms]


def _place_and_turn(found: Sequence[Any]) -> tuple[Floats, Floats]:
    """Returns a place (3,) and the rotation (3, 3) nearest to what a solver gave: one may be off the rotations."""
    turn, place = (np.asarray(part, dtype=np.float64) for part in found)
    return place.reshape(3), nearest_rotation(turn)


def _errors(X: Matrix, Y: Matrix, shots: Sequence[Shot]) -> Floats:
    """Returns the root of the mean square distance of the pixels of each look (K,)."""
    back = inverse(X)
    return np.array(
        [
            rms(
                projected(back @ shot.T_parent_carrier @ Y, shot.points, shot.intrinsics)
                - shot.pixels
            )
            for shot in shots
        ]
    )


def _refined(
    shots: Sequence[Shot], start: Pair, *, scaled: bool = False
) -> tuple[Matrix, Matrix, Any, float]:
    """Minimises the distances of all pixels; returns X, Y, SciPy's result and the scale of the board."""
    of_point = np.repeat(np.arange(len(shots)), [len(shot.points) for shot in shots])
    A = np.stack([shot.T_parent_carrier for shot in shots])
    K = np.stack([shot.intrinsics for shot in shots])[of_point]
    points, pixels = (
        np.concatenate([getattr(shot, name) for shot in shots]) for name in ("points", "pixels")
    )

    def away(change: Floats) -> Floats:
        X, Y = _moved(start, change)
        T = (inverse(X) @ A @ Y)[of_point]
        larger = points * (change[12] if scaled else 1.0)
        seen = (K @ (T[:, :3, :3] @ larger[..., None] + T[:, :3, 3:]))[..., 0]
        return np.asarray((seen[:, :2] / seen[:, 2:] - pixels).reshape(-1))

    first = np.zeros(12 + scaled)
    first[12:] = 1.0
    result = optimisation().least_squares(
        away, first, loss="soft_l1", f_scale=_ROBUST_PX, x_scale="jac"
    )
    X, Y = _moved(start, result.x)
    return X, Y, result, float(result.x[12]) if scaled else 1.0


def _moved(start: Pair, change: Floats) -> Pair:
    """Returns both poses, moved in their own frames by rotation vectors and places, (w_X, t_X, w_Y, t_Y, ...)."""
    X, Y = (T @ _motion(change[place : place + 6]) for T, place in zip(start, (0, 6), strict=True))
    return X, Y


def _motion(change: Floats) -> Matrix:
    angle = float(np.linalg.norm(change[:3]))
    return pose(
        change[3:6], rotation_about(change[:3] / angle, angle) if angle > 1e-12 else np.eye(3)
    )


def _held_out(shots: Sequence[Shot], fold: int, start: Pair) -> Iterator[tuple[float, float]]:
    """Yields how far, mm and degrees, the board of each look of a fold is from where the other looks put it."""
    others, held = (
        [shot for place, shot in enumerate(shots) if (place % _FOLDS == fold) == out]
        for out in (False, True)
    )
    if not held:
        return
    X, Y, _, _ = _refined(others, start)
    for shot in held:
        expected = inverse(X) @ shot.T_parent_carrier @ Y
        seen, _ = locate(shot.points, shot.pixels, shot.intrinsics, near=expected)
        middle = np.append(shot.points.mean(axis=0), 1.0)
        away_mm = 1e3 * float(np.linalg.norm((expected @ middle - seen @ middle)[:3]))
        yield away_mm, size_of(inverse(expected) @ seen)[1]


def _unsure(result: Any) -> tuple[float, float]:
    """Returns the standard deviations of the camera's place, mm, and rotation, degrees (Gauss-Newton)."""
    J = np.asarray(result.jac)
    freedom = max(len(J) - J.shape[1], 1)
    spread = np.diag(np.linalg.pinv(J.T @ J)) * 2 * float(result.cost) / freedom
    flat = np.linalg.matrix_rank(J) < J.shape[1]
    if flat:
        return float("inf"), float("inf")
    return 1e3 * float(np.sqrt(spread[3:6].sum())), float(np.degrees(np.sqrt(spread[:3].sum())))
