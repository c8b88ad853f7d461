"""Calibrations of cameras: their file, and their application to recorded data.

`stringline-deploy mode=calibrate` writes the file (`real_robot/cameras/calibration_file.py`); for
data from elsewhere it is written by hand. docs/calibration.md describes it. Applied to recorded
data, a calibration gives intrinsics and camera poses per episode.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Camera, Contract, EpisodeArrays
from stringline.datasets.files.limits import read_yaml

Matrix = NDArray[np.float64]

VERSION = 1
WORLD = "world"
RECORDED = "recorded"
"""The parent of a camera whose poses are those of the data; an entry then has intrinsics only."""
RIGID = 1e-3
NEEDED = ("parent", "T_parent_camera", "size", "intrinsics")
# Of the measurement; robots need them, recorded data do not.
MEASUREMENT = ("serial", "method", "poses", "date", "residual_px", "residual_mm", "residual_deg")


@dataclass(frozen=True, eq=False)
class CalibrationFile:
    """The content of a file: the entries of its cameras by name, not yet checked."""

    path: Path
    embodiment: str
    cameras: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a file.

        Raises:
            ValueError: The file cannot be read, has another version, or has no cameras.
        """
        found = read_yaml("The calibration file", path)
        cameras = found.get("cameras") if isinstance(found, dict) else None
        if (
            not isinstance(cameras, dict)
            or not cameras
            or not all(isinstance(plain, dict) for plain in cameras.values())
        ):
            raise ValueError(
                f"The calibration file {path} must have `cameras:` with an entry per camera."
            )
        if found.get("version") != VERSION:
            raise ValueError(
                f"The calibration file {path} has version {found.get('version')}; allowed: "
                f"{VERSION}. Calibrate the cameras again: stringline-deploy mode=calibrate."
            )
        named = {str(name): plain for name, plain in cameras.items()}
        return cls(path, str(found.get("embodiment")), named)

    def check_embodiment(self, name: str, owner: str) -> None:
        """Checks the embodiment; `owner` begins the clause about the expected name."""
        if self.embodiment != name:
            raise ValueError(
                f"The calibration file {self.path} is for the embodiment {self.embodiment}; "
                f"{owner} {name}. Write embodiment: {name} if it is the same arm."
            )


@dataclass(frozen=True, eq=False)
class CameraGeometry:
    """The geometry of a camera of recorded data.

    Attributes:
        parent: `world`, the base frame, the arm of whose gripper (TCP) frame it is, or `recorded`.
        T_parent_camera: (4, 4) camera frame (x right, y down, z forward) to parent frame, metres;
            the identity with `recorded`.
        size: Rows and columns of the images that the intrinsics belong to.
        intrinsics: (3, 3) in pixels of these images.
    """

    parent: str
    T_parent_camera: Matrix
    size: tuple[int, int]
    intrinsics: Matrix

    @classmethod
    def of(cls, name: str, plain: Mapping[str, Any]) -> Self:
        """Builds the geometry of a camera from an entry of the file.

        Raises:
            ValueError: A value is missing, unknown or invalid.
        """
        for key in plain:
            if key not in (*NEEDED, *MEASUREMENT):
                raise unknown_name(f"entry of the camera {name!r}", str(key), NEEDED)
        recorded = plain.get("parent") == RECORDED
        if recorded and "T_parent_camera" in plain:
            raise ValueError(
                f"The calibration of the camera {name!r} has `parent: {RECORDED}` and "
                "T_parent_camera; allowed: one of them, since the poses are those of the data."
            )
        needed = [key for key in NEEDED if not (recorded and key == "T_parent_camera")]
        if missing := [key for key in needed if not plain.get(key)]:
            raise ValueError(f"The calibration of the camera {name!r} lacks {', '.join(missing)}.")
        try:
            height, width = (int(side) for side in plain["size"])
            pose = np.array(np.eye(4) if recorded else plain["T_parent_camera"], dtype=np.float64)
            check_rigid(pose)
            intrinsics = _matrix(plain["intrinsics"], height, width)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"The calibration of the camera {name!r} is invalid: {str(error).rstrip('.')}."
            ) from error
        return cls(str(plain["parent"]), pose, (height, width), intrinsics)

    def intrinsics_of(self, camera: Camera) -> NDArray[np.float32]:
        """Returns the intrinsics (3, 3) in pixels of the images of a camera.

        Images of the same aspect ratio are taken for scaled ones, and the intrinsics are scaled.
        If an import fitted the images to another size, `camera` has the size before
        (`FittedImages`).

        Raises:
            ValueError: The images have another aspect ratio, so that they were cropped or
                stretched in an unknown way.
        """
        height, width = self.size
        if camera.height * width != camera.width * height:
            raise ValueError(
                f"The calibration of the camera {camera.name!r} is for images of {height}x{width} "
                f"(rows x columns); the data has {camera.height}x{camera.width}. Allowed: that "
                "size, or one of the same aspect ratio, to which the intrinsics are scaled."
            )
        scale = np.array([camera.width / width, camera.height / height, 1.0])
        return np.asarray(scale[:, None] * self.intrinsics, np.float32)

    def arrays(self, camera: Camera, T_base_parent: Matrix | None = None) -> dict[str, Array]:
        """Returns `intrinsics/<camera>` and `T_base_camera/<camera>` for the images of a camera.

        Args:
            camera: The camera.
            T_base_parent: Poses (F, 4, 4) of the gripper that carries it, or the recorded ones of
                the camera, (4, 4) or (F, 4, 4); None with `world`.

        Raises:
            ValueError: The images have another aspect ratio than those of the intrinsics.
        """
        pose = (
            self.T_parent_camera if T_base_parent is None else T_base_parent @ self.T_parent_camera
        )
        return {
            f"intrinsics/{camera.name}": self.intrinsics_of(camera),
            f"T_base_camera/{camera.name}": pose.astype(np.float32),
        }


