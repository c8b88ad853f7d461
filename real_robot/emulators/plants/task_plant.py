"""A task of the simulation as the world behind emulated robots.

Its images are drawn in a process of its own, from copies of the world's state. Drawing takes a
large part of a controller's period; there it does not delay the messages of the controllers.
"""

import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.real_robot.emulators.plants.plant import ImageServer, from_cameras
from stringline.real_robot.ipc.array_messages import Header, Json, options_in, receive, send
from stringline.real_robot.ipc.child_process import ChildProcess
from stringline.sim.environment.environment import TaskEnvironment, make_environment
from stringline.sim.robots.arm_appearance import PRIMITIVES, RobotModel

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


class TaskPlant:
    """A MuJoCo world that is driven by servo goals instead of actions.

    Args:
        image_size: Rows and columns of the images.
        images: Listening socket of camera processes, for which another process draws in real time;
            if None, images are drawn as the world advances, and `frames` returns them.
    """

    def __init__(
        self,
        task: str,
        *,
        cameras: Sequence[str],
        image_size: int = 128,
        device_hz: float = 100.0,
        frame_hz: float = 12.5,
        time_limit_s: float = 15.0,
        robot_model: RobotModel = PRIMITIVES,
        images: socket.socket | None = None,
    ) -> None:
        self.period_s = 1.0 / device_hz
        make_world = partial(
            make_environment,
            task,
            image_size=image_size,
            control_hz=device_hz,
            frame_hz=frame_hz,
            time_limit_s=time_limit_s,
            robot_model=robot_model,
        )
        self._frames: dict[str, Array] = {}
        self._outcome: dict[str, bool | int | float | str] = {}
        self._image_process: ImageProcess | None = None
        self._world = make_world(cameras=cameras if images is None else ())
        if images is not None and cameras:
            self._image_process = ImageProcess(partial(make_world, cameras=cameras), images)
            self._image_process.wait()
        self.begin(0, {})

    @property
    def embodiment(self) -> Embodiment:
        """The embodiment of the task."""
        embodiment: Embodiment = self._world.task.robot.embodiment
        return embodiment

    def begin(self, seed: int, options: Mapping[str, Any]) -> None:
        """Begins the episode of a seed, with options of the task."""
        self._world.begin(seed, options)
        self._outcome = self._describe(success=False, stage=0, time=0.0, expired=False)
        if self._image_process is not None:
            self._image_process.begin(seed, options, self._world.snapshot())
        else:
            self._draw()

    def limit_efforts(self, largest: Vector) -> None:
        """Limits the efforts of the joints (J,), Nm and N, until they are limited again."""
        self._world.task.robot.limit_efforts(self._world.physics, largest)

    def advance(self, target: Vector) -> None:
        """Drives the joints towards the targets for one period, and draws if an image is due."""
        result = self._world.advance(target)
        self._outcome = self._describe(**vars(result))
        if self._world.frame_due:
            self._draw()

    def _describe(
        self, *, success: bool, stage: int, time: float, expired: bool, unstable: bool = False
    ) -> dict[str, bool | int | float | str]:
        name = self._world.task.stages[stage]
        outcome: dict[str, bool | int | float | str] = {
            "success": success,
            "stage": stage,
            "stage_name": name,
            "time": time,
        }
        return outcome | {"expired": expired, "unstable": unstable}

    def _draw(self) -> None:
        if self._image_process is not None:
            self._image_process.look(self._world.snapshot(), self._world.time)
            return
        self._frames = from_cameras(self._world.observe())

    def measure(self) -> tuple[Vector, Vector, Vector]:
        """Returns positions, velocities and efforts (14,)."""
        robot = self._world.task.robot
        physics = self._world.physics
        return robot.positions(physics), robot.velocities(physics), robot.efforts(physics)

    def frames(self) -> dict[str, Array]:
        """Returns the latest images, stamped in seconds of the episode.

        Raises:
            ValueError: Another process draws them.
        """
        if self._image_process is not None:
            raise ValueError(
                "In real time, cameras get their images from a socket of their own, which the "
                "emulator announces."
            )
        return self._frames

    def outcome(self) -> dict[str, bool | int | float | str]:
        """Returns the outcome of the episode so far."""
        return self._outcome

    def close(self) -> None:
        """Frees graphics and physics."""
        if self._image_process is not None:
            self._image_process.close()
        self._world.close()
