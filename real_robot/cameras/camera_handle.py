"""The owner's handle on the process of one camera, which may be started again and again over the same ring."""

import contextlib
import json
import time
import weakref
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess

from stringline.real_robot.cameras.camera import CameraError, Frame, Identity
from stringline.real_robot.cameras.camera_process import STOP, CameraSetup, run_camera
from stringline.real_robot.cameras.camera_settings import CameraSettings
from stringline.real_robot.cameras.frame_ring import FrameRing, ring_memory
from stringline.real_robot.ipc.camera_liveness import Count, Liveliness

_END_TIMEOUT_S = 2.0


class CameraHandle:
    """One camera and its process.

    Args:
        settings: Of the camera.
        liveliness: Of all cameras.
        place: Of this one among them.
        context: That spawns processes.

    Attributes:
        settings: As given.
        problem: Why the last process failed, in words.
        identity: Of the camera, once it has told.
        started: When the last process was started, seconds of the monotonic clock.
    """

    def __init__(
        self, settings: CameraSettings, liveliness: Liveliness, place: int, context: SpawnContext
    ) -> None:
        self._context = context
        self.settings = settings
        self._life = liveliness
        self._place = place
        memory = ring_memory(self._context, settings)
        self._setup = CameraSetup(settings, memory, liveliness, place)
        self._ring = FrameRing(memory, settings)
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None
        self._seen: Frame | None = None
        self.problem = ""
        self.started = float("-inf")
        self.identity: Identity | None = None

    def start(self) -> None:
        """Starts a process; the one before it must have ended."""
        self._connection, far_end = self._context.Pipe()
        weakref.finalize(
            self, self._connection.close
        )  # At the owner's exit the process learns that it is gone.
        name = f"stringline camera {self.settings.name}"
        self._process = self._context.Process(
            target=run_camera, args=(self._setup, far_end), name=name, daemon=True
        )
        self.problem = ""
        self.identity = None
        self.started = time.monotonic()
        self._process.start()
        far_end.close()

    @property
    def pid(self) -> int | None:
        """Number of the process."""
        return None if self._process is None else self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs, as far as the system knows; it may stand still."""
        return self._process is not None and self._process.is_alive()

    @property
    def captured(self) -> float:
        """When the newest image was taken, seconds of the monotonic clock; minus infinity before the first."""
        return float(self._life.times[self._place])

    def count(self, what: Count) -> int:
        """Returns a count over all processes of this camera."""
        return self._life.count(self._place, what)

    def listen(self) -> None:
        """Takes what the process has told, which is who the camera is, or what is wrong with it."""
        if self._connection is None:
            return
        try:
            while self._connection.poll():
                told = json.loads(self._connection.recv_bytes())
                self.problem = str(told["error"]) if "error" in told else self.problem
                self.identity = None if "error" in told else self._known(Identity(**told))
        except (EOFError, OSError):
            if not self.problem and self._process is not None:
                self._process.join(_END_TIMEOUT_S)
                code = self._process.exitcode
                self.problem = (
                    f"its process was killed by signal {-code}."
                    if code and code < 0
                    else "its process has ended."
                )

    def _known(self, identity: Identity) -> Identity:
        """Sees to it that no other camera takes the place of this one when it is started anew."""
        settings = self._setup.settings
        if identity.serial and not settings.serial:
            self._setup = replace(self._setup, settings=replace(settings, serial=identity.serial))
        return identity

    def wait(self, timeout_s: float) -> Identity:
        """Waits until the camera has told who it is and shown its first image.

        Raises:
            CameraError: It is not as it should be, or has done neither in that time.
        """
        deadline = time.monotonic() + timeout_s
        before = self.count(Count.IMAGES)
        while True:
            self.listen()
            if self.problem:
                raise CameraError(self.problem)
            if self.identity is not None and self.count(Count.IMAGES) > before:
                return self.identity
            if time.monotonic() > deadline:
                raise CameraError(f"it has shown nothing for {timeout_s:g} s.")
            time.sleep(0.01)

    def newest(self) -> Frame | None:
        """Returns the newest image, None before the first one."""
        if self._seen is None or self._seen.captured != self.captured:
            self._seen = self._ring.newest() or self._seen
        return self._seen

    def end(self) -> None:
        """Ends the process: told to, or by force where that does not help, as it does not if it stands still."""
        if self._process is None or self._connection is None:
            return
        with contextlib.suppress(OSError):
            self._connection.send_bytes(STOP)
        self._process.join(_END_TIMEOUT_S)
        self.kill()
        self._connection.close()
        self._process = self._connection = None

    def kill(self) -> None:
        """Ends the process by force."""
        if self._process is not None and self._process.is_alive():
            self._process.kill()
            self._process.join()
