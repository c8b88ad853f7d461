"""Depth as a stereo camera measures it, in place of the true one: depth pictures change, and nothing else."""

import zlib
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stringline.sim.depth_sensor import StereoSensor
from stringline.sim.shifts.shift import Scene, Shift, Shot, Start


class DepthNoise(Shift):
    """Depth pictures with the faults of a stereo camera; at full strength those of the sensor as it is described.

    What is drawn for a picture depends on the episode's seed, the time and the camera alone.

    Args:
        sensor: Whose faults.
    """

    name: ClassVar[str] = "depth_noise"

    def __init__(self, sensor: StereoSensor) -> None:
        self._sensor, self._strength, self._seed = sensor, 0.0, 0

    def apply(self, scene: Scene, start: Start, strength: float, rng: np.random.Generator) -> None:
        """Keeps the strength for the episode's pictures."""
        self._strength, self._seed = strength, int(rng.integers(2**32))

    def measured(self, depth: NDArray[np.uint16], shot: Shot) -> NDArray[np.uint16]:
        """Returns what the sensor makes of it."""
        moment = round(1e6 * shot.time), zlib.crc32(shot.camera.encode())
        rng = np.random.Generator(np.random.SFC64([self._seed, *moment]))
        return self._sensor.measure(depth, shot.intrinsics, rng, self._strength)
