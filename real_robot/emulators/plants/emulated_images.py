"""The images of an emulated world, for cameras in processes of their own.

Each camera has a thread, so that a stopped one delays neither the others nor the emulated servos.
"""

import logging
import socket
import threading
from collections.abc import Mapping

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.real_robot.ipc.array_messages import Header, receive, send

log = logging.getLogger(__name__)

_PATIENCE_S = 4.0


class ImageServer:
    """Answers each camera with the newest image once it is newer than the camera's last.

    Args:
        listener: Socket where cameras connect; the caller closes it.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._new = threading.Condition()
        self._frames: dict[str, Array] = {}
        self._number = 0
        threading.Thread(target=self._accept, name="stringline images", daemon=True).start()

    def show(self, frames: Mapping[str, Array], captured: float) -> None:
        """Takes the images of all cameras, by the keys of the contract.

        `captured` is their time, seconds of the host's monotonic clock.
        """
        stamped = {
            key: np.asarray(captured) if key.startswith("time/") else value
            for key, value in frames.items()
        }
        with self._new:
            self._frames = stamped
            self._number += 1
            self._new.notify_all()

    def _accept(self) -> None:
        while True:
            try:
                camera, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(
                target=self._serve, args=(camera,), name="stringline images", daemon=True
            ).start()

    def _serve(self, camera: socket.socket) -> None:
        with camera:
            try:
                while True:
                    header, _ = receive(camera)
                    send(
                        camera,
                        *self._answer(str(header.get("camera")), int(str(header.get("after", 0)))),
                    )
            except (OSError, ValueError) as error:
                log.debug("A camera left: %s", error)

    def _answer(self, camera: str, after: int) -> tuple[Header, dict[str, Array]]:
        with self._new:
            self._new.wait_for(lambda: self._number > after, _PATIENCE_S)
            frames = self._frames
            number = self._number
        found = {key: value for key, value in frames.items() if key.endswith(f"/{camera}")}
        if number <= after:
            return {"error": f"the emulated world has drawn no image for {_PATIENCE_S:g} s."}, {}
        if not found:
            return {"error": f"the emulator has no camera {camera!r}."}, {}
        return {"number": number}, found
