"""The pose of the board in one image of one camera, with the joints of the arms at that time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose
from stringline.real_robot.calibration.board import Board, Detection
from stringline.real_robot.calibration.opencv_library import opencv

Floats = NDArray[np.float64]

WORLD = "world"
# A board with the same markers but other corners leaves a larger residual (pixels, and share of a
# square's side).
WORST_PX = 1.5
WORST_SHARE = 0.05


@dataclass(frozen=True, eq=False)
class BoardPose:
    """The board in one image.

    Attributes:
        T_parent_carrier: (4, 4) frame of the board's carrier in that of the camera's parent,
            metres.
        points: (N, 3) detected corners in the board's frame, metres.
        pixels: (N, 2) their pixels.
        intrinsics: (3, 3) of the image.
        T_camera_board: (4, 4) solved from this image alone.
        rms_px: Root mean square reprojection error of that solution.
    """

    pose: int
    T_parent_carrier: Matrix
    points: Floats
    pixels: Floats
    intrinsics: Floats
    T_camera_board: Matrix
    rms_px: float


def locate_board(
    number: int, T_parent_carrier: Matrix, board: Board, detection: Detection, intrinsics: Floats
) -> BoardPose:
    """Solves the pose of the board from one image; for `T_parent_carrier` see `carrier_pose`.

    Raises:
        ValueError: The image cannot be used, with the reason.
    """
    if detection.problem:
        raise ValueError(detection.problem)
    points = board.corners[detection.numbers]
    pixels = detection.pixels
    if np.linalg.matrix_rank(points - points.mean(axis=0), tol=1e-6) < 2:
        raise ValueError(f"only {len(points)} corners in a single line are seen")
    T, rms_px = locate(points, pixels, intrinsics)
    square_px = board.square_mm / 1e3 * intrinsics[0, 0] / T[2, 3]
    if rms_px > max(WORST_PX, WORST_SHARE * square_px):
        raise ValueError(
            f"corners are {rms_px:.1f} pixels from where they would be on a board of "
            f"{board.columns}x{board.rows} squares: is it another board, is it bent, or has the "
            "lens a strong distortion?"
        )
    return BoardPose(number, T_parent_carrier, points, pixels, intrinsics, T, rms_px)


def locate(
    points: Floats, pixels: Floats, intrinsics: Floats, near: Matrix | None = None
) -> tuple[Matrix, float]:
    """Solves the pose of a plane with known points from one image.

    A plane has two nearly equal solutions (Collins and Bartoli 2014, "Infinitesimal Plane-Based
    Pose Estimation"). The better one is refined (Levenberg-Marquardt), or the one near a known
    pose.

    Args:
        points: (N, 3) in the plane's frame, metres, not all on one line.
        pixels: (N, 2).
        intrinsics: (3, 3).
        near: (4, 4) initial pose.

    Returns:
        T_camera_plane (4, 4), and the root mean square reprojection error.
    """
    cv2 = opencv()
    points = np.ascontiguousarray(points)
    pixels = np.ascontiguousarray(pixels)
    if near is None:
        _, rotations, positions, errors = cv2.solvePnPGeneric(
            points, pixels, intrinsics, None, flags=cv2.SOLVEPNP_IPPE
        )
        best = int(np.argmin(np.asarray(errors).reshape(-1)))
        rotation = rotations[best]
        position = positions[best]
    else:
        rotation = cv2.Rodrigues(near[:3, :3])[0]
        position = near[:3, 3:].copy()
    rotation, position = cv2.solvePnPRefineLM(points, pixels, intrinsics, None, rotation, position)
    T = pose(np.asarray(position).reshape(3), cv2.Rodrigues(rotation)[0])
    return T, rms(projected(T, points, intrinsics) - pixels)


def projected(T_camera_points: Matrix, points: Floats, intrinsics: Floats) -> Floats:
    """Returns the pixels (N, 2) of points (N, 3)."""
    seen = (points @ T_camera_points[:3, :3].T + T_camera_points[:3, 3]) @ intrinsics.T
    return np.asarray(seen[:, :2] / seen[:, 2:])


def rms(vectors: Floats) -> float:
    """Returns the root mean square length of vectors (N, D)."""
    return float(np.sqrt((vectors**2).sum(axis=1).mean()))


def carrier_pose(embodiment: Embodiment, parent: str, carrier: str | None, q: Vector) -> Matrix:
    """Returns the frame (4, 4) of the board's carrier in that of the camera's parent.

    The parent is `world` or an arm. The carrier is an arm; None: the board stands still.
    """
    frames: dict[str, Matrix] = {WORLD: np.eye(4), **embodiment.forward_kinematics(q)}
    return np.asarray(inverse(frames[parent]) @ frames[carrier or WORLD])
