"""The cameras in the configuration of a robot."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stringline.datasets.contract.contract import Camera
from stringline.real_robot.cameras.camera_settings import CameraDriver, CameraSettings, read_cameras

_EMULATED_SIZE = (128, 128)


def _check_distinct(cameras: Collection[CameraSettings]) -> None:
    """Checks that several RealSense cameras have serial numbers, which distinguish them."""
    live = [
        camera
        for camera in cameras
        if camera.driver is CameraDriver.REALSENSE and not camera.source
    ]
    nameless = [repr(camera.name) for camera in live if not camera.serial]
    if len(live) > 1 and nameless:
        raise ValueError(
            f"There are {len(live)} RealSense cameras, but {' and '.join(nameless)} without a "
            f"serial: give each camera its serial, which is printed on it."
        )


class RobotCameras:
    """All cameras of a robot, by the names of the camera mounts of its embodiment.

    Args:
        cameras: Names of emulated cameras, or the settings of each camera by its name.
        emulated_hz: Images per second of emulated cameras; None: the cameras are real.
        file: YAML file with settings of real cameras, which override `cameras`.

    Raises:
        ValueError: A setting of a camera is missing or invalid.
    """

    def __init__(
        self,
        cameras: Sequence[str] | Mapping[str, Any],
        *,
        emulated_hz: float | None = None,
        file: Path | None = None,
    ) -> None:
        self._emulated = emulated_hz is not None
        found: Mapping[str, Any]
        if emulated_hz is not None:
            plain = {"driver": CameraDriver.EMULATED.value, "hz": emulated_hz, "depth": True}
            plain |= {"height": _EMULATED_SIZE[0], "width": _EMULATED_SIZE[1]}
            found = {str(name): plain for name in cameras}
        elif isinstance(cameras, Mapping) or not cameras:
            found = dict(cameras) if isinstance(cameras, Mapping) else {}
            found = {**found, **(read_cameras(file) if file else {})}
        else:
            raise ValueError(
                "Real cameras need settings: robot.cameras={overhead: {driver: realsense, ...}}."
            )
        self._settings = {
            str(name): CameraSettings.of(str(name), plain) for name, plain in found.items()
        }
        _check_distinct(self._settings.values())

    def offered(self, requested: Sequence[Camera] = ()) -> list[Camera]:
        """Returns the cameras for a contract, with the image sizes of `requested`."""
        sizes = {camera.name: (camera.height, camera.width) for camera in requested}
        return [
            Camera(
                name,
                *sizes.get(name, settings.size),
                depth=("simulated" if self._emulated else "measured") if settings.depth else None,
                has_geometry=settings.has_geometry,
            )
            for name, settings in self._settings.items()
        ]

    def chosen(self, requested: Sequence[Camera] | None, address: str = "") -> list[CameraSettings]:
        """Returns the settings of requested cameras, which deliver the requested size.

        Args:
            requested: Cameras that the robot lacks are skipped. None: all.
            address: Address of the images of an emulator.
        """
        found = []
        for camera in self.offered() if requested is None else requested:
            settings = self._settings.get(camera.name)
            if settings is None:
                continue
            size = (camera.height, camera.width)
            settings = replace(
                settings, shown=size, depth=settings.depth and camera.depth is not None
            )
            if self._emulated:  # The world is drawn in any size.
                settings = replace(settings, height=size[0], width=size[1], source=address)
            found.append(settings)
        return found
