"""All cameras of a robot: their processes, restarts of dead or hanging ones, and checks of images.

A process may be restarted with the same ring. The checks run before arms move; while they move,
messages about cameras tell why the arms hold.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Self

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.real_robot.cameras.calibration_file import UNKNOWN, Calibration
from stringline.real_robot.cameras.camera import CameraError, Frame, Identity
from stringline.real_robot.cameras.camera_process import (
    STOP,
    CameraSetup,
    FrameRing,
    ring_memory,
    run_camera,
)
from stringline.real_robot.cameras.camera_settings import CameraDriver, CameraSettings
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.ipc.child_process import ChildProcess
from stringline.real_robot.ipc.heartbeat import CameraLiveness, Count
from stringline.real_robot.operator.checklist import Checklist
from stringline.real_robot.safety.reasons import old_cameras

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


log = logging.getLogger(__name__)

_POLL_S = 0.05


@dataclass(frozen=True)
class RestartPolicy:
    """Time-outs and restarts of cameras.

    Attributes:
        silent_s: Time without an image after which a camera is restarted.
        start_s: Longest time from the start of the process to the first image.
        restarts: Largest number of restarts in a row.
        pause_s: Time before the first restart; each further pause is twice as long.
        settled_s: Time with images after which the count of restarts begins again.
    """

    silent_s: float = 2.0
    start_s: float = 20.0
    restarts: int = 5
    pause_s: float = 0.2
    settled_s: float = 10.0


class _Watchdog:
    """Restarts one camera when necessary."""

    def __init__(self, camera: CameraHandle, policy: RestartPolicy) -> None:
        self.camera = camera
        self._policy = policy
        self.restarts = 0
        self._row = 0
        self._given_up = False
        self._due = float("inf")

    def update(self, now: float) -> None:
        """Restarts the camera if it failed and the pause is over."""
        camera = self.camera
        policy = self._policy
        camera.receive()
        if self._row and not self._given_up and camera.captured - camera.started > policy.settled_s:
            self._row = 0
        if self._given_up or not (problem := self._problem(now)):
            self._due = float("inf")
            return
        name = camera.settings.name
        if self._row >= policy.restarts:
            self._given_up = True
            camera.kill()
            log.error("Camera %s has failed after %d restarts: %s", name, self._row, problem)
            return
        self._due = min(self._due, now + policy.pause_s * 2**self._row)
        if now < self._due:
            return
        self._row = self._row + 1
        self.restarts = self.restarts + 1
        self._due = float("inf")
        log.warning(
            "Camera %s is restarted, attempt %d of %d: %s",
            name,
            self._row,
            policy.restarts,
            problem,
        )
        camera.kill()
        camera.end()
        camera.start()

    def _problem(self, now: float) -> str:
        camera = self.camera
        policy = self._policy
        if camera.problem or not camera.alive:
            return camera.problem or "its process has ended."
        if camera.captured < camera.started:
            late = now - camera.started > policy.start_s
            return (
                f"it has delivered no image for {policy.start_s:g} s since its start."
                if late
                else ""
            )
        silent = now - camera.captured > policy.silent_s
        return f"it has delivered no image for {policy.silent_s:g} s." if silent else ""


class Cameras:
    """A context manager that starts and ends a process for each camera.

    Attributes:
        liveness: Capture time of the newest image of each camera, in shared memory.
        handles: Handles on the processes, in the order of the settings.

    Raises:
        ValueError: Two cameras have the same name.
    """

    def __init__(
        self, settings: Sequence[CameraSettings], policy: RestartPolicy | None = None
    ) -> None:
        names = [camera.name for camera in settings]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"The camera {twice[0]!r} is configured more than once.")
        self._policy = policy or RestartPolicy()
        self.liveness = CameraLiveness.of(names)
        self.handles = [
            CameraHandle(camera, self.liveness, place) for place, camera in enumerate(settings)
        ]
        self._watchdogs = [_Watchdog(handle, self._policy) for handle in self.handles]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stringline cameras", daemon=True)

    def __enter__(self) -> Self:
        for handle in self.handles:
            handle.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        for handle in self.handles:
            handle.end()

    @property
    def start_s(self) -> float:
        """Longest time from the start of a process to its first image."""
        return self._policy.start_s

    def supervise(self) -> None:
        """Starts the thread that restarts processes which die or hang."""
        self._thread.start()

    def frames(self) -> dict[str, Array]:
        """Returns the newest `rgb/`, `depth/`, `intrinsics/` and `time/` of each camera.

        Cameras without any image are missing. A failed camera keeps its last image and its time.
        """
        found: dict[str, Array] = {}
        for handle in self.handles:
            name = handle.settings.name
            frame = handle.newest()
            if frame is None:
                continue
            found[f"rgb/{name}"] = frame.colour
            found[f"time/{name}"] = np.asarray(frame.captured)
            if frame.depth is not None:
                found[f"depth/{name}"] = frame.depth
            if frame.intrinsics is not None:
                found[f"intrinsics/{name}"] = frame.intrinsics
        return found

    def summary(self) -> list[str]:
        """Returns a line for each camera that lost images or was restarted."""
        lines = []
        for watchdog in self._watchdogs:
            counts = {what: watchdog.camera.count(what) for what in Count}
            if watchdog.restarts or counts[Count.LOST] or counts[Count.OUT_OF_ORDER]:
                lines.append(
                    f"Camera {watchdog.camera.settings.name}: {counts[Count.IMAGES]} images, "
                    f"{counts[Count.LOST]} lost, {counts[Count.OUT_OF_ORDER]} out of order; "
                    f"restarted {watchdog.restarts} times."
                )
        return lines

    def _watch(self) -> None:
        while not self._stopped.wait(_POLL_S):
            for watchdog in self._watchdogs:
                watchdog.update(time.monotonic())


_IMAGES = 10
_SLOWEST_SHARE = 0.8


def check_cameras(cameras: Cameras, checklist: Checklist, calibration: Calibration | None) -> None:
    """Waits for each camera and checks it against its configuration and calibration.

    The cameras are started, but without automatic restarts, which would hide failures.
    """
    for handle in cameras.handles:
        settings = handle.settings
        with checklist.check(f"camera {settings.name}") as note:
            identity = handle.wait(cameras.start_s)
            text = (
                f"{settings.driver.value} {identity.serial}, {identity.width}x{identity.height} "
                f"at {identity.hz:g} Hz"
            )
            kept = ", ".join(f"{name} {value:g}" for name, value in identity.controls.items())
            note(", ".join(filter(None, (text, identity.description, kept))))
            if settings.driver is not CameraDriver.EMULATED:  # A busy machine may draw late.
                note(f"; {check_rate(handle):.1f} Hz measured")
            if calibration is not None and settings.name in calibration.cameras:
                # Emulated images are drawn in any requested size.
                emulated = settings.driver is CameraDriver.EMULATED
                size = None if emulated else (identity.height, identity.width)
                note("; " + calibration.check(settings.name, identity.serial, size))
            elif calibration is not None:
                note("; " + UNKNOWN)


def check_rate(handle: CameraHandle) -> float:
    """Measures the rate of a camera and returns it, images per second.

    Raises:
        CameraError: The rate is less than 80 percent of the configured one.
    """
    hz = handle.settings.hz
    first = handle.count(Count.IMAGES)
    began = handle.captured
    deadline = time.monotonic() + 3 * _IMAGES / hz + 0.5
    while handle.count(Count.IMAGES) < first + _IMAGES and time.monotonic() < deadline:
        time.sleep(0.2 / hz)
    came = handle.count(Count.IMAGES) - first
    seconds = handle.captured - began
    measured = came / seconds if seconds > 0 else 0.0
    if measured < _SLOWEST_SHARE * hz:
        raise CameraError(
            f"it delivers {measured:.1f} images per second; configured are {hz:g}. Automatic "
            f"exposure slows it down in low light, and cameras on a hub share its bandwidth."
        )
    return measured


class CameraReport:
    """Reports when the arms hold for lack of new images, and when these arrive again."""

    def __init__(self, names: Sequence[str], report: Callable[[str], None]) -> None:
        self._names = tuple(names)
        self._report = report
        self._tick = -1
        self._since = 0.0
        self._silent: tuple[str, ...] = ()

    def note(self, states: Sequence[DeviceState]) -> None:
        """Reports changes in recent states, oldest first, each state once."""
        for state in states:
            if state.tick <= self._tick:
                continue
            self._tick = state.tick
            silent = tuple(old_cameras(state.old_cameras, self._names))
            if silent and silent != self._silent:
                self._since = self._since if self._silent else state.arms.time
                self._report(f"The arms hold: no new images from {', '.join(silent)}.")
            elif self._silent and not silent:
                seconds = state.arms.time - self._since
                self._report(f"All cameras deliver images again, after {seconds:.1f} s.")
            self._silent = silent
