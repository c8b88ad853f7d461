"""The images of an emulated world, drawn in a process of its own from copies of the world's state.

Drawing takes a good part of a controller's period, and on a busy machine most of it. Beside the
loop that beats the controllers' clocks it keeps no message waiting.
"""

import logging
import multiprocessing
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.emulators.plants.emulated_images import ImageServer
from stringline.real_robot.emulators.plants.plant import from_cameras
from stringline.real_robot.ipc.array_messages import Header, Json, options_in, receive, send
from stringline.sim.environment.environment import TaskEnvironment

log = logging.getLogger(__name__)

_START_TIMEOUT_S = 40.0
_IMAGE_TIMEOUT_S = 10.0
_END_TIMEOUT_S = 2.0


class ImageProcess:
    """Draws one image at a time; what falls due meanwhile is left out, as by a camera that cannot keep up.

    Args:
        make_world: Builds the same world once more, in the new process: to be pickled.
        listener: Socket where cameras connect; it is closed by whoever made it.
    """

    def __init__(self, make_world: Callable[[], TaskEnvironment], listener: socket.socket) -> None:
        context = multiprocessing.get_context("spawn")
        self._socket, other = socket.socketpair()
        self._process = context.Process(
            target=_run, args=(make_world, other, listener), name="images", daemon=True
        )
        self._process.start()
        other.close()
        self._busy = self._gone = False

    def wait(self) -> None:
        """Waits until it can draw.

        Raises:
            RuntimeError: It cannot, and why.
        """
        self._socket.settimeout(_START_TIMEOUT_S)
        try:
            header, _ = receive(self._socket)
        except OSError as error:
            raise RuntimeError(
                f"The process that draws images does not come up: {error}"
            ) from error
        if "error" in header:
            raise RuntimeError(str(header["error"]))
        self._socket.settimeout(_IMAGE_TIMEOUT_S)

    def begin(self, seed: int, options: Mapping[str, float], state: NDArray[np.float64]) -> None:
        """Begins the episode of that seed there, too, since it says what everything looks like; waits until cameras can see it.

        So who looks after that is not shown the world before.

        Args:
            seed: Of the episode.
            options: Of the task.
            state: Of the world at its beginning, see `TaskEnvironment.snapshot`.
        """
        told: dict[str, Json] = dict(options)
        with self._unless_gone():
            self._send({"seed": seed, "options": told})
            while self._busy:
                self._take_answer()
            self._draw(state, 0.0)
            self._take_answer()

    def look(self, state: NDArray[np.float64], seconds: float) -> None:
        """Has the world drawn as it is now, unless the image before is not done.

        Args:
            state: Of the world.
            seconds: How old the episode is.
        """
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
        """The world goes on without images, as a robot does whose cameras have failed; those who look notice."""
        try:
            yield
        except OSError:
            self._gone = True
            self._busy = False
            log.error("The process that draws images is gone; cameras see nothing any more.")

    def close(self) -> None:
        """Ends it."""
        self._socket.close()
        self._process.join(_END_TIMEOUT_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _run(
    make_world: Callable[[], TaskEnvironment], asked: socket.socket, listener: socket.socket
) -> None:
    """Draws what is asked for until the emulator is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The emulator knows what to do with it.
    if hasattr(
        os, "SCHED_BATCH"
    ):  # Linux: it takes no processor away from the emulator that has just asked for an image.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        world = make_world()
        world.begin(0)
        world.observe()  # OpenGL comes up, or says what it lacks.
    except Exception as error:  # Its owner says so, in the same words.
        send(asked, {"error": str(error)})
        return
    images = ImageServer(listener)
    with suppress(ConnectionError):
        send(asked, {})
        while True:
            header, arrays = receive(asked)
            if "state" not in arrays:
                world.begin(int(str(header["seed"])), options_in(header))
                continue
            seen = world.frame_of(arrays["state"], float(str(header["time"])))
            images.show(from_cameras(seen), float(str(header["captured"])))
            send(asked, {})
