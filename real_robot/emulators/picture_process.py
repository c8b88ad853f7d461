"""The pictures of an emulated world, drawn in a process of its own from copies of the world's state.

A picture takes longer than a part of a controller's period that anybody would notice, and a processor that others use makes it
take longer still. Drawn beside the loop that beats the controllers' clocks, it keeps no message waiting.
"""

import logging
import multiprocessing
import os
import select
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.emulators.messages import Json, options_in, receive, send
from stringline.real_robot.emulators.pictures import PictureServer
from stringline.real_robot.emulators.plant import from_cameras
from stringline.sim.environment import TaskEnvironment

log = logging.getLogger(__name__)

_START_TIMEOUT_S = 40.0
_END_TIMEOUT_S = 2.0


class PictureProcess:
    """Draws one picture at a time; what falls due meanwhile is left out, as by a camera that cannot keep up.

    Args:
        make_world: Builds the same world once more, in the new process: to be pickled.
        listener: Socket where cameras connect; it is closed by whoever made it.
    """

    def __init__(self, make_world: Callable[[], TaskEnvironment], listener: socket.socket) -> None:
        context = multiprocessing.get_context("spawn")
        self._socket, other = socket.socketpair()
        self._process = context.Process(target=_draw, args=(make_world, other, listener), name="pictures", daemon=True)
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
            raise RuntimeError(f"The process that draws pictures does not come up: {error}") from error
        if "error" in header:
            raise RuntimeError(str(header["error"]))
        self._socket.settimeout(None)

    def begin(self, seed: int, options: Mapping[str, float]) -> None:
        """Begins the episode of that seed there, too: it says what everything looks like."""
        told: dict[str, Json] = dict(options)
        if self._gone:
            return
        with self._unless_gone():
            send(self._socket, {"seed": seed, "options": told})

    def look(self, state: NDArray[np.float64], time: float, captured: float) -> None:
        """Has the world drawn as it is now, unless the picture before is not done.

        Args:
            state: Of the world, see `TaskEnvironment.snapshot`.
            time: Seconds of the episode.
            captured: When that is, seconds of the host's monotonic clock.
        """
        if self._gone:
            return
        with self._unless_gone():
            if self._busy and select.select([self._socket], [], [], 0.0)[0]:
                receive(self._socket)
                self._busy = False
            if not self._busy:
                send(self._socket, {"time": time, "captured": captured}, {"state": state})
                self._busy = True

    @contextmanager
    def _unless_gone(self) -> Iterator[None]:
        """The world goes on without pictures, as a robot does whose cameras have failed; those who look notice."""
        try:
            yield
        except ConnectionError:
            self._gone = True
            log.error("The process that draws pictures is gone; cameras see nothing any more.")

    def close(self) -> None:
        """Ends it."""
        self._socket.close()
        self._process.join(_END_TIMEOUT_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _draw(make_world: Callable[[], TaskEnvironment], asked: socket.socket, listener: socket.socket) -> None:
    """Draws what is asked for until the emulator is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The emulator knows what to do with it.
    if hasattr(os, "SCHED_BATCH"):  # Linux: it takes no processor away from the emulator that has just asked for a picture.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        world = make_world()
        world.begin(0)
        world.observe()  # OpenGL comes up, or says what it lacks.
    except Exception as error:  # Its owner says so, in the same words.
        send(asked, {"error": str(error)})
        return
    pictures = PictureServer(listener)
    with suppress(ConnectionError):
        send(asked, {})
        while True:
            header, arrays = receive(asked)
            if "state" not in arrays:
                world.begin(int(str(header["seed"])), options_in(header))
                continue
            seen = world.frame_of(arrays["state"], float(str(header["time"])))
            pictures.show(from_cameras(seen), float(str(header["captured"])))
            send(asked, {})
