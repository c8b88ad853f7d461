"""The process of a camera: captures, stamps and fits images, and fills a ring in shared memory.

A ring is a mailbox of complete images, without a lock that a killed process could hold. An image
whose writer died has no number and is not read; the next process continues in the same ring.

Images are cropped about the centre and scaled to the size for a policy, with their intrinsics.

The process reports the identity of the camera, or an error, to its owner in JSON. It ends when the
camera fails, and when the owner requests it or disappears. It imports neither torch nor MuJoCo.
"""

import contextlib
import json
import logging
import math
import sys
import time
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection

import numpy as np

from stringline.real_robot.cameras.camera import (
    Camera,
    CameraError,
    Depth,
    Frame,
    Identity,
    Image,
    Matrix,
)
from stringline.real_robot.cameras.camera_settings import CameraDriver, CameraSettings
from stringline.real_robot.ipc.child_process import leave_to_owner
from stringline.real_robot.ipc.heartbeat import CameraLiveness, Count, is_age
from stringline.real_robot.ipc.mailbox import Mailbox, Memory, Record, shared_memory

_SLOTS = 4


def frame_layout(settings: CameraSettings) -> np.dtype[np.void]:
    """Returns the layout of an image."""
    fields: list[tuple[str, str, tuple[int, ...]]] = [
        ("number", "<i8", ()),
        ("captured", "<f8", ()),
    ]
    fields += [("colour", "u1", (*settings.size, 3))]
    fields += [("depth", "<u2", settings.size)] * settings.depth
    fields += [("intrinsics", "<f4", (3, 3))] * settings.has_geometry
    return np.dtype(fields)


def ring_memory(settings: CameraSettings) -> Memory:
    """Returns memory for the ring of a camera, an argument of its process."""
    return shared_memory(frame_layout(settings), _SLOTS)


class FrameRing:
    """One end of a ring."""

    def __init__(self, memory: Memory, settings: CameraSettings) -> None:
        self._layout = frame_layout(settings)
        self._keys = [
            name for name in self._layout.names or () if name not in ("number", "captured")
        ]
        self._box = Mailbox(memory, self._layout)

    def put(self, frame: Frame) -> None:
        """Adds an image.

        Raises:
            ValueError: Its shape is not the configured one.
        """
        record: Record = np.zeros((), self._layout)
        record["number"] = frame.number
        record["captured"] = frame.captured
        for key in self._keys:
            value = getattr(frame, key)
            shape = None if value is None else value.shape
            if value is None or shape != record[key].shape:
                raise ValueError(f"{key} has shape {shape}; configured is {record[key].shape}.")
            record[key] = value
        self._box.put(record)

    def newest(self) -> Frame | None:
        """Returns the newest image, None before the first one."""
        record = self._box.newest()
        if record is None:
            return None
        return Frame(
            int(record["number"]),
            float(record["captured"]),
            **{key: record[key] for key in self._keys},
        )


class Fitting:
    """Crops and scales frames to the delivered size.

    The crop is the largest one with the aspect ratio, or the one with the configured vertical field
    of view. Colours are averaged over areas; depth is taken at the nearest pixel, since a mean of
    two surfaces is neither.
    """

    def __init__(self, settings: CameraSettings) -> None:
        self._size = settings.size
        self._fovy_deg = settings.fovy_deg
        fx, fy, cx, cy = settings.intrinsics or (0.0,) * 4
        known = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]], dtype=np.float32)
        self._intrinsics: Matrix | None = known if settings.intrinsics else None

    def __call__(self, frame: Frame) -> Frame:
        """Returns the fitted frame. Configured intrinsics override those of the camera."""
        intrinsics = frame.intrinsics if self._intrinsics is None else self._intrinsics
        top, left, rows, columns = self._part(
            frame.colour.shape[0], frame.colour.shape[1], intrinsics
        )
        window = np.s_[top : top + rows, left : left + columns]
        down = self._size[0] / rows
        across = self._size[1] / columns
        return replace(
            frame,
            colour=_scaled_colour(frame.colour[window], self._size),
            depth=None if frame.depth is None else _scaled_depth(frame.depth[window], self._size),
            intrinsics=None if intrinsics is None else _moved(intrinsics, top, left, down, across),
        )

    def _part(
        self, height: int, width: int, intrinsics: Matrix | None
    ) -> tuple[int, int, int, int]:
        """Returns the first row and column of the crop, and its rows and columns."""
        shape = self._size[1] / self._size[0]
        rows = min(float(height), width / shape)
        if self._fovy_deg is not None and intrinsics is not None:
            rows = min(rows, 2 * float(intrinsics[1, 1]) * np.tan(np.radians(self._fovy_deg) / 2))
        kept = max(1, round(rows))
        columns = max(1, min(width, round(rows * shape)))
        return (height - kept) // 2, (width - columns) // 2, kept, columns


