"""What the cameras of an emulated world saw last, and when."""

import time

import numpy as np

from stringline.datasets.contract import Array
from stringline.real_robot.emulators.pictures import PictureServer
from stringline.real_robot.emulators.plant import Plant


class StampedFrames:
    """Frames that bear the plant's time in lock-step, and the host's monotonic clock in real time.

    Args:
        plant: The world.
        real_time: Whether it goes on by itself.
        pictures: Gets new frames in real time, for cameras with processes of their own.
    """

    def __init__(self, plant: Plant, *, real_time: bool, pictures: PictureServer | None = None) -> None:
        self._plant, self._real_time, self._pictures = plant, real_time, pictures
        self._seen: dict[str, Array] = {}
        self._seen_at = 0.0

    def look(self) -> None:
        """Looks whether there are new ones; to be called after each period."""
        frames = self._plant.frames()
        if frames is not self._seen:
            self._seen, self._seen_at = frames, time.monotonic()
            if self._real_time and self._pictures is not None:
                self._pictures.show(frames, self._seen_at)

    def newest(self) -> dict[str, Array]:
        """Returns them, by the keys of the contract."""
        if not self._real_time:
            return self._plant.frames()
        return {key: np.asarray(self._seen_at) if key.startswith("time/") else value for key, value in self._seen.items()}
