"""All cameras of a robot: their newest images, and processes that are started anew when they die or stand still."""

import logging
import multiprocessing
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.real_robot.cameras.camera_handle import CameraHandle
from stringline.real_robot.cameras.camera_settings import CameraSettings
from stringline.real_robot.ipc.camera_liveness import Count, Liveliness

log = logging.getLogger(__name__)

_LOOK_S = 0.05


@dataclass(frozen=True)
class Patience:
    """How long a camera is waited for, and how often it is tried again.

    Attributes:
        silent_s: A camera that has shown nothing for so long is started anew.
        start_s: Longest time from the start of its process to its first image.
        restarts: Tries in a row; after that it is given up.
        pause_s: Before the first try; each further pause is twice as long.
        settled_s: A camera that has shown images for so long has all tries again.
    """

    silent_s: float = 2.0
    start_s: float = 20.0
    restarts: int = 5
    pause_s: float = 0.2
    settled_s: float = 10.0


class _Guard:
    """Looks after one camera."""

    def __init__(self, camera: CameraHandle, patience: Patience) -> None:
        self.camera = camera
        self._patience = patience
        self.restarts = 0
        self._row = 0
        self._given_up = False
        self._due = float("inf")

    def look(self, now: float) -> None:
        """Starts the camera anew if it has to be."""
        camera = self.camera
        patience = self._patience
        camera.listen()
        if (
            self._row
            and not self._given_up
            and camera.captured - camera.started > patience.settled_s
        ):
            self._row = 0
        if self._given_up or not (trouble := self._trouble(now)):
            self._due = float("inf")
            return
        name = camera.settings.name
        if self._row >= patience.restarts:
            self._given_up = True
            camera.kill()
            log.error("Camera %s is given up after %d tries: %s", name, self._row, trouble)
            return
        self._due = min(self._due, now + patience.pause_s * 2**self._row)
        if now < self._due:
            return
        self._row = self._row + 1
        self.restarts = self.restarts + 1
        self._due = float("inf")
        log.warning(
            "Camera %s is started anew, try %d of %d: %s",
            name,
            self._row,
            patience.restarts,
            trouble,
        )
        camera.kill()
        camera.end()
        camera.start()

    def _trouble(self, now: float) -> str:
        camera = self.camera
        patience = self._patience
        if camera.problem or not camera.alive:
            return camera.problem or "its process has ended."
        if camera.captured < camera.started:
            late = now - camera.started > patience.start_s
            return (
                f"it has shown nothing for {patience.start_s:g} s since its start." if late else ""
            )
        silent = now - camera.captured > patience.silent_s
        return f"it has shown nothing for {patience.silent_s:g} s." if silent else ""


class Cameras:
    """A context manager that starts and ends a process for each camera.

    Args:
        settings: Of the cameras, each with a name of its own.
        patience: With them.

    Attributes:
        liveliness: When each took its newest image, for whoever must know without asking.
        handles: On the processes, in the order of the settings.
    """

    def __init__(
        self, settings: Sequence[CameraSettings], patience: Patience | None = None
    ) -> None:
        names = [camera.name for camera in settings]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"The camera {twice[0]!r} is configured more than once.")
        self._patience = patience or Patience()
        context = multiprocessing.get_context("spawn")
        self.liveliness = Liveliness.of(names, context)
        self.handles = [
            CameraHandle(camera, self.liveliness, place, context)
            for place, camera in enumerate(settings)
        ]
        self._guards = [_Guard(handle, self._patience) for handle in self.handles]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stringline cameras", daemon=True)

    def __enter__(self) -> Self:
        for handle in self.handles:
            handle.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        for handle in self.handles:
            handle.end()

    @property
    def start_s(self) -> float:
        """Longest time from the start of a process to its first image."""
        return self._patience.start_s

    def look_after(self) -> None:
        """From now on processes that die or stand still are started anew."""
        self._thread.start()

    def frames(self) -> dict[str, Array]:
        """Returns the newest `rgb/`, `depth/`, `intrinsics/` and `time/` of each camera, nothing of one that has shown nothing.

        A camera that shows nothing any more leaves its last image; how old that is, its time says.
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
        """Returns a line for each camera that lost images or was started anew."""
        lines = []
        for guard in self._guards:
            counts = {what: guard.camera.count(what) for what in Count}
            if guard.restarts or counts[Count.LOST] or counts[Count.OUT_OF_ORDER]:
                lines.append(
                    f"Camera {guard.camera.settings.name}: {counts[Count.IMAGES]} images, "
                    f"{counts[Count.LOST]} lost, "
                    f"{counts[Count.OUT_OF_ORDER]} out of order; started anew {guard.restarts} "
                    f"times."
                )
        return lines

    def _watch(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            for guard in self._guards:
                guard.look(time.monotonic())