def check_rigid(pose: Matrix) -> None:
    """Checks that a matrix (4, 4) is a pose: a rotation and a translation.

    Raises:
        ValueError: It is none; the message states by how much.
    """
    if pose.shape != (4, 4):
        raise ValueError(f"T_parent_camera is not rigid: its shape is {pose.shape}, not (4, 4)")
    error = float(np.abs(pose[:3, :3] @ pose[:3, :3].T - np.eye(3)).max())
    if not error <= RIGID or not np.isfinite(pose).all():
        raise ValueError(
            f"T_parent_camera is not rigid: R R^T differs from the identity by {error:.3g}; "
            f"allowed: {RIGID:g}"
        )
    if np.linalg.det(pose[:3, :3]) < 0 or not np.allclose(pose[3], (0, 0, 0, 1)):
        raise ValueError(
            "T_parent_camera is not rigid: its rotation is a reflection, or its last row is not "
            "0 0 0 1"
        )


def _matrix(plain: Any, height: int, width: int) -> Matrix:
    """Returns intrinsics (3, 3) from fx, fy, cx, cy or a matrix; checks them."""
    given = np.array(plain, dtype=np.float64)
    if given.shape == (4,):
        fx, fy, cx, cy = given
        given = np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])
    if given.shape != (3, 3):
        raise ValueError(
            f"intrinsics have the shape {given.shape}; allowed: fx, fy, cx, cy, or a 3x3 matrix"
        )
    if not np.array_equal(given[[0, 1, 2, 2, 2], [1, 0, 0, 1, 2]], (0, 0, 0, 0, 1)):
        raise ValueError(
            f"intrinsics are {given.tolist()}; allowed: [[fx, 0, cx], [0, fy, cy], [0, 0, 1]]"
        )
    fx, fy, cx, cy = given[[0, 1, 0, 1], [0, 1, 2, 2]]
    if not (fx > 0 and fy > 0 and np.isfinite((fx, fy)).all()):
        raise ValueError(f"the focal lengths are {fx:g} and {fy:g}; allowed: above 0")
    if not (0 < cx < width and 0 < cy < height):
        raise ValueError(
            f"the principal point is ({cx:g}, {cy:g}); allowed: inside the image of {height} rows "
            f"and {width} columns"
        )
    return given


