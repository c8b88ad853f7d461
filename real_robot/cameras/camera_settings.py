"""How a camera is configured: what drives it, which one it is, and what is to become of its images."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import yaml

from stringline.datasets.contract.arguments import (
    COUNT,
    FINITE,
    NOT_NEGATIVE,
    POSITIVE,
    unknown_name,
)


class CameraDriver(StrEnum):
    """What a camera is driven by."""

    REALSENSE = "realsense"  # Intel's library: colour, aligned depth, intrinsics.
    V4L2 = "v4l2"  # Any camera that Linux knows as /dev/video*: colour.
    FILE = "file"  # A recorded video in place of a camera, played at its own rate.
    EMULATED = "emulated"  # A camera of the emulated world.


@dataclass(frozen=True)
class CameraSettings:
    """One camera.

    Attributes:
        name: As in the contract; the body's mount of that name says where it sits.
        driver: What drives it.
        serial: Number that it must have; empty takes any.
        source: Port, file or address where the driver needs one. A RealSense recording (.db3) is
            played in place of the camera.
        height: Rows of its own images.
        width: Columns.
        hz: Images per second.
        depth: Whether depth is taken too.
        intrinsics: fx, fy, cx, cy in pixels of its own images, for drivers that do not tell; empty
            if nobody knows them.
        fovy_deg: Vertical field of view that the images are cropped to; None keeps as much as the
            shape allows.
        latency_s: From the capture to the stamp that the driver gives, as measured, not negative;
            it is taken off.
        shown: Rows and columns of the images that it delivers; None leaves them as they are.
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
    shown: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Refuses what no camera can do.

        Raises:
            ValueError: A number is out of its range, or a setting does not go with the driver.
        """
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
        if self.latency_s not in NOT_NEGATIVE:
            raise ValueError(
                f"Camera {self.name!r}: latency_s is {self.latency_s}; allowed: {NOT_NEGATIVE}, "
                f"for stamps are late."
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

    @property
    def has_geometry(self) -> bool:
        """Whether intrinsics come with its images."""
        return bool(self.intrinsics) or self.driver in (
            CameraDriver.REALSENSE,
            CameraDriver.EMULATED,
        )

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the images that it delivers."""
        return self.shown or (self.height, self.width)

    @classmethod
    def of(cls, name: str, plain: Mapping[str, Any]) -> Self:
        """Reads what a configuration says about a camera.

        Raises:
            ValueError: A setting or a driver is unknown; the message names the nearest.
        """
        known = [field.name for field in fields(cls) if field.name not in ("name", "shown")]
        for key in plain:
            if key not in known:
                raise unknown_name(f"setting of the camera {name!r}", str(key), known)
        drivers = [driver.value for driver in CameraDriver]
        if (driver := str(plain.get("driver", ""))) not in drivers:
            raise unknown_name("camera driver", driver, drivers)
        # A serial number of digits only is a number to YAML.
        texts = {key: str(plain[key] or "") for key in ("serial", "source") if key in plain}
        intrinsics = tuple(float(value) for value in plain.get("intrinsics") or ())
        return cls(
            name=name,
            **{**plain, **texts, "driver": CameraDriver(driver), "intrinsics": intrinsics},
        )


def read_cameras(path: Path) -> dict[str, Any]:
    """Returns the cameras that a file describes, by name, as a configuration would.

    Raises:
        ValueError: It is missing, or does not describe cameras.
    """
    try:
        found = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ValueError(f"The file of cameras {path} cannot be read: {error.strerror}.") from error
    except yaml.YAMLError as error:
        raise ValueError(f"The file of cameras {path} is no YAML: {error}.") from error
    if (
        not isinstance(found, dict)
        or not found
        or not all(isinstance(value, dict) for value in found.values())
    ):
        raise ValueError(
            f"The file of cameras {path} must give each camera its settings: `overhead: {{driver: "
            f"realsense}}`."
        )
    return {str(name): value for name, value in found.items()}
