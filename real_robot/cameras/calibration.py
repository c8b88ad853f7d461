"""Where cameras were measured to be, in a file beside the configuration, and how well that was known."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import yaml
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.names import unknown_name
from stringline.real_robot.cameras.camera import CameraError

Matrix = NDArray[np.float64]

_ALLOWED_MM, _ALLOWED_DEG = 5.0, 0.5
_RIGID = 1e-3


@dataclass(frozen=True, eq=False)
class CalibratedCamera:
    """One camera.

    Attributes:
        serial: Of the camera that was measured.
        T_parent_camera: (4, 4) camera (x right, y down, z forward) to what carries it, metres.
        residual_mm: What was left over, as the root of the mean square distance.
        residual_deg: The same of angles.
    """

    serial: str
    T_parent_camera: Matrix
    residual_mm: float
    residual_deg: float

    @classmethod
    def of(cls, name: str, plain: Mapping[str, Any]) -> Self:
        """Reads an entry of the file.

        Raises:
            ValueError: Something is missing, or the pose is none.
        """
        try:
            pose = np.array(plain["T_parent_camera"], dtype=np.float64)
            found = cls(str(plain["serial"]), pose, float(plain["residual_mm"]), float(plain["residual_deg"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"The calibration of the camera {name!r} needs serial, T_parent_camera, residual_mm, residual_deg: {error!r}."
            ) from error
        rigid = pose.shape == (4, 4) and np.allclose(pose[:3, :3] @ pose[:3, :3].T, np.eye(3), atol=_RIGID)
        if not rigid or np.linalg.det(pose[:3, :3]) < 0 or not np.allclose(pose[3], (0, 0, 0, 1)):
            raise ValueError(f"The calibration of the camera {name!r}: T_parent_camera is no rotation with a place.")
        return found


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
            ValueError: It is missing, no YAML, or about cameras that the body has not.
        """
        try:
            found = yaml.safe_load(path.read_text())
        except OSError as error:
            raise ValueError(f"The calibration file {path} cannot be read: {error.strerror}.") from error
        except yaml.YAMLError as error:
            raise ValueError(f"The calibration file {path} is no YAML: {error}.") from error
        cameras = found.get("cameras") if isinstance(found, dict) else None
        if not isinstance(cameras, dict) or not cameras:
            raise ValueError(f"The calibration file {path} must have `cameras:` with an entry for each.")
        mounts = [mount.name for mount in body.cameras]
        for name in cameras:
            if name not in mounts:
                raise unknown_name("camera", str(name), mounts)
        return cls({str(name): CalibratedCamera.of(str(name), plain or {}) for name, plain in cameras.items()})

    def demand(self, name: str, serial: str) -> str:
        """Says how well a camera is known.

        Raises:
            CameraError: Another one was measured, or the residual is too large.
        """
        camera = self.cameras[name]
        if camera.serial != serial:
            raise CameraError(f"the calibration is of the camera with serial number {camera.serial}; this one has {serial}.")
        words = f"residual {camera.residual_mm:g} mm, {camera.residual_deg:g} degrees"
        if not (camera.residual_mm <= self.allowed_mm and camera.residual_deg <= self.allowed_deg):
            raise CameraError(f"its calibration has a {words}; allowed: {self.allowed_mm:g} mm, {self.allowed_deg:g} degrees.")
        return f"calibrated, {words}"

    def applied(self, body: Embodiment) -> Embodiment:
        """Returns the body with its cameras where they were measured to be."""
        mounts = tuple(
            replace(mount, T_parent_camera=self.cameras[mount.name].T_parent_camera) if mount.name in self.cameras else mount
            for mount in body.cameras
        )
        return replace(body, cameras=mounts)