@dataclass(frozen=True, eq=False)
class CameraCalibration:
    """The calibrations in a file.

    Attributes:
        cameras: Geometry by the name of the camera.
        uncalibrated: Cameras that stay without geometry; every other one must get it.
    """

    file: CalibrationFile
    cameras: Mapping[str, CameraGeometry]
    uncalibrated: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path, uncalibrated: tuple[str, ...] = ()) -> Self:
        """Reads a file.

        Raises:
            ValueError: The file or an entry is invalid, or a camera is in the file and in
                `uncalibrated`.
        """
        file = CalibrationFile.read(path)
        for name in uncalibrated:
            if name in file.cameras:
                raise ValueError(
                    f"The camera {name!r} is in {path} and in `uncalibrated`; allowed: one of them."
                )
        cameras = {name: CameraGeometry.of(name, plain) for name, plain in file.cameras.items()}
        return cls(file, cameras, uncalibrated)

    def contract(self, contract: Contract, recorded: Collection[str] = ()) -> Contract:
        """Returns the contract of the calibrated data.

        Args:
            contract: That of the data before.
            recorded: The cameras of which the data have poses.

        Raises:
            ValueError: The file does not fit the data: another embodiment, an unknown camera or
                arm, other images, or cameras that neither have geometry nor get it.
        """
        self.file.check_embodiment(contract.embodiment, "the data are those of")
        for name in (*self.cameras, *self.uncalibrated):
            contract.camera(name)
        for name, geometry in self.cameras.items():
            if geometry.parent == RECORDED:
                self._check_recorded(name, recorded)
            elif geometry.parent not in (WORLD, *contract.arms):
                kind = f"arm with gripper poses, or frame, for the camera {name!r}"
                raise unknown_name(kind, geometry.parent, (WORLD, *contract.arms))
            geometry.intrinsics_of(contract.camera(name))
        new = contract.with_cameras(
            *(
                replace(camera, has_geometry=True) if camera.name in self.cameras else camera
                for camera in contract.cameras
            )
        )
        bare = {camera.name for camera in new.cameras if not camera.has_geometry}
        if missing := sorted(bare - {*self.uncalibrated}):
            raise ValueError(
                f"The calibration file {self.file.path} lacks {', '.join(missing)}; it has "
                f"{', '.join(self.cameras)}. Cameras that shall stay without calibration: "
                f"uncalibrated=[{','.join(missing)}]."
            )
        return new

    def _check_recorded(self, name: str, recorded: Collection[str]) -> None:
        if name not in recorded:
            raise ValueError(
                f"The camera {name!r} has `parent: {RECORDED}` in {self.file.path}, but the data "
                f"have no poses of it; they have those of: {', '.join(recorded) or 'no camera'}."
            )

    def scaled(self, contract: Contract) -> list[str]:
        """Returns a sentence for each camera whose intrinsics are scaled to its images."""
        found = []
        for name, geometry in self.cameras.items():
            camera = contract.camera(name)
            if geometry.size != (camera.height, camera.width):
                height, width = geometry.size
                found.append(
                    f"The intrinsics of {name}, which belong to images of {height}x{width}, are "
                    f"scaled to {camera.height}x{camera.width}."
                )
        return found

    def arrays(
        self,
        contract: Contract,
        arrays: EpisodeArrays,
        recorded: Mapping[str, Array] | None = None,
    ) -> dict[str, Array]:
        """Returns `intrinsics/<camera>` and `T_base_camera/<camera>` of each camera in the file.

        Args:
            contract: Contract of the episode.
            arrays: Arrays of the episode; read are times and gripper poses.
            recorded: Poses `T_base_camera`, (4, 4) or (F, 4, 4), by the name of the camera.
        """
        found: dict[str, Array] = {}
        carrier: Matrix | None
        for name, geometry in self.cameras.items():
            if geometry.parent == RECORDED:
                carrier = np.asarray((recorded or {})[name], np.float64)
            elif geometry.parent == WORLD:
                carrier = None
            else:
                carrier = gripper_poses(arrays, geometry.parent, arrays[f"time/{name}"])
            found |= geometry.arrays(contract.camera(name), carrier)
        return found


def gripper_poses(arrays: EpisodeArrays, arm: str, times: Array) -> Matrix:
    """Returns `T_base_gripper` (F, 4, 4) of an arm at times (F,), s.

    Between two steps, translations are interpolated linearly, and rotations by the projection of
    the linear interpolation onto the rotations, the chordal mean of Hartley et al. (2013, "Rotation
    averaging"). Before the first step and after the last one, poses are constant.
    """
    steps = np.asarray(arrays["time"])
    poses = np.asarray(arrays[f"T_base_gripper/{arm}"], np.float64)
    if np.array_equal(steps, times):
        return poses
    place = np.interp(times, steps, np.arange(len(steps)))
    before = place.astype(int)
    after = np.minimum(before + 1, len(steps) - 1)
    share = (place - before)[:, None, None]
    found: Matrix = (1 - share) * poses[before] + share * poses[after]
    left, _, right = np.linalg.svd(found[:, :3, :3])
    found[:, :3, :3] = left @ right
    return found
