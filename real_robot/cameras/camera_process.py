"""What runs in the process of a camera: it takes images, stamps them, and puts them where everybody may look.

It tells its owner, in JSON, who the camera is and what is wrong with it. It ends when the camera
fails, and when the owner says so or is gone. Neither torch nor MuJoCo get into it.
"""

import contextlib
import json
import logging
import sys
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection

from stringline.real_robot.cameras.camera import Camera, CameraError, Identity
from stringline.real_robot.cameras.camera_settings import CameraDriver, CameraSettings
from stringline.real_robot.cameras.frame_ring import FrameRing
from stringline.real_robot.cameras.image_fitting import Fitting
from stringline.real_robot.ipc.camera_liveness import Count, Liveliness
from stringline.real_robot.ipc.group_signals import leave_to_owner
from stringline.real_robot.ipc.mailbox import Memory

log = logging.getLogger(__name__)

STOP = b"stop"
_FOREIGN = ("torch", "mujoco")


@dataclass(frozen=True, eq=False)
class CameraSetup:
    """What the spawned process is given.

    Attributes:
        settings: Of the camera.
        memory: Of its ring.
        liveliness: Of all cameras.
        place: Of this one among them.
    """

    settings: CameraSettings
    memory: Memory
    liveliness: Liveliness
    place: int


def open_camera(settings: CameraSettings) -> Camera:
    """Returns the camera, not started. Only its own driver is imported.

    Raises:
        CameraError: The library that drives it is missing.
    """
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
    """Runs in the spawned process until the camera fails, or the owner says stop or is gone."""
    leave_to_owner()
    if foreign := [name for name in _FOREIGN if name in sys.modules]:
        log.warning("%s got into the process of a camera.", ", ".join(foreign))
    try:
        camera = open_camera(setup.settings)
        try:
            identity = camera.start()
            demand_as_configured(identity, setup.settings)
            connection.send_bytes(json.dumps(asdict(identity)).encode())
            _take_images(camera, setup, connection)
        finally:
            camera.close()
    except (CameraError, ValueError, OSError) as error:
        with contextlib.suppress(OSError):
            connection.send_bytes(json.dumps({"error": str(error)}).encode())


def demand_as_configured(identity: Identity, settings: CameraSettings) -> None:
    """Compares what a camera says with what was asked for.

    Raises:
        CameraError: With everything that differs.
    """
    found = []
    if settings.serial and identity.serial != settings.serial:
        found.append(
            f"its serial number is {identity.serial or 'not told'}; expected is {settings.serial}"
        )
    if (identity.height, identity.width) != (settings.height, settings.width):
        found.append(
            f"its images are {identity.width}x{identity.height}; configured is "
            f"{settings.width}x{settings.height}"
        )
    if abs(identity.hz - settings.hz) > 0.05 * settings.hz:
        found.append(f"it brings {identity.hz:g} images a second; configured are {settings.hz:g}")
    if found:
        raise CameraError("; ".join(found) + ".")


def _take_images(camera: Camera, setup: CameraSetup, connection: Connection) -> None:
    ring = FrameRing(setup.memory, setup.settings)
    fit = Fitting(setup.settings)
    life = setup.liveliness
    place = setup.place
    number = -1
    while not _told_to_stop(connection):
        frame = camera.frame()
        if frame.number <= number or frame.captured <= life.times[place]:
            life.add(place, Count.OUT_OF_ORDER)
            continue
        if number >= 0:
            life.add(place, Count.LOST, frame.number - number - 1)
        number = frame.number
        ring.put(fit(frame))
        life.add(place, Count.IMAGES)
        life.times[place] = frame.captured


def _told_to_stop(connection: Connection) -> bool:
    try:
        return connection.poll() and connection.recv_bytes() == STOP
    except (EOFError, OSError):
        return True
