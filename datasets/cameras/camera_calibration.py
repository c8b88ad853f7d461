"""Calibrations applied to recorded data: intrinsics and camera poses per episode."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from stringline.datasets.cameras.calibration_file import (
    RECORDED,
    WORLD,
    CalibrationFile,
    CameraGeometry,
    Matrix,
)
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Contract, EpisodeArrays


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
