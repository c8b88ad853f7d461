"""What is to be calibrated and how, as `configs/calibration` describes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import numpy as np
import yaml
from numpy.typing import NDArray

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.real_robot.calibration.board import Board
from stringline.real_robot.calibration.detections import WORLD

_KNOWN = (
    "method",
    "cameras",
    "board",
    "held_by",
    "reference",
    "poses",
    "poses_file",
    "looks",
    "speed",
    "settle_s",
    "patience_s",
    "image_px",
    "file",
)


class Method(StrEnum):
    """By what a camera is measured."""

    BOARD = "board"  # Which one of camera and board an arm carries past the other.
    CLOUDS = "clouds"  # Which another camera sees, too.


@dataclass(frozen=True, eq=False)
class CalibrationSettings:
    """What is to be calibrated and how.

    Attributes:
        method: By what.
        cameras: Which ones, by the names of the body's mounts.
        board: That they look at.
        held_by: The arm that holds the board; None: it stands still.
        reference: The camera that is trusted, for clouds.
        poses: (N, J) joints at which images are taken; None: a person moves the arms and says when.
        looks: Images at each pose; more than one only helps clouds.
        speed: Of the fastest hinge on the way from pose to pose, rad/s; the safety filter may have
            it slower.
        settle_s: How long the arms must have been at rest before an image counts.
        patience_s: How long a pose is waited for beyond the time of the way.
        image_px: Rows and columns of the images of emulated cameras.
        file: That is written; cameras in it that are not measured now stay.
    """

    method: Method
    cameras: tuple[str, ...]
    board: Board
    held_by: str | None
    reference: str | None
    poses: NDArray[np.float64] | None
    looks: int
    speed: float
    settle_s: float
    patience_s: float
    image_px: int
    file: Path

    def __post_init__(self) -> None:
        """Refuses numbers that nothing can be done with."""
        for name in ("looks", "speed", "settle_s", "patience_s", "image_px"):
            if not getattr(self, name) > 0:
                raise ValueError(f"calibration.{name} is {getattr(self, name)}; allowed: above 0.")

    @classmethod
    def of(cls, plain: Mapping[str, Any], body: Embodiment) -> Self:
        """Reads what a configuration says.

        Args:
            plain: Of `configs/calibration`, resolved.
            body: That is calibrated.

        Raises:
            ValueError: A setting, camera or arm is unknown, poses do not fit the body, or nothing
                could be learnt.
        """
        for name in plain:
            if name not in _KNOWN:
                raise unknown_name("setting of a calibration", str(name), _KNOWN)
        methods = [method.value for method in Method]
        if (method := str(plain.get("method", ""))) not in methods:
            raise unknown_name("method of calibration", method, methods)
        found = cls(
            Method(method),
            tuple(str(name) for name in plain.get("cameras") or ()),
            Board.of(plain.get("board") or {}) if method == Method.BOARD else Board(),
            None if plain.get("held_by") is None else str(plain["held_by"]),
            None if plain.get("reference") is None else str(plain["reference"]),
            _poses(plain, body),
            int(plain.get("looks", 1)),
            float(plain.get("speed", 0.4)),
            float(plain.get("settle_s", 0.4)),
            float(plain.get("patience_s", 5.0)),
            int(plain.get("image_px", 480)),
            Path(plain["file"]),
        )
        found._demand_sense(body)
        return found

    @property
    def needed(self) -> tuple[str, ...]:
        """All cameras that must show something."""
        return (*self.cameras, *([self.reference] if self.reference else []))

    def _demand_sense(self, body: Embodiment) -> None:
        """Refuses what could teach nothing."""
        parents = {mount.name: mount.parent for mount in body.cameras}
        if not self.cameras:
            raise ValueError(
                f"No camera is to be calibrated: calibration.cameras. {body.name} has "
                f"{', '.join(parents)}."
            )
        for name in self.needed:
            if name not in parents:
                raise unknown_name("camera", name, parents)
        if self.held_by is not None and self.held_by not in body.arms:
            raise unknown_name("arm", self.held_by, body.arms)
        if self.method is Method.CLOUDS:
            if self.reference is None or self.reference in self.cameras:
                raise ValueError(
                    "Clouds are laid over that of a camera that is trusted, another one: "
                    "calibration.reference."
                )
            return
        for name in self.cameras:
            if parents[name] == (self.held_by or WORLD):
                carrier = (
                    "stands still, as the board does"
                    if self.held_by is None
                    else f"sits on {self.held_by}, as the board does"
                )
                raise ValueError(
                    f"The camera {name!r} {carrier}: one of them must move past the other. Who "
                    f"holds the board: "
                    f"calibration.held_by, one of {', '.join(body.arms)}, or null where it stands."
                )


def _poses(plain: Mapping[str, Any], body: Embodiment) -> NDArray[np.float64] | None:
    listed = plain.get("poses")
    file = plain.get("poses_file")
    if file is not None:
        listed = read_poses(Path(file))
    if listed is None:
        return None
    names = [joint.name for joint in body.joints]
    for number, entry in enumerate(listed, 1):
        if not isinstance(entry, Sequence) or len(entry) != len(names):
            raise ValueError(
                f"Pose {number} is {entry}; {body.name} has {len(names)} joints: "
                f"{', '.join(names)}."
            )
    poses = np.array(
        [[float(value) for value in entry] for entry in listed], dtype=np.float64
    ).reshape(-1, len(names))
    if not len(poses):
        raise ValueError(
            "There are no poses: calibration.poses, a list of lists; null: a person moves the arms."
        )
    if not np.isfinite(poses).all():
        raise ValueError("The poses hold something that is no number.")
    return poses


def read_poses(path: Path) -> list[Any]:
    """Returns the poses that a file lists under `poses`.

    Raises:
        ValueError: It is missing, or lists none.
    """
    try:
        found = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ValueError(f"The file of poses {path} cannot be read: {error.strerror}.") from error
    except yaml.YAMLError as error:
        raise ValueError(f"The file of poses {path} is no YAML: {error}.") from error
    if (
        not isinstance(found, dict)
        or not isinstance(found.get("poses"), list)
        or not found["poses"]
    ):
        raise ValueError(
            f"The file of poses {path} must have `poses:` with a list of joints for each."
        )
    listed: list[Any] = found["poses"]
    return listed


def write_poses(poses: Sequence[Vector]) -> str:
    """Returns the text of a file of poses."""
    rows = [[round(float(value), 4) for value in pose] for pose in poses]
    return yaml.safe_dump({"poses": rows}, default_flow_style=None, width=200)
