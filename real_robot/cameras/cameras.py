"""All cameras of a robot, with processes that are restarted when they die or hang."""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.real_robot.cameras.camera_handle import CameraHandle
from stringline.real_robot.cameras.camera_settings import CameraSettings
from stringline.real_robot.ipc.camera_liveness import CameraLiveness, Count

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
