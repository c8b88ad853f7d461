"""Publishes the new images of an emulated world."""

import time

from stringline.datasets.contract.contract import Array
from stringline.real_robot.emulators.plants.emulated_images import ImageServer
from stringline.real_robot.emulators.plants.plant import Plant


class ImageFeed:
    """Publishes the images of a plant that draws them itself, with times of the monotonic clock.

    Args:
        plant: The world, in real time.
        images: Server for camera processes.
    """

    def __init__(self, plant: Plant, images: ImageServer) -> None:
        self._plant = plant
        self._images = images
        self._seen: dict[str, Array] = {}

    def look(self) -> None:
        """Publishes the images if they are new; called after each period."""
        frames = self._plant.frames()
        if frames is not self._seen:
            self._seen = frames
            self._images.show(frames, time.monotonic())
