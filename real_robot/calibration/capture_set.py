"""The images of a calibration: what each camera saw at each pose, kept for whoever looks afterwards."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Contract, Observation
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.files.atomic import write_file
from stringline.real_robot.calibration.board import Sighting
from stringline.real_robot.calibration.calibration_settings import CalibrationSettings, Method
from stringline.real_robot.calibration.cloud_alignment import DepthMean, Encounter
from stringline.real_robot.calibration.detections import Shot, carried, projected, shoot
from stringline.real_robot.calibration.opencv_library import opencv
from stringline.real_robot.cameras.camera import Image

GREEN = (60, 220, 60)
RED = (240, 70, 60)
YELLOW = (250, 220, 60)


@dataclass(frozen=True)
class Photograph:
    """An image that was written.

    Attributes:
        camera: That took it.
        pose: Number of the pose, from 1.
        file: Name in the folder.
        words: What was found in it.
        good: Whether it was used.
    """

    camera: str
    pose: int
    file: str
    words: str
    good: bool


@dataclass
class _Look:
    """What was seen at one pose, for clouds."""

    position: Vector
    depth: dict[str, DepthMean]


@dataclass
class Gallery:
    """Takes what observations show.

    Attributes:
        settings: What is calibrated.
        body: With the cameras where they are taken to be so far.
        contract: Of the observations.
        folder: Where images go.
        say: Shows a line.
        shots: Of the board, by camera.
        photographs: All that were written.
        intrinsics: (3, 3) of the images of each camera.
        visited: (J,) joints at each pose.
    """

    settings: CalibrationSettings
    body: Embodiment
    contract: Contract
    folder: Path
    say: Callable[[str], None]
    shots: dict[str, list[Shot]] = field(default_factory=dict)
    photographs: list[Photograph] = field(default_factory=list)
    intrinsics: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    visited: dict[int, Vector] = field(default_factory=dict)
    _looks: dict[int, _Look] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Makes room."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._parents = {mount.name: mount.parent for mount in self.body.cameras}

    def take(self, number: int, observation: Observation) -> None:
        """Takes the images of one look at a pose at which the arms rest.

        Args:
            number: Of the pose, from 1.
            observation: Of the contract.
        """
        q: Vector = observation["joints/position"].astype(np.float64)
        first = number not in self.visited
        self.visited.setdefault(number, q)
        for name in self.settings.needed:
            K = self.intrinsics.setdefault(
                name, observation[f"intrinsics/{name}"].astype(np.float64)
            )
            if self.settings.method is Method.CLOUDS:
                look = self._looks.setdefault(number, _Look(q, {}))
                mean = look.depth.setdefault(name, DepthMean(self.contract.camera(name), K))
                mean.add(observation[f"depth/{name}"])
                if first:
                    seen = float((observation[f"depth/{name}"] > 0).mean())
                    self._keep(
                        name,
                        number,
                        observation[f"rgb/{name}"],
                        f"depth at {seen:.0%} of the pixels",
                        good=seen > 0,
                    )
            else:
                self._find_board(name, number, observation[f"rgb/{name}"], q)

    def encounters(self, camera: str) -> list[Encounter]:
        """Returns what a camera and the reference saw, pose by pose."""
        reference = self.settings.reference
        assert reference is not None
        found = []
        for number, look in self._looks.items():
            places = self.body.camera_poses(look.position)
            mount = next(mount for mount in self.body.cameras if mount.name == camera)
            T_base_parent = carried(
                self.body, "world", None if mount.parent == "world" else mount.parent, look.position
            )
            trusted, surface = (look.depth[name].surface() for name in (reference, camera))
            found.append(Encounter(number, trusted, places[reference], surface, T_base_parent))
        return found

    def redraw(self, camera: str, shots: Mapping[int, tuple[Shot, NDArray[np.float64]]]) -> None:
        """Adds to a camera's images where corners should be by the result, as yellow crosses.

        Args:
            camera: Its name.
            shots: By pose, with the pixels (N, 2) that are expected.
        """
        cv2 = opencv()
        for photograph in self.photographs:
            if photograph.camera == camera and photograph.pose in shots:
                path = self.folder / photograph.file
                image = cv2.imread(str(path))
                for x, y in shots[photograph.pose][1]:
                    place = (round(x - 0.5), round(y - 0.5))
                    cv2.drawMarker(image, place, YELLOW[::-1], cv2.MARKER_CROSS, 9, 1)
                write_file(path, cv2.imencode(".png", image)[1].tobytes())

    def _find_board(self, name: str, number: int, image: Image, q: Vector) -> None:
        sighting = self.settings.board.find(image)
        T_parent_carrier = carried(self.body, self._parents[name], self.settings.held_by, q)
        try:
            shot = shoot(
                number, T_parent_carrier, self.settings.board, sighting, self.intrinsics[name]
            )
        except ValueError as error:
            self._keep(name, number, _marked(image, sighting, RED), str(error), good=False)
            return
        self.shots.setdefault(name, []).append(shot)
        distance_m = float(shot.T_camera_board[2, 3])
        words = f"{len(shot.points)} corners, {shot.rms_px:.2f} px, {distance_m:.2f} m away"
        self._keep(name, number, _marked(image, sighting, GREEN), words, good=True)

    def _keep(self, name: str, number: int, image: Image, words: str, *, good: bool) -> None:
        file = f"{name}_{number:02d}.png"
        image = np.ascontiguousarray(image[..., ::-1])
        write_file(self.folder / file, opencv().imencode(".png", image)[1].tobytes())
        self.photographs.append(Photograph(name, number, file, words, good))
        self.say(f"Pose {number}, {name}: {words}" + ("." if good else ". Not used."))


def expected(
    shot: Shot, T_parent_camera: NDArray[np.float64], T_carrier_board: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns the pixels (N, 2) at which the corners of a look should be."""
    T_camera_board = np.linalg.inv(T_parent_camera) @ shot.T_parent_carrier @ T_carrier_board
    return projected(T_camera_board, shot.points, shot.intrinsics)


def _marked(image: Image, sighting: Sighting, colour: tuple[int, int, int]) -> Image:
    """Returns an image with a circle about each corner."""
    cv2 = opencv()
    drawn = np.ascontiguousarray(image.copy())
    for x, y in sighting.pixels:
        cv2.circle(drawn, (round(x - 0.5), round(y - 0.5)), 5, colour, 1, cv2.LINE_AA)
    return drawn
