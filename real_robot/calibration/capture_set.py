"""The images of a calibration: the captures of each camera at each pose, written for inspection."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Contract, Observation
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.files.atomic import write_file
from stringline.real_robot.calibration.board import (
    BoardPose,
    Detection,
    carrier_pose,
    locate_board,
    projected,
)
from stringline.real_robot.calibration.calibration_settings import CalibrationSettings, Method
from stringline.real_robot.calibration.cloud_alignment import CloudPair, DepthMean
from stringline.real_robot.calibration.opencv_library import opencv
from stringline.real_robot.cameras.camera import Image

GREEN = (60, 220, 60)
RED = (240, 70, 60)
YELLOW = (250, 220, 60)


@dataclass(frozen=True)
class CapturedImage:
    """An image file.

    Attributes:
        pose: Number of the pose, from 1.
        file: Name in the folder.
    """

    camera: str
    pose: int
    file: str
    description: str
    used: bool


@dataclass
class _DepthCapture:
    """Joints (J,) and the mean depth of each camera at one pose."""

    position: Vector
    depth: dict[str, DepthMean]


@dataclass
class CaptureSet:
    """Images and detections of a calibration.

    Attributes:
        embodiment: Embodiment with the assumed camera poses.
        detections: Poses of the board, by camera.
        intrinsics: (3, 3) of each camera's images.
        visited: (J,) joints at each pose.
    """

    settings: CalibrationSettings
    embodiment: Embodiment
    contract: Contract
    folder: Path
    report: Callable[[str], None]
    detections: dict[str, list[BoardPose]] = field(default_factory=dict)
    images: list[CapturedImage] = field(default_factory=list)
    intrinsics: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    visited: dict[int, Vector] = field(default_factory=dict)
    _depths: dict[int, _DepthCapture] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Creates the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._parents = {mount.name: mount.parent for mount in self.embodiment.cameras}

    def take(self, number: int, observation: Observation) -> None:
        """Adds the images of an observation; the arms rest at a pose with a number from 1 on."""
        q: Vector = observation["joints/position"].astype(np.float64)
        first = number not in self.visited
        self.visited.setdefault(number, q)
        for name in self.settings.needed:
            K = self.intrinsics.setdefault(
                name, observation[f"intrinsics/{name}"].astype(np.float64)
            )
            image = observation[f"rgb/{name}"]
            if self.settings.method is Method.BOARD:
                self._detect_board(name, number, image, q)
                continue
            depth = observation[f"depth/{name}"]
            capture = self._depths.setdefault(number, _DepthCapture(q, {}))
            mean = capture.depth.setdefault(name, DepthMean(self.contract.camera(name), K))
            mean.add(depth)
            if first:
                seen = float((depth > 0).mean())
                self._write(
                    name, number, image, f"depth at {seen:.0%} of the pixels", used=seen > 0
                )

    def cloud_pairs(self, camera: str) -> list[CloudPair]:
        """Returns the surfaces of a camera and of the reference at each pose."""
        reference = self.settings.reference
        if reference is None:
            raise ValueError("calibration.reference is not set.")
        parent = self._parents[camera]
        pairs = []
        for number, capture in self._depths.items():
            poses = self.embodiment.camera_poses(capture.position)
            T_base_parent = carrier_pose(
                self.embodiment, "world", None if parent == "world" else parent, capture.position
            )
            trusted, surface = (capture.depth[name].surface() for name in (reference, camera))
            pairs.append(CloudPair(number, trusted, poses[reference], surface, T_base_parent))
        return pairs

    def draw_expected(self, camera: str, expected: Mapping[int, NDArray[np.float64]]) -> None:
        """Draws yellow crosses into a camera's images at the pixels (N, 2) predicted by pose."""
        cv2 = opencv()
        for captured in self.images:
            if captured.camera == camera and captured.pose in expected:
                path = self.folder / captured.file
                image = cv2.imread(str(path))
                for x, y in expected[captured.pose]:
                    pixel = (round(x - 0.5), round(y - 0.5))
                    cv2.drawMarker(image, pixel, YELLOW[::-1], cv2.MARKER_CROSS, 9, 1)
                write_file(path, cv2.imencode(".png", image)[1].tobytes())

    def _detect_board(self, name: str, number: int, image: Image, q: Vector) -> None:
        board = self.settings.board
        detection = board.find(image)
        T_parent_carrier = carrier_pose(
            self.embodiment, self._parents[name], self.settings.held_by, q
        )
        try:
            found = locate_board(number, T_parent_carrier, board, detection, self.intrinsics[name])
        except ValueError as error:
            self._write(name, number, _marked(image, detection, RED), str(error), used=False)
            return
        self.detections.setdefault(name, []).append(found)
        distance_m = float(found.T_camera_board[2, 3])
        text = f"{len(found.points)} corners, {found.rms_px:.2f} px, {distance_m:.2f} m away"
        self._write(name, number, _marked(image, detection, GREEN), text, used=True)

    def _write(self, name: str, number: int, image: Image, description: str, *, used: bool) -> None:
        file = f"{name}_{number:02d}.png"
        image = np.ascontiguousarray(image[..., ::-1])
        write_file(self.folder / file, opencv().imencode(".png", image)[1].tobytes())
        self.images.append(CapturedImage(name, number, file, description, used))
        self.report(f"Pose {number}, {name}: {description}" + ("." if used else ". Not used."))


def expected_pixels(
    found: BoardPose, T_parent_camera: NDArray[np.float64], T_carrier_board: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns the pixels (N, 2) that a result predicts for the corners of an image."""
    T_camera_board = np.linalg.inv(T_parent_camera) @ found.T_parent_carrier @ T_carrier_board
    return projected(T_camera_board, found.points, found.intrinsics)


def _marked(image: Image, detection: Detection, colour: tuple[int, int, int]) -> Image:
    """Returns an image with a circle at each corner."""
    cv2 = opencv()
    drawn = np.ascontiguousarray(image.copy())
    for x, y in detection.pixels:
        cv2.circle(drawn, (round(x - 0.5), round(y - 0.5)), 5, colour, 1, cv2.LINE_AA)
    return drawn
