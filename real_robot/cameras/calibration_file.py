"""Where cameras were measured to be: a file beside the configuration, that `stringline-deploy mode=calibrate` writes.

How it is measured is in `real_robot/calibration`; here it is written, read, and held against the
robot that is there.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import yaml
from numpy.typing import NDArray

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.embodiments.embodiment import CameraMount, Embodiment
from stringline.datasets.files.atomic import write_file
from stringline.real_robot.cameras.camera import CameraError

Matrix = NDArray[np.float64]

VERSION = 1
UNKNOWN = "not in the calibration file: taken to be where the body's drawing has it"
_ALLOWED_MM = 5.0
_ALLOWED_DEG = 0.5
_RIGID = 1e-3
_NEEDED = ("serial", "parent", "T_parent_camera", "size", "residual_mm", "residual_deg")
_HEAD = (
    "# Where cameras were measured to be, by stringline-deploy mode=calibrate. "
    "docs/calibration.md\n"
)


@dataclass(frozen=True, eq=False)
class CalibratedCamera:
    """One camera.

    Attributes:
        serial: Of the camera that was measured.
        parent: What carries it: `world`, or the arm whose gripper (TCP) frame does.
        T_parent_camera: (4, 4) camera (x right, y down, z forward) to what carries it, metres.
        size: Rows and columns of the images that it was measured in.
        residual_mm: What was left over of places, as the root of the mean square, over poses that
            were held out; by clouds, the standard error.
        residual_deg: The same of angles.
        residual_px: The same of pixels, over all poses; None where no pixels were compared.
        intrinsics: fx, fy, cx, cy in pixels of these images; nothing where nobody noted them.
        method: `board`, `clouds`, or in what other way it was measured.
        poses: Of the arms, from which it was measured.
        date: When, in ISO 8601.
    """

    serial: str
    parent: str
    T_parent_camera: Matrix
    size: tuple[int, int]
    residual_mm: float
    residual_deg: float
    residual_px: float | None = None
    intrinsics: tuple[float, ...] = ()
    method: str = ""
    poses: int = 0
    date: str = ""

    @classmethod
    def of(cls, name: str, plain: Mapping[str, Any]) -> Self:
        """Reads an entry of the file.

        Raises:
            ValueError: Something is missing, or the pose is none.
        """
        if missing := [key for key in _NEEDED if plain.get(key) is None]:
            raise ValueError(
                f"The calibration of the camera {name!r} does not say {', '.join(missing)}. If it "
                f"is an old one, measure the "
                "camera again: stringline-deploy mode=calibrate."
            )
        try:
            found = cls._read(plain)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"The calibration of the camera {name!r} cannot be read: {error}."
            ) from error
        pose = found.T_parent_camera
        rigid = pose.shape == (4, 4) and np.allclose(
            pose[:3, :3] @ pose[:3, :3].T, np.eye(3), atol=_RIGID
        )
        if not rigid or np.linalg.det(pose[:3, :3]) < 0 or not np.allclose(pose[3], (0, 0, 0, 1)):
            raise ValueError(
                f"The calibration of the camera {name!r}: T_parent_camera is no rotation with a "
                f"place."
            )
        return found

    @classmethod
    def _read(cls, plain: Mapping[str, Any]) -> Self:
        height, width = plain["size"]
        pixels = plain.get("residual_px")
        return cls(
            str(plain["serial"]),
            str(plain["parent"]),
            np.array(plain["T_parent_camera"], dtype=np.float64),
            (int(height), int(width)),
            float(plain["residual_mm"]),
            float(plain["residual_deg"]),
            None if pixels is None else float(pixels),
            tuple(float(value) for value in plain.get("intrinsics") or ()),
            str(plain.get("method") or ""),
            int(plain.get("poses") or 0),
            str(plain.get("date") or ""),
        )

    def to_plain(self) -> dict[str, Any]:
        """Returns the entry as the file has it."""
        plain = {
            field: getattr(self, field) for field in ("serial", "parent", "method", "poses", "date")
        }
        plain |= {
            "T_parent_camera": self.T_parent_camera.tolist(),
            "size": list(self.size),
            "intrinsics": list(self.intrinsics),
        }
        residuals = {
            "residual_px": self.residual_px,
            "residual_mm": self.residual_mm,
            "residual_deg": self.residual_deg,
        }
        return plain | {
            key: None if value is None else round(value, 4) for key, value in residuals.items()
        }


@dataclass(frozen=True, eq=False)
class Calibration:
    """All cameras of a file.

    Attributes:
        cameras: By name.
        allowed_mm: Largest residual of places that is accepted.
        allowed_deg: Of angles.
    """

    cameras: Mapping[str, CalibratedCamera]
    allowed_mm: float = _ALLOWED_MM
    allowed_deg: float = _ALLOWED_DEG

    @classmethod
    def read(cls, path: Path, body: Embodiment) -> Self:
        """Reads a file.

        Raises:
            ValueError: It is missing, damaged or of another version, of another body, or about
                cameras that the body has not or carries elsewhere.
        """
        try:
            found = yaml.safe_load(path.read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(
                f"The calibration file {path} cannot be read: {getattr(error, 'strerror', error)}."
            ) from error
        except yaml.YAMLError as error:
            raise ValueError(f"The calibration file {path} is no YAML: {error}.") from error
        cameras = found.get("cameras") if isinstance(found, dict) else None
        if (
            not isinstance(cameras, dict)
            or not cameras
            or not all(isinstance(plain, dict) for plain in cameras.values())
        ):
            raise ValueError(
                f"The calibration file {path} must have `cameras:` with an entry for each."
            )
        if found.get("version") != VERSION:
            raise ValueError(
                f"The calibration file {path} is of version {found.get('version')}; this program "
                f"reads version {VERSION}. "
                "Measure the cameras again: stringline-deploy mode=calibrate."
            )
        if found.get("embodiment") != body.name:
            raise ValueError(
                f"The calibration file {path} is of the body {found.get('embodiment')}; this one "
                f"is {body.name}."
            )
        known = {mount.name: mount for mount in body.cameras}
        return cls(
            {str(name): _read_camera(str(name), plain, known) for name, plain in cameras.items()}
        )

    def write(self, path: Path, body: Embodiment) -> None:
        """Replaces a file as a whole, so that readers see the old one or the new one.

        Args:
            path: Of the file; its folder is made.
            body: Whose cameras they are.
        """
        cameras = {name: camera.to_plain() for name, camera in self.cameras.items()}
        plain = {"version": VERSION, "embodiment": body.name, "cameras": cameras}
        path.parent.mkdir(parents=True, exist_ok=True)
        text = _HEAD + yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, width=200)
        write_file(path, text.encode())

    def demand(self, name: str, serial: str, size: tuple[int, int] | None = None) -> str:
        """Says how well a camera is known.

        Args:
            name: Of a camera that the file is about.
            serial: Of the camera that is there.
            size: Rows and columns of its images; None where they are drawn in any size.

        Raises:
            CameraError: Another one was measured, or with other images, or the residual is too
                large.
        """
        camera = self.cameras[name]
        if camera.serial != serial:
            raise CameraError(
                f"the calibration is of the camera with serial number {camera.serial}; this one "
                f"has {serial}."
            )
        if size is not None and camera.size != size:
            raise CameraError(
                f"it was calibrated with images of {camera.size[1]}x{camera.size[0]}; now they "
                f"are {size[1]}x{size[0]}."
            )
        words = f"residual {camera.residual_mm:g} mm, {camera.residual_deg:g} degrees"
        if not (camera.residual_mm <= self.allowed_mm and camera.residual_deg <= self.allowed_deg):
            raise CameraError(
                f"its calibration has a {words}; allowed: {self.allowed_mm:g} mm, "
                f"{self.allowed_deg:g} degrees."
            )
        return f"calibrated, {words}"

    def without(self, names: Collection[str]) -> "Calibration":
        """Returns what is known of the other cameras."""
        return replace(
            self,
            cameras={name: camera for name, camera in self.cameras.items() if name not in names},
        )

    def applied(self, body: Embodiment) -> Embodiment:
        """Returns the body with its cameras where they were measured to be."""
        mounts = tuple(
            replace(mount, T_parent_camera=self.cameras[mount.name].T_parent_camera)
            if mount.name in self.cameras
            else mount
            for mount in body.cameras
        )
        return replace(body, cameras=mounts)


def _read_camera(
    name: str, plain: Mapping[str, Any], known: Mapping[str, CameraMount]
) -> CalibratedCamera:
    if name not in known:
        raise unknown_name("camera", name, known)
    camera = CalibratedCamera.of(name, plain)
    if camera.parent != known[name].parent:
        raise ValueError(
            f"The camera {name!r} was calibrated on {camera.parent!r}; this body carries it on "
            f"{known[name].parent!r}."
        )
    return camera
