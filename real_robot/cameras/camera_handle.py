"""The owner's handle on the process of one camera, which may be restarted with the same ring."""

import json
import time
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from stringline.real_robot.cameras.camera import CameraError, Frame, Identity
from stringline.real_robot.cameras.camera_process import STOP, CameraSetup, run_camera
from stringline.real_robot.cameras.camera_settings import CameraSettings
from stringline.real_robot.cameras.frame_ring import FrameRing, ring_memory
from stringline.real_robot.ipc.camera_liveness import CameraLiveness, Count
from stringline.real_robot.ipc.child_process import ChildProcess

_END_TIMEOUT_S = 2.0


class CameraHandle:
    """One camera and its process.

    Args:
        place: Index of this camera in `liveness`.

    Attributes:
        problem: Why the last process failed; empty while it runs.
        identity: Reported properties of the camera; None before the report.
        started: Start of the last process, seconds of the monotonic clock.
    """

    def __init__(self, settings: CameraSettings, liveness: CameraLiveness, place: int) -> None:
        self.settings = settings
        self._liveness = liveness
        self._place = place
        memory = ring_memory(settings)
        self._setup = CameraSetup(settings, memory, liveness, place)
        self._ring = FrameRing(memory, settings)
        self._child: ChildProcess[Connection] | None = None
        self._seen: Frame | None = None
        self.problem = ""
        self.started = float("-inf")
        self.identity: Identity | None = None

    def start(self) -> None:
        """Starts a process; the previous one must have ended."""
        self._child = ChildProcess(
            run_camera,
            (self._setup,),
            Pipe(),
            name=f"stringline camera {self.settings.name}",
            end_timeout_s=_END_TIMEOUT_S,
            stop=lambda pipe: pipe.send_bytes(STOP),
        )
        self.problem = ""
        self.identity = None
        self.started = time.monotonic()
        self._child.start()

    @property
    def pid(self) -> int | None:
        """Number of the process; None without one."""
        return None if self._child is None else self._child.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs; it may be suspended."""
        return self._child is not None and self._child.alive

    @property
    def captured(self) -> float:
        """Capture time of the newest image, monotonic seconds; minus infinity before the first."""
        return float(self._liveness.times[self._place])

    def count(self, what: Count) -> int:
        """Returns a counter over all processes of this camera."""
        return self._liveness.count(self._place, what)

    def receive(self) -> None:
        """Receives the messages of the process: the identity of the camera, or an error."""
        if self._child is None:
            return
        try:
            while self._child.channel.poll():
                message = json.loads(self._child.channel.recv_bytes())
                self.problem = str(message.get("error", self.problem))
                self.identity = None if "error" in message else self._fixed(Identity(**message))
        except (EOFError, OSError):
            if not self.problem:
                code = self._child.exit_code(_END_TIMEOUT_S)
                self.problem = (
                    f"its process was killed by signal {-code}."
                    if code and code < 0
                    else "its process has ended."
                )

    def _fixed(self, identity: Identity) -> Identity:
        """Fixes serial number and controls: a restart opens no other camera, and sets them again.

        A camera that was plugged in again has forgotten them.
        """
        settings = self._setup.settings
        settings = replace(settings, controls={**identity.controls, **settings.controls})
        if identity.serial and not settings.serial:
            settings = replace(settings, serial=identity.serial)
        self._setup = replace(self._setup, settings=settings)
        return identity

    def wait(self, timeout_s: float) -> Identity:
        """Waits for the identity of the camera and its first image.

        Raises:
            CameraError: The camera failed, or delivered no image in time.
        """
        deadline = time.monotonic() + timeout_s
        before = self.count(Count.IMAGES)
        while True:
            self.receive()
            if self.problem:
                raise CameraError(self.problem)
            if self.identity is not None and self.count(Count.IMAGES) > before:
                return self.identity
            if time.monotonic() > deadline:
                raise CameraError(f"it has delivered no image for {timeout_s:g} s.")
            time.sleep(0.01)

    def newest(self) -> Frame | None:
        """Returns the newest image, None before the first one."""
        if self._seen is None or self._seen.captured != self.captured:
            self._seen = self._ring.newest() or self._seen
        return self._seen

    def end(self) -> None:
        """Ends the process, by force if it does not respond."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def kill(self) -> None:
        """Ends the process by force."""
        if self._child is not None:
            self._child.kill()
