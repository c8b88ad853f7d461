"""The images of an emulated world, drawn in a process of its own from copies of the world's state.

Drawing takes a large part of a controller's period. In a process of its own it does not delay the
messages of the controllers.
"""

import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.emulators.plants.emulated_images import ImageServer
from stringline.real_robot.emulators.plants.plant import from_cameras
from stringline.real_robot.ipc.array_messages import Header, Json, options_in, receive, send
from stringline.real_robot.ipc.child_process import ChildProcess
from stringline.sim.environment.environment import TaskEnvironment

log = logging.getLogger(__name__)

_START_TIMEOUT_S = 40.0
_IMAGE_TIMEOUT_S = 10.0
_END_TIMEOUT_S = 2.0


class ImageProcess:
    """Draws one image at a time; images that fall due meanwhile are omitted, as by a slow camera.

    Args:
        make_world: Builds an equal world in the new process; it is pickled.
        listener: Socket where cameras connect; the caller closes it.
    """

    def __init__(self, make_world: Callable[[], TaskEnvironment], listener: socket.socket) -> None:
        self._child = ChildProcess(
            _run,
            (make_world, listener),
            socket.socketpair(),
            name="images",
            end_timeout_s=_END_TIMEOUT_S,
        )
        self._socket = self._child.channel
        self._child.start()
        self._busy = False
        self._gone = False

    def wait(self) -> None:
        """Waits until it can draw.

        Raises:
            RuntimeError: It cannot draw.
        """
        self._socket.settimeout(_START_TIMEOUT_S)
        try:
            header, _ = receive(self._socket)
        except OSError as error:
            raise RuntimeError(f"The process that draws images did not start: {error}") from error
        if "error" in header:
            raise RuntimeError(str(header["error"]))
        self._socket.settimeout(_IMAGE_TIMEOUT_S)

    def begin(self, seed: int, options: Mapping[str, Any], state: NDArray[np.float64]) -> None:
        """Begins the episode of that seed, and waits for its first image.

        So no camera sees the world before. `state` is the initial one; see
        `TaskEnvironment.snapshot`.
        """
        values: dict[str, Json] = dict(options)
        with self._unless_gone():
            self._send({"seed": seed, "options": values})
            while self._busy:
                self._take_answer()
            self._draw(state, 0.0)
            self._take_answer()

    def look(self, state: NDArray[np.float64], seconds: float) -> None:
        """Draws the world at a time of the episode, unless the image before is not finished."""
        with self._unless_gone():
            if self._busy and select.select([self._socket], [], [], 0.0)[0]:
                self._take_answer()
            if not self._busy:
                self._draw(state, seconds)

    def _draw(self, state: NDArray[np.float64], seconds: float) -> None:
        self._send({"time": seconds, "captured": time.monotonic()}, state)
        self._busy = True

    def _send(self, header: Header, state: NDArray[np.float64] | None = None) -> None:
        if not self._gone:
            send(self._socket, header, {} if state is None else {"state": state})

    def _take_answer(self) -> None:
        if not self._gone:
            receive(self._socket)
        self._busy = False

    @contextmanager
    def _unless_gone(self) -> Iterator[None]:
        """Lets the world continue without images, as if the cameras had failed."""
        try:
            yield
        except OSError:
            self._gone = True
            self._busy = False
            log.error("The process that draws images is gone; cameras get no more images.")

    def close(self) -> None:
        """Ends it."""
        self._child.end()


def _run(
    make_world: Callable[[], TaskEnvironment], listener: socket.socket, requests: socket.socket
) -> None:
    """Draws images on request until the emulator is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The emulator handles it.
    if hasattr(os, "SCHED_BATCH"):  # On Linux it then does not preempt the emulator.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        world = make_world()
        world.begin(0)
        world.observe()  # Starts OpenGL, or raises.
    except Exception as error:  # The emulator raises it with the same message.
        send(requests, {"error": str(error)})
        return
    images = ImageServer(listener)
    with suppress(ConnectionError):
        send(requests, {})
        while True:
            header, arrays = receive(requests)
            if "state" not in arrays:
                world.begin(int(str(header["seed"])), options_in(header))
                continue
            seen = world.frame_of(arrays["state"], float(str(header["time"])))
            images.show(from_cameras(seen), float(str(header["captured"])))
            send(requests, {})
