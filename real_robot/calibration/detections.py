"""Looks at the board: one image of one camera, with where the arms were, and what the image alone says of the board."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose
from stringline.real_robot.calibration.board import Board, Sighting
from stringline.real_robot.calibration.opencv_library import opencv

Floats = NDArray[np.float64]

WORLD = "world"
# What a plane explains worse than that is another plane: markers are read all the same, but corners
# are not where they belong.
WORST_PX = 1.5
WORST_SHARE = 0.05


@dataclass(frozen=True, eq=False)
class Shot:
    """One look.

    Attributes:
        pose: Number of the pose of the arms, from 1.
        T_parent_carrier: (4, 4) what holds the board, in the frame of what holds the camera,
            metres.
        points: (N, 3) corners in the board's frame, metres.
        pixels: (N, 2) where they were seen.
        intrinsics: (3, 3) of the image.
        T_camera_board: (4, 4) by this image alone.
        rms_px: What that leaves over, root of the mean square distance.
    """

    pose: int
    T_parent_carrier: Matrix
    points: Floats
    pixels: Floats
    intrinsics: Floats
    T_camera_board: Matrix
    rms_px: float


def shoot(
    number: int, T_parent_carrier: Matrix, board: Board, sighting: Sighting, intrinsics: Floats
) -> Shot:
    """Makes a look of what was found in an image.

    Args:
        number: Of the pose of the arms.
        T_parent_carrier: (4, 4), see `carried`.
        board: That was looked for.
        sighting: What was found.
        intrinsics: (3, 3) of the image.

    Raises:
        ValueError: The image cannot be used; says why.
    """
    if sighting.trouble:
        raise ValueError(sighting.trouble)
    points = board.corners[sighting.numbers]
    pixels = sighting.pixels
    if np.linalg.matrix_rank(points - points.mean(axis=0), tol=1e-6) < 2:
        raise ValueError(f"only {len(points)} corners in a single line are seen")
    T, rms_px = locate(points, pixels, intrinsics)
    square_px = board.square_mm / 1e3 * intrinsics[0, 0] / T[2, 3]
    if rms_px > max(WORST_PX, WORST_SHARE * square_px):
        raise ValueError(
            f"corners are {rms_px:.1f} pixels from where they would be on a board of "
            f"{board.columns}x{board.rows} squares: "
            "is it another board, is it bent, or has the camera's lens a strong distortion?"
        )
    return Shot(number, T_parent_carrier, points, pixels, intrinsics, T, rms_px)


def locate(
    points: Floats, pixels: Floats, intrinsics: Floats, near: Matrix | None = None
) -> tuple[Matrix, float]:
    """Finds where a plane with known points is, by one image.

    Of the two places that explain a plane nearly as well (Collins and Bartoli 2014, "Infinitesimal
    Plane-Based Pose Estimation") the better one is refined (Levenberg-Marquardt), or the one that
    is near what is known.

    Args:
        points: (N, 3) in the plane's frame, metres, not in one line.
        pixels: (N, 2).
        intrinsics: (3, 3).
        near: (4, 4) to begin from.

    Returns:
        T_camera_plane (4, 4), and the root of the mean square distance of the pixels.
    """
    cv2 = opencv()
    points = np.ascontiguousarray(points)
    pixels = np.ascontiguousarray(pixels)
    if near is None:
        _, turns, places, errors = cv2.solvePnPGeneric(
            points, pixels, intrinsics, None, flags=cv2.SOLVEPNP_IPPE
        )
        best = int(np.argmin(np.asarray(errors).reshape(-1)))
        turn = turns[best]
        place = places[best]
    else:
        turn = cv2.Rodrigues(near[:3, :3])[0]
        place = near[:3, 3:].copy()
    turn, place = cv2.solvePnPRefineLM(points, pixels, intrinsics, None, turn, place)
    T = pose(np.asarray(place).reshape(3), cv2.Rodrigues(turn)[0])
    return T, rms(projected(T, points, intrinsics) - pixels)


def projected(T_camera_points: Matrix, points: Floats, intrinsics: Floats) -> Floats:
    """Returns the pixels (N, 2) at which a camera sees points (N, 3)."""
    seen = (points @ T_camera_points[:3, :3].T + T_camera_points[:3, 3]) @ intrinsics.T
    return np.asarray(seen[:, :2] / seen[:, 2:])


def rms(away: Floats) -> float:
    """Returns the root of the mean square length of vectors (N, D)."""
    return float(np.sqrt((away**2).sum(axis=1).mean()))


def carried(body: Embodiment, parent: str, carrier: str | None, q: Vector) -> Matrix:
    """Returns the frame of what holds the board in that of what holds the camera (4, 4).

    Args:
        body: Whose kinematics count.
        parent: Of the camera: `world`, or an arm.
        carrier: Of the board: an arm; None: it stands still.
        q: (J,) joints.
    """
    frames: dict[str, Matrix] = {WORLD: np.eye(4), **body.forward_kinematics(q)}
    return np.asarray(inverse(frames[parent]) @ frames[carrier or WORLD])
