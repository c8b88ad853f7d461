"""The file of measured camera poses, which `stringline-deploy mode=calibrate` writes.

`real_robot/calibration` measures the poses; this module writes and reads the file, and checks it
against the robot. Recorded data take the same file (`datasets/cameras/camera_calibration.py`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import yaml
from numpy.typing import NDArray

from stringline.datasets.cameras.camera_calibration import VERSION, CalibrationFile, check_rigid
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.embodiment import CameraMount, Embodiment
from stringline.datasets.files.atomic import write_file
from stringline.real_robot.cameras.camera import CameraError

Matrix = NDArray[np.float64]

UNKNOWN = "not in the calibration file: the nominal pose of the embodiment is used"
_ALLOWED_MM = 5.0
_ALLOWED_DEG = 0.5
_NEEDED = ("serial", "parent", "T_parent_camera", "size", "residual_mm", "residual_deg")
_HEAD = (
    "# Measured camera poses, written by stringline-deploy mode=calibrate. docs/calibration.md\n"
)


@dataclass(frozen=True, eq=False)
class CalibratedCamera:
    """The calibration of one camera.

    Attributes:
        parent: Parent frame: `world`, or the arm of whose gripper (TCP) frame it is.
        T_parent_camera: (4, 4) camera frame (x right, y down, z forward) to parent frame, metres.
        size: Rows and columns of its images.
        residual_mm: Root mean square residual of positions over held-out poses; for `clouds`, the
            standard error.
        residual_deg: The same for angles.
        residual_px: The same for pixels, over all poses; None without compared pixels.
        intrinsics: fx, fy, cx, cy in pixels of its images; empty if unknown.
        method: `board`, `clouds`, or the name of another method.
        poses: Number of poses of the arms.
        date: Date in ISO 8601.
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
        """Builds a calibration from an entry of the file.

        Raises:
            ValueError: A value is missing or invalid, or the pose is not rigid.
        """
        if missing := [key for key in _NEEDED if plain.get(key) is None]:
            raise ValueError(
                f"The calibration of the camera {name!r} lacks {', '.join(missing)}. Calibrate the "
                f"camera again: stringline-deploy mode=calibrate."
            )
        try:
            found = cls._read(plain)
            check_rigid(found.T_parent_camera)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"The calibration of the camera {name!r} is invalid: {error}."
            ) from error
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
        """Returns the entry of the file."""
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
    """The calibrations in a file, by the name of the camera."""

    cameras: Mapping[str, CalibratedCamera]

    @classmethod
    def read(cls, path: Path, embodiment: Embodiment) -> Self:
        """Reads a file.

        Raises:
            ValueError: The file is invalid, or is of another version or embodiment, or has cameras
                that the embodiment lacks or has in another frame.
        """
        file = CalibrationFile.read(path)
        file.check_embodiment(embodiment.name, "the robot is")
        known = {mount.name: mount for mount in embodiment.cameras}
        return cls({name: _read_camera(name, plain, known) for name, plain in file.cameras.items()})

    def write(self, path: Path, embodiment: Embodiment) -> None:
        """Writes a file atomically, and creates its folder."""
        cameras = {name: camera.to_plain() for name, camera in self.cameras.items()}
        plain = {"version": VERSION, "embodiment": embodiment.name, "cameras": cameras}
        path.parent.mkdir(parents=True, exist_ok=True)
        text = _HEAD + yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, width=200)
        write_file(path, text.encode())

    def check(self, name: str, serial: str, size: tuple[int, int] | None = None) -> str:
        """Checks that a calibration applies to a connected camera; returns its residuals as text.

        The size is rows and columns of its images; None if these are drawn in any size.

        Raises:
            CameraError: The serial number or the size differs, or the residual is too large.
        """
        camera = self.cameras[name]
        if camera.serial != serial:
            raise CameraError(
                f"its serial number is {serial}; the calibration is for {camera.serial}."
            )
        if size is not None and camera.size != size:
            raise CameraError(
                f"its images are {size[1]}x{size[0]}; it was calibrated with "
                f"{camera.size[1]}x{camera.size[0]}."
            )
        residual = f"residual {camera.residual_mm:g} mm, {camera.residual_deg:g} degrees"
        if not (camera.residual_mm <= _ALLOWED_MM and camera.residual_deg <= _ALLOWED_DEG):
            raise CameraError(
                f"its calibration has a {residual}; allowed: {_ALLOWED_MM:g} mm, "
                f"{_ALLOWED_DEG:g} degrees."
            )
        return f"calibrated, {residual}"

    def without(self, names: Collection[str]) -> "Calibration":
        """Returns the calibration of all other cameras."""
        return Calibration(
            {name: camera for name, camera in self.cameras.items() if name not in names}
        )

    def applied(self, embodiment: Embodiment) -> Embodiment:
        """Returns the embodiment with its cameras at their measured poses."""
        mounts = tuple(
            replace(mount, T_parent_camera=self.cameras[mount.name].T_parent_camera)
            if mount.name in self.cameras
            else mount
            for mount in embodiment.cameras
        )
        return replace(embodiment, cameras=mounts)


def _read_camera(
    name: str, plain: Mapping[str, Any], known: Mapping[str, CameraMount]
) -> CalibratedCamera:
    if name not in known:
        raise unknown_name("camera", name, known)
    camera = CalibratedCamera.of(name, plain)
    if camera.parent != known[name].parent:
        raise ValueError(
            f"The camera {name!r} was calibrated in the frame of {camera.parent!r}; its frame is "
            f"{known[name].parent!r}."
        )
    return camera
