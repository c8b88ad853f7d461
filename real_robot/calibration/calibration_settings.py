"""Settings of a calibration, as `configs/calibration` describes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import numpy as np
import yaml
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.files.limits import read_yaml
from stringline.real_robot.calibration.board import WORLD, Board
from stringline.real_robot.robots.backends import robot_backend
from stringline.real_robot.robots.robot_settings import RobotSettings

_SECONDS_AND_SPEED = ("speed", "settle_s", "patience_s")


class Method(StrEnum):
    """Method of calibration."""

    BOARD = "board"  # The camera, or the board, is moved by an arm.
    CLOUDS = "clouds"  # A second camera sees the same objects in depth.


@dataclass(frozen=True, eq=False)
class CalibrationSettings:
    """Settings of a calibration.

    Attributes:
        method: clouds: compares the depth of two cameras; board: a ChArUco board in images.
        cameras: Cameras to calibrate, by the names of the embodiment's mounts.
        board: The board, for method=board.
        held_by: Arm that holds the board; if None, the board is at rest.
        reference: Camera with depth, for method=clouds; calibrate it first, and set
            robot.calibration_file.
        poses: (N, J) joints in the order of the embodiment, rad, at which images are taken; the
            gripper keeps its opening. If None, a person moves the arms.
        looks: Images at each pose, which are averaged; more than one only helps clouds.
        speed: Speed of the fastest joint, rad/s; the safety filter may reduce it.
        settle_s: Seconds at rest before an image counts.
        patience_s: Longest wait for a pose beyond the time of the motion, s.
        image_px: Rows and columns of emulated images.
        file: File of the result; other cameras in it are kept.
    """

    method: Method
    cameras: tuple[str, ...]
    board: Board = field(default_factory=Board)
    held_by: str | None = None
    reference: str | None = None
    poses: NDArray[np.float64] | None = None
    looks: int = 1
    speed: float = 0.4
    settle_s: float = 0.4
    patience_s: float = 5.0
    image_px: int = 480
    file: Path = Path("runs/calibration.yaml")

    def __post_init__(self) -> None:
        """Checks the numbers."""
        for name in ("looks", "speed", "settle_s", "patience_s", "image_px"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"calibration.{name} must be a number above 0 (got {getattr(self, name)})."
                )

    @classmethod
    def of_deployment(cls, plain: Mapping[str, Any]) -> Self:
        """Reads the settings of a calibration from `configs/deploy.yaml`, resolved.

        Raises:
            ValueError: The calibration is missing or invalid.
        """
        if plain.get("calibration") is None:
            raise ValueError(
                "mode=calibrate needs the settings of a calibration: calibration=kuka_wrist, or "
                "a file of your own."
            )
        robot = RobotSettings.of(plain["robot"])
        backend = robot_backend(robot.transport, robot.arms, robot.driver, robot.backend)
        return cls.of(plain["calibration"], backend.embodiment)

    @classmethod
    def of(cls, plain: Mapping[str, Any], embodiment: Embodiment) -> Self:
        """Reads the settings of a configuration.

        Raises:
            ValueError: A setting, camera or arm is unknown, poses do not fit the embodiment, or
                the camera does not move relative to the board.
        """
        known = [*(each.name for each in fields(cls)), "poses_file"]
        for name in plain:
            if name not in known:
                raise unknown_name("setting of a calibration", str(name), known)
        methods = [method.value for method in Method]
        if (method := str(plain.get("method", ""))) not in methods:
            raise unknown_name("method of calibration", method, methods)
        numbers = {"looks": int, "image_px": int, **dict.fromkeys(_SECONDS_AND_SPEED, float)}
        chosen = {name: kind(plain[name]) for name, kind in numbers.items() if name in plain}
        if "file" in plain:
            chosen["file"] = Path(plain["file"])
        found = cls(
            method=Method(method),
            cameras=tuple(str(name) for name in plain.get("cameras") or ()),
            board=Board.of(plain.get("board") or {}) if method == Method.BOARD else Board(),
            held_by=None if plain.get("held_by") is None else str(plain["held_by"]),
            reference=None if plain.get("reference") is None else str(plain["reference"]),
            poses=_poses(plain, embodiment),
            **chosen,
        )
        found._check_names(embodiment)
        found._check_motion(embodiment)
        return found

    @property
    def needed(self) -> tuple[str, ...]:
        """All cameras that take images."""
        return (*self.cameras, *([self.reference] if self.reference else []))

    def _check_names(self, embodiment: Embodiment) -> None:
        mounts = [mount.name for mount in embodiment.cameras]
        if not self.cameras:
            raise ValueError(
                f"calibration.cameras is empty. {embodiment.name} has {', '.join(mounts)}."
            )
        for name in self.needed:
            if name not in mounts:
                raise unknown_name("camera", name, mounts)
        if self.held_by is not None and self.held_by not in embodiment.arms:
            raise unknown_name("arm", self.held_by, embodiment.arms)

    def _check_motion(self, embodiment: Embodiment) -> None:
        """Checks for a reference, or that camera and board move relative to each other."""
        if self.method is Method.CLOUDS:
            if self.reference is None or self.reference in self.cameras:
                raise ValueError(
                    "method=clouds needs another camera, which is calibrated: "
                    "calibration.reference."
                )
            return
        parents = {mount.name: mount.parent for mount in embodiment.cameras}
        for name in self.cameras:
            if parents[name] == (self.held_by or WORLD):
                place = f"are both on {self.held_by}" if self.held_by else "both stand still"
                raise ValueError(
                    f"The camera {name!r} and the board {place}; one of them must move relative "
                    "to the other. calibration.held_by names the arm that holds the board: "
                    f"{', '.join(embodiment.arms)}, or null if it stands still."
                )


def _poses(plain: Mapping[str, Any], embodiment: Embodiment) -> NDArray[np.float64] | None:
    listed = plain.get("poses")
    file = plain.get("poses_file")
    if file is not None:
        listed = read_poses(Path(file))
    if listed is None:
        return None
    names = [joint.name for joint in embodiment.joints]
    for number, entry in enumerate(listed, 1):
        if not isinstance(entry, Sequence) or len(entry) != len(names):
            raise ValueError(
                f"Pose {number} is {entry}; {embodiment.name} has {len(names)} joints: "
                f"{', '.join(names)}."
            )
    rows = [[float(value) for value in entry] for entry in listed]
    poses = np.array(rows, dtype=np.float64).reshape(-1, len(names))
    if not len(poses):
        raise ValueError(
            "The list of poses is empty: calibration.poses, a list of lists; null: a person moves "
            "the arms."
        )
    if not np.isfinite(poses).all():
        raise ValueError("The poses contain a value that is not a finite number.")
    return poses


def read_poses(path: Path) -> list[Any]:
    """Returns the list under `poses` in a YAML file.

    Raises:
        ValueError: The file is missing or invalid.
    """
    found = read_yaml("The file of poses", path)
    listed = found.get("poses") if isinstance(found, dict) else None
    if not isinstance(listed, list) or not listed:
        raise ValueError(
            f"The file of poses {path} must have `poses:` with a list of joints for each."
        )
    return listed


def write_poses(poses: Sequence[Vector]) -> str:
    """Returns the text of a file of poses."""
    rows = [[round(float(value), 4) for value in pose] for pose in poses]
    return yaml.safe_dump({"poses": rows}, default_flow_style=None, width=200)
