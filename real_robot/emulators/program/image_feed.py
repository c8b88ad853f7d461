"""Hands on what the cameras of an emulated world see, as soon as it is new."""

import time

from stringline.datasets.contract.contract import Array
from stringline.real_robot.emulators.plants.emulated_images import ImageServer
from stringline.real_robot.emulators.plants.plant import Plant


class ImageFeed:
    """For a plant that draws its own images; they get the time at which they are new, by the host's monotonic clock.

    Args:
        plant: The world, which goes on by the clock.
        images: Gets them, for cameras with processes of their own.
    """

    def __init__(self, plant: Plant, images: ImageServer) -> None:
        self._plant = plant
        self._images = images
        self._seen: dict[str, Array] = {}

    def look(self) -> None:
        """Looks whether there are new ones; to be called after each period."""
        frames = self._plant.frames()
        if frames is not self._seen:
            self._seen = frames
            self._images.show(frames, time.monotonic())
