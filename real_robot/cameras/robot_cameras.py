"""The cameras that a robot's configuration describes: what they show, and how they are driven."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stringline.datasets.contract.contract import Camera
from stringline.real_robot.cameras.camera_settings import CameraDriver, CameraSettings, read_cameras

_EMULATED_SIZE = (128, 128)


def _demand_told_apart(cameras: Collection[CameraSettings]) -> None:
    """Refuses cameras of which the first that answers would be taken for any."""
    live = [
        camera
        for camera in cameras
        if camera.driver is CameraDriver.REALSENSE and not camera.source
    ]
    nameless = [repr(camera.name) for camera in live if not camera.serial]
    if len(live) > 1 and nameless:
        raise ValueError(
            f"There are {len(live)} RealSense cameras, and nothing says which one is "
            f"{' and which '.join(nameless)}: give each "
            "its serial, which is printed on it."
        )


class RobotCameras:
    """All cameras of a robot, by the names of the body's mounts.

    Args:
        robot: Settings of `configs/robot`, resolved. An emulated robot lists names; others map each
            name to its settings, in the configuration, in a file, or in both, where the file goes
            first.

    Raises:
        ValueError: A camera is not described as it has to be.
    """

    def __init__(self, robot: Mapping[str, Any]) -> None:
        emulator = robot.get("emulator")
        described = robot.get("cameras") or {}
        if emulator is not None:
            plain = {
                "driver": CameraDriver.EMULATED.value,
                "hz": float(emulator.get("frame_hz", 12.5)),
                "depth": True,
            }
            plain |= {"height": _EMULATED_SIZE[0], "width": _EMULATED_SIZE[1]}
            found = {str(name): plain for name in described}
        elif isinstance(described, Mapping):
            file = robot.get("cameras_file")
            found = {**described, **(read_cameras(Path(file)) if file else {})}
        else:
            raise ValueError(
                "Cameras that are not emulated need settings: robot.cameras={overhead: {driver: "
                "realsense, ...}}."
            )
        self._settings = {
            str(name): CameraSettings.of(str(name), plain) for name, plain in found.items()
        }
        _demand_told_apart(self._settings.values())
        self._emulated = emulator is not None

    def offered(self, asked: Sequence[Camera] = ()) -> list[Camera]:
        """Returns the cameras as a contract has them.

        Args:
            asked: Those of whoever looks, for the sizes of their images.
        """
        sizes = {camera.name: (camera.height, camera.width) for camera in asked}
        return [
            Camera(
                name,
                *sizes.get(name, settings.size),
                depth=("simulated" if self._emulated else "measured") if settings.depth else None,
                has_geometry=settings.has_geometry,
            )
            for name, settings in self._settings.items()
        ]

    def chosen(self, asked: Sequence[Camera] | None, address: str = "") -> list[CameraSettings]:
        """Returns the settings of the cameras that somebody looks through, with images of the size that is asked for.

        Args:
            asked: Those of whoever looks; what the robot has not is left out. None: all.
            address: Of an emulator's images.
        """
        found = []
        for camera in self.offered() if asked is None else asked:
            settings = self._settings.get(camera.name)
            if settings is None:
                continue
            size = (camera.height, camera.width)
            settings = replace(
                settings, shown=size, depth=settings.depth and camera.depth is not None
            )
            if self._emulated:  # The world draws them as they are wanted.
                settings = replace(settings, height=size[0], width=size[1], source=address)
            found.append(settings)
        return found
