"""The code of the process of a camera: captures, stamps and fits images, and fills a ring.

It reports the identity of the camera, or an error, to its owner in JSON. It ends when the camera
fails, and when the owner requests it or disappears. It imports neither torch nor MuJoCo.
"""

import contextlib
import json
import logging
import math
import sys
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection

from stringline.real_robot.cameras.camera import Camera, CameraError, Identity
from stringline.real_robot.cameras.camera_settings import CameraDriver, CameraSettings
from stringline.real_robot.cameras.frame_ring import FrameRing
from stringline.real_robot.cameras.image_fitting import Fitting
from stringline.real_robot.ipc.camera_liveness import CameraLiveness, Count
from stringline.real_robot.ipc.group_signals import leave_to_owner
from stringline.real_robot.ipc.heartbeat import is_age
from stringline.real_robot.ipc.mailbox import Memory

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
