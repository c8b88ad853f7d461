"""The settings of a camera: its driver, its identity and the format of its images."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
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
from stringline.datasets.files.yaml_file import read_yaml


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
