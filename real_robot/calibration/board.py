"""The ChArUco board, and its pose in an image of a camera.

The board is a chessboard with ArUco or AprilTag markers in its white squares. The markers identify
the corners of the squares, also where part of the board is hidden; the corners are located to a
tenth of a pixel. Garrido-Jurado et al. (2014), "Automatic generation and detection of highly
reliable fiducial markers under occlusion"; detection is OpenCV's. A `BoardPose` keeps the joints of
the arms at the time of the image.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose
from stringline.real_robot.calibration.opencv_library import opencv
from stringline.real_robot.cameras.camera import Image
from stringline.real_robot.robots.robot_settings import known_settings

Floats = NDArray[np.float64]
Grey = NDArray[np.uint8]

FEWEST_CORNERS = 6
_FEWEST_SQUARES = 3
# Smaller images are magnified, so that a marker's bits have enough pixels.
_MAGNIFIED_PX = 720
_MAGNIFIED = 2
# Half width of the window around a corner: share of a square, and range in pixels.
_WINDOW_SHARE = 0.12
_WINDOW_LEAST = 2
_WINDOW_MOST = 7


@dataclass(frozen=True, eq=False)
class Detection:
    """The corners detected in an image.

    Attributes:
        numbers: (N,) numbers of the corners, by row of the board, from 0.
        pixels: (N, 2) x and y; the centre of pixel (0, 0) is at (0.5, 0.5).
        problem: Why the image cannot be used; empty if it can.
    """

    numbers: NDArray[np.int64]
    pixels: Floats
    problem: str = ""


@dataclass(frozen=True)
class Board:
    """A board as it was printed and measured.

    Its frame: origin at a corner, x along rows, y along columns, z into the board.

    Attributes:
        columns: Squares in a row of the board (x), at least 3.
        rows: Squares in a column of the board (y), at least 3.
        square_mm: Side of a square, measured on the print, because printers may scale.
        marker_mm: Side of a marker with its black border, measured on the print.
        dictionary: OpenCV's name of the set of markers, such as DICT_APRILTAG_36h11.
        legacy: True: the layout of boards from OpenCV before 4.6.
    """

    columns: int = 7
    rows: int = 5
    square_mm: float = 30.0
    marker_mm: float = 22.0
    dictionary: str = "DICT_4X4_50"
    legacy: bool = False

    def __post_init__(self) -> None:
        """Checks the numbers."""
        if (
            min(self.columns, self.rows) < _FEWEST_SQUARES
            or (self.columns - 1) * (self.rows - 1) < FEWEST_CORNERS
        ):
            raise ValueError(
                f"A board of {self.columns}x{self.rows} squares; allowed: at least "
                f"{_FEWEST_SQUARES} each way, and {FEWEST_CORNERS} corners between them."
            )
        if not 0 < self.marker_mm < self.square_mm:
            raise ValueError(
                f"Markers of {self.marker_mm} mm in squares of {self.square_mm} mm; allowed: "
                "above 0, and smaller than the squares."
            )

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Reads the settings of a configuration."""
        board = cls(**known_settings("a board", plain, cls))
        _ = board.markers  # Checks the dictionary.
        return board

    @property
    def size_m(self) -> tuple[float, float]:
        """Lengths along x and y, metres."""
        return self.columns * self.square_mm / 1e3, self.rows * self.square_mm / 1e3

    @cached_property
    def corners(self) -> Floats:
        """All inner corners (M, 3) in the board's frame, metres, in the order of their numbers."""
        return np.asarray(self._charuco.getChessboardCorners(), dtype=np.float64)

    @cached_property
    def markers(self) -> int:
        """Number of markers; they are numbered from 0.

        Raises:
            ValueError: The dictionary is unknown, or has fewer markers.
        """
        needed = (self.columns * self.rows) // 2
        have = len(self._markers.bytesList)
        if needed > have:
            raise ValueError(f"The board needs {needed} markers; {self.dictionary} has {have}.")
        return len(self._charuco.getIds())

    def drawn(self, square_px: int, margin_px: int = 0) -> Grey:
        """Returns an image (H, W) of the board with white margins, black 0 and white 255."""
        size = self.columns * square_px + 2 * margin_px, self.rows * square_px + 2 * margin_px
        return np.asarray(
            self._charuco.generateImage(size, marginSize=margin_px, borderBits=1), dtype=np.uint8
        )

    def find(self, image: Image) -> Detection:
        """Detects the corners in an image (H, W, 3) or (H, W)."""
        cv2 = opencv()
        grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) if image.ndim == 3 else image
        times = _MAGNIFIED if max(grey.shape) <= _MAGNIFIED_PX else 1
        large = (
            grey
            if times == 1
            else cv2.resize(grey, None, fx=times, fy=times, interpolation=cv2.INTER_CUBIC)
        )
        corners, numbers, _, _ = self._detector.detectBoard(large)
        if corners is None or numbers is None or len(numbers) < FEWEST_CORNERS:
            count = 0 if numbers is None else len(numbers)
            return Detection(np.zeros(0, np.int64), np.zeros((0, 2)), self._problem(large, count))
        found = np.asarray(numbers, dtype=np.int64).reshape(-1)
        rough = (
            np.asarray(corners, dtype=np.float32).reshape(-1, 1, 2) + np.float32(0.5)
        ) / np.float32(times) - np.float32(0.5)
        half = self._window(found, rough.reshape(-1, 2))
        # Versions of detectBoard differ by half a pixel; cornerSubPix has the centre of the first
        # pixel at (0, 0).
        stop = (cv2.TERM_CRITERIA_EPS + cv2.TERM_CRITERIA_MAX_ITER, 60, 1e-4)
        fine = cv2.cornerSubPix(grey, rough, (half, half), (-1, -1), stop)
        return Detection(found, np.asarray(fine, dtype=np.float64).reshape(-1, 2) + 0.5)

    def _window(self, numbers: NDArray[np.int64], pixels: NDArray[np.float32]) -> int:
        """Returns half the width of a corner's window, which must not contain a marker."""
        places = {int(number): pixel for number, pixel in zip(numbers, pixels, strict=True)}
        across = self.columns - 1
        steps = [
            float(np.linalg.norm(pixel - places[number + step]))
            for number, pixel in places.items()
            for step in (1, across)
            if number + step in places and (step == across or (number + 1) % across)
        ]
        square_px = min(steps, default=0.0)
        gap = (self.square_mm - self.marker_mm) / (2 * self.square_mm)
        return int(np.clip(min(_WINDOW_SHARE, gap) * square_px, _WINDOW_LEAST, _WINDOW_MOST))

    def _problem(self, grey: Grey, corners: int) -> str:
        """Returns the reason for too few corners."""
        cv2 = opencv()
        _, numbers, _ = cv2.aruco.ArucoDetector(self._markers, self._parameters()).detectMarkers(
            grey
        )
        seen = (
            [] if numbers is None else [int(number) for number in np.asarray(numbers).reshape(-1)]
        )
        if not seen:
            return f"no marker of {self.dictionary} is seen"
        if strange := sorted({number for number in seen if number >= self.markers}):
            return (
                f"markers {', '.join(map(str, strange[:5]))} are seen, and this board has 0 to "
                f"{self.markers - 1}: is it another board?"
            )
        return (
            f"{len(seen)} of {self.markers} markers and {corners} corners are seen; needed: "
            f"{FEWEST_CORNERS} corners. Is the board far away, hidden, or another one?"
        )

    @cached_property
    def _markers(self) -> Any:
        aruco = opencv().aruco
        known = sorted(name for name in dir(aruco) if name.startswith("DICT_"))
        if self.dictionary not in known:
            raise unknown_name("dictionary of markers", self.dictionary, known)
        return aruco.getPredefinedDictionary(getattr(aruco, self.dictionary))

    @cached_property
    def _charuco(self) -> Any:
        size = (self.columns, self.rows)
        metres = (self.square_mm / 1e3, self.marker_mm / 1e3)
        board = opencv().aruco.CharucoBoard(size, *metres, self._markers)
        board.setLegacyPattern(self.legacy)
        return board

    @cached_property
    def _detector(self) -> Any:
        aruco = opencv().aruco
        return aruco.CharucoDetector(self._charuco, aruco.CharucoParameters(), self._parameters())

    def _parameters(self) -> Any:
        """Returns parameters for small markers too, whose bits have three pixels."""
        parameters = opencv().aruco.DetectorParameters()
        parameters.adaptiveThreshWinSizeMin = 5
        parameters.adaptiveThreshWinSizeMax = 45
        parameters.adaptiveThreshWinSizeStep = 10
        parameters.minMarkerPerimeterRate = 0.02
        return parameters


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

    The parent is `world` or an arm. The carrier is an arm; if None, the board stands still.
    """
    frames: dict[str, Matrix] = {WORLD: np.eye(4), **embodiment.forward_kinematics(q)}
    return np.asarray(inverse(frames[parent]) @ frames[carrier or WORLD])