def _moved(intrinsics: Matrix, top: int, left: int, down: float, across: float) -> Matrix:
    """Returns the intrinsics of a crop from `top`, `left` on, scaled by `down` and `across`."""
    moved = intrinsics.astype(np.float64)
    moved[0, 2] -= left
    moved[1, 2] -= top
    moved[0] *= across
    moved[1] *= down
    return moved.astype(np.float32)


def _scaled_colour(colour: Image, size: tuple[int, int]) -> Image:
    if colour.shape[:2] == size:
        return np.ascontiguousarray(colour)
    # Imported only by processes of cameras that scale.
    from av import VideoFrame

    frame = VideoFrame.from_ndarray(np.ascontiguousarray(colour), format="rgb24")
    scaled = frame.reformat(width=size[1], height=size[0], format="rgb24", interpolation="AREA")
    return np.ascontiguousarray(scaled.to_ndarray(), dtype=np.uint8)


def _scaled_depth(depth: Depth, size: tuple[int, int]) -> Depth:
    rows, columns = (
        np.minimum(((np.arange(count) + 0.5) * have / count).astype(int), have - 1)
        for have, count in zip(depth.shape, size, strict=True)
    )
    return np.ascontiguousarray(depth[np.ix_(rows, columns)])


log = logging.getLogger(__name__)

STOP = b"stop"
_FOREIGN = ("torch", "mujoco")


@dataclass(frozen=True, eq=False)
class CameraSetup:
    """Arguments of the spawned process; `place` is the index of the camera in `liveness`."""

    settings: CameraSettings
    memory: Memory
    liveness: CameraLiveness
    place: int


def open_camera(settings: CameraSettings) -> Camera:
    """Returns the camera, not started. Only its own driver is imported."""
    match settings.driver:
        case CameraDriver.REALSENSE:
            from stringline.real_robot.cameras.realsense import RealSenseCamera

            return RealSenseCamera(settings)
        case CameraDriver.V4L2 | CameraDriver.FILE:
            from stringline.real_robot.cameras.video_camera import VideoCamera

            return VideoCamera(settings)
        case CameraDriver.EMULATED:
            from stringline.real_robot.cameras.emulated_camera import EmulatedCamera

            return EmulatedCamera(settings)


def run_camera(setup: CameraSetup, connection: Connection) -> None:
    """Runs in the spawned process until the camera fails or the owner ends it or disappears."""
    leave_to_owner()
    if foreign := [name for name in _FOREIGN if name in sys.modules]:
        log.warning("The process of a camera has imported %s.", ", ".join(foreign))
    try:
        camera = open_camera(setup.settings)
        try:
            identity = camera.start()
            check_identity(identity, setup.settings)
            connection.send_bytes(json.dumps(asdict(identity)).encode())
            _take_images(camera, setup, connection)
        finally:
            camera.close()
    except (CameraError, ValueError, OSError) as error:
        with contextlib.suppress(OSError):
            connection.send_bytes(json.dumps({"error": str(error)}).encode())


def check_identity(identity: Identity, settings: CameraSettings) -> None:
    """Compares the reported properties of a camera with its settings.

    Raises:
        CameraError: They differ; it lists all differences.
    """
    found = []
    if settings.serial and identity.serial != settings.serial:
        found.append(
            f"its serial number is {identity.serial or 'unknown'}; expected is {settings.serial}"
        )
    if (identity.height, identity.width) != (settings.height, settings.width):
        found.append(
            f"its images are {identity.width}x{identity.height}; configured is "
            f"{settings.width}x{settings.height}"
        )
    if abs(identity.hz - settings.hz) > 0.05 * settings.hz:
        found.append(
            f"it delivers {identity.hz:g} images per second; configured are {settings.hz:g}"
        )
    if found:
        raise CameraError("; ".join(found) + ".")


def _take_images(camera: Camera, setup: CameraSetup, connection: Connection) -> None:
    ring = FrameRing(setup.memory, setup.settings)
    fit = Fitting(setup.settings)
    liveness = setup.liveness
    place = setup.place
    number = -1
    while not _stop_requested(connection):
        frame = camera.frame()
        if not is_age(time.monotonic() - frame.captured) or not math.isfinite(frame.captured):
            raise CameraError(
                f"an image has the capture time {frame.captured}, which is no number or lies ahead "
                f"of this computer's clock."
            )
        if frame.number <= number or frame.captured <= liveness.times[place]:
            liveness.add(place, Count.OUT_OF_ORDER)
            continue
        if number >= 0:
            liveness.add(place, Count.LOST, frame.number - number - 1)
        number = frame.number
        ring.put(fit(frame))
        liveness.add(place, Count.IMAGES)
        liveness.times[place] = frame.captured


def _stop_requested(connection: Connection) -> bool:
    try:
        return connection.poll() and connection.recv_bytes() == STOP
    except (EOFError, OSError):
        return True
