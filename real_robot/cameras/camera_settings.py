"""The settings of a camera and of all cameras of a robot: driver, identity and format of images."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from stringline.datasets.contract.argument_checks import (
    COUNT,
    FINITE,
    NOT_NEGATIVE,
    POSITIVE,
    unknown_name,
)
from stringline.datasets.contract.contract import Camera
from stringline.datasets.files.limits import read_yaml


class CameraDriver(StrEnum):
    """The driver of a camera."""

    REALSENSE = "realsense"  # Intel's library: colour, aligned depth, intrinsics.
    V4L2 = "v4l2"  # Any camera that Linux lists as /dev/video*: colour.
    FILE = "file"  # A recorded video, played at its own rate.
    EMULATED = "emulated"  # A camera of the emulated world.


@dataclass(frozen=True)
class CameraSettings:
    """Settings of one camera; height, width and rate are those of its own images.

    Attributes:
        name: Name in the contract, and of a camera mount of the embodiment.
        serial: Required serial number; empty accepts any.
        source: Port, file or address if the driver needs one. A RealSense recording (.db3) is
            played in place of the camera.
        intrinsics: fx, fy, cx, cy in pixels of its own images, for drivers that do not report them;
            empty if unknown.
        fovy_deg: Vertical field of view to which images are cropped; None keeps as much as the
            aspect ratio allows.
        latency_s: Measured time from the capture to the stamp of the driver, not negative; it is
            subtracted.
        controls: Values of controls such as `exposure` and `auto_exposure` (realsense, v4l2), which
            each start sets and reads back; others keep the values of the first start.
        shown: Rows and columns of the delivered images; None leaves them unchanged.

    Raises:
        ValueError: A number is out of its range, or a setting does not go with the driver.
    """

    name: str
    driver: CameraDriver
    serial: str = ""
    source: str = ""
    height: int = 480
    width: int = 640
    hz: float = 30.0
    depth: bool = False
    intrinsics: tuple[float, ...] = ()
    fovy_deg: float | None = None
    latency_s: float = 0.0
    controls: Mapping[str, float] = field(default_factory=dict)
    shown: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Checks ranges, and the settings that depend on the driver."""
        if self.height not in COUNT or self.width not in COUNT or self.hz not in POSITIVE:
            got = f"{self.width}x{self.height} at {self.hz} Hz"
            raise ValueError(
                f"Camera {self.name!r}: {got}; all three must be positive, the size in whole "
                f"numbers."
            )
        if self.driver in (CameraDriver.V4L2, CameraDriver.FILE):
            if not self.source:
                raise ValueError(
                    f"Camera {self.name!r}: the driver {self.driver.value} needs a source, such "
                    f"as /dev/video0."
                )
            if self.depth:
                raise ValueError(
                    f"Camera {self.name!r}: the driver {self.driver.value} gives no depth."
                )
        self._check_controls()
        if self.latency_s not in NOT_NEGATIVE:
            raise ValueError(
                f"Camera {self.name!r}: latency_s is {self.latency_s}; allowed: {NOT_NEGATIVE}, "
                f"since stamps are late."
            )
        if self.intrinsics and (
            len(self.intrinsics) != 4 or any(number not in FINITE for number in self.intrinsics)
        ):
            raise ValueError(
                f"Camera {self.name!r}: intrinsics are {list(self.intrinsics)}; allowed: [fx, fy, "
                f"cx, cy]."
            )
        if self.fovy_deg is not None and (not 0 < self.fovy_deg < 180 or not self.has_geometry):
            raise ValueError(
                f"Camera {self.name!r}: fovy_deg is {self.fovy_deg}; allowed: 0 to 180, with "
                f"known intrinsics."
            )

    def _check_controls(self) -> None:
        if self.controls and self.driver not in (CameraDriver.REALSENSE, CameraDriver.V4L2):
            raise ValueError(
                f"Camera {self.name!r}: the driver {self.driver.value} has no controls; allowed: "
                f"realsense and v4l2."
            )
        for name, value in self.controls.items():
            if value not in FINITE:
                raise ValueError(
                    f"Camera {self.name!r}: {name} is {value!r} in controls; allowed: a number."
                )

    @property
    def has_geometry(self) -> bool:
        """Whether its images have intrinsics."""
        return bool(self.intrinsics) or self.driver in (
            CameraDriver.REALSENSE,
            CameraDriver.EMULATED,
        )

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the delivered images."""
        return self.shown or (self.height, self.width)

    @classmethod
    def of(cls, name: str, plain: Mapping[str, Any]) -> Self:
        """Builds the settings of a camera from a configuration.

        Raises:
            ValueError: A setting or a driver is unknown; the message names the nearest.
        """
        known = [field.name for field in fields(cls) if field.name not in ("name", "shown")]
        if not isinstance(plain.get("controls") or {}, Mapping):
            raise ValueError(
                f"Camera {name!r}: controls are {plain['controls']!r}; allowed: values by name, "
                f"such as {{auto_exposure: 0, exposure: 8500}}."
            )
        for key in plain:
            if key not in known:
                raise unknown_name(f"setting of the camera {name!r}", str(key), known)
        drivers = [driver.value for driver in CameraDriver]
        if (driver := str(plain.get("driver", ""))) not in drivers:
            raise unknown_name("camera driver", driver, drivers)
        # YAML reads a serial number of digits as a number.
        texts = {key: str(plain[key] or "") for key in ("serial", "source") if key in plain}
        intrinsics = tuple(float(value) for value in plain.get("intrinsics") or ())
        return cls(
            name=name,
            **{
                **plain,
                **texts,
                "driver": CameraDriver(driver),
                "intrinsics": intrinsics,
                "controls": {
                    str(key): value for key, value in (plain.get("controls") or {}).items()
                },
            },
        )


def read_cameras(path: Path) -> dict[str, Any]:
    """Returns the plain settings of the cameras in a file, by name.

    Raises:
        ValueError: The file cannot be read, or does not describe cameras.
    """
    found = read_yaml("The cameras file", path)
    if (
        not isinstance(found, dict)
        or not found
        or not all(isinstance(value, dict) for value in found.values())
    ):
        raise ValueError(
            f"The cameras file {path} must give each camera its settings, such as `overhead: "
            f"{{driver: realsense}}`."
        )
    return {str(name): value for name, value in found.items()}


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
        emulated_hz: Images per second of emulated cameras; if None, the cameras are real.
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
            requested: Cameras that the robot lacks are skipped. If None, all.
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
