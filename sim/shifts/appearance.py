"""Shifts of appearance: lighting, object colours and the noise of a depth camera.

Images are lit by one directional light and the headlight, whose colours and directions the shifts
change.
"""

import colorsys
import zlib
from collections.abc import Sequence
from typing import Any, ClassVar

import mujoco
import numpy as np
from numpy.typing import NDArray

from stringline.sim.rendering.depth_sensor import StereoSensor
from stringline.sim.shifts.shift import EpisodeStart, Shift, ShiftedWorld, Shot

# Elevation above the horizon, and largest azimuth from straight left or right.
SIDE_ELEVATION_DEG = 20.0
SIDE_SPREAD_DEG = 40.0
# Factors of the ambient light and of the light from the side.
SIDE_AMBIENT = 0.4
SIDE_DIFFUSE = 1.8
COLOUR_SATURATION = 0.8
COLOUR_GAIN = 1.5


class _Light(Shift):
    """A shift of colours and directions of light."""

    def touched(self, scene: ShiftedWorld) -> Sequence[NDArray[Any]]:
        """Returns colours and directions of all lights."""
        return (*_colours(scene.model), scene.model.light_dir)


class DimLight(_Light):
    """Less light; at full strength 15 % of it."""

    name: ClassVar[str] = "dim_light"
    factor: ClassVar[float] = 0.15

    def apply(
        self, scene: ShiftedWorld, start: EpisodeStart, strength: float, rng: np.random.Generator
    ) -> None:
        """Multiplies all lights by a factor, which is `factor` at full strength."""
        for colour in _colours(scene.model):
            colour *= 1 + (self.factor - 1) * strength


class BrightLight(DimLight):
    """More light; at full strength 2.2 times as much, so that pale objects are overexposed."""

    name: ClassVar[str] = "bright_light"
    factor: ClassVar[float] = 2.2


class SideLight(_Light):
    """Light from the left or the right, at full strength 20 degrees above the horizon."""

    name: ClassVar[str] = "side_light"

    def apply(
        self, scene: ShiftedWorld, start: EpisodeStart, strength: float, rng: np.random.Generator
    ) -> None:
        """Turns directional lights towards a drawn direction, and dims the others."""
        azimuth = np.radians(
            rng.choice([0.0, 180.0]) + rng.uniform(-SIDE_SPREAD_DEG, SIDE_SPREAD_DEG)
        )
        elevation = np.radians(SIDE_ELEVATION_DEG)
        level = np.cos(elevation)
        side = -np.array([np.cos(azimuth) * level, np.sin(azimuth) * level, np.sin(elevation)])
        model = scene.model
        for direction in model.light_dir:
            direction[:] = (1 - strength) * direction / np.linalg.norm(direction) + strength * side
            direction /= np.linalg.norm(direction)
        model.light_diffuse *= 1 + (SIDE_DIFFUSE - 1) * strength
        model.vis.headlight.diffuse *= 1 - strength
        for ambient in (model.light_ambient, model.vis.headlight.ambient):
            ambient *= 1 - (1 - SIDE_AMBIENT) * strength


class ColouredLight(_Light):
    """Light of a drawn colour, at full strength strongly saturated and 1.5 times as bright."""

    name: ClassVar[str] = "coloured_light"

    def apply(
        self, scene: ShiftedWorld, start: EpisodeStart, strength: float, rng: np.random.Generator
    ) -> None:
        """Gives all lights the same tint."""
        tint = COLOUR_GAIN * np.array(colorsys.hsv_to_rgb(rng.uniform(), COLOUR_SATURATION, 1.0))
        for colour in _colours(scene.model):
            colour *= 1 + strength * (tint - 1)


def _colours(model: mujoco.MjModel) -> tuple[NDArray[np.float32], ...]:
    """Returns the colours (..., 3) of all lights."""
    head = model.vis.headlight
    return (
        model.light_ambient,
        model.light_diffuse,
        model.light_specular,
        head.ambient,
        head.diffuse,
        head.specular,
    )


DRAWS = 4  # Drawn colours, of which the one farthest from the object's own is used.
# Ranges of the drawn colours; the table is darker and greyer.
SATURATION = (0.5, 1.0)
VALUE = (0.4, 1.0)


class ObjectColour(Shift):
    """A drawn colour for each object of the task.

    At full strength the object's mean colour is the drawn one, at half strength halfway there. The
    differences between its shapes stay.
    """

    name: ClassVar[str] = "object_colour"

    def touched(self, scene: ShiftedWorld) -> Sequence[NDArray[Any]]:
        """Returns the colours of all geoms."""
        return (scene.model.geom_rgba,)

    def apply(
        self, scene: ShiftedWorld, start: EpisodeStart, strength: float, rng: np.random.Generator
    ) -> None:
        """Moves the colours of each object's shapes by the same amount."""
        for shapes in scene.objects.values():
            own: NDArray[np.float64] = scene.model.geom_rgba[shapes, :3].astype(np.float64)
            drawn = [
                colorsys.hsv_to_rgb(rng.uniform(), rng.uniform(*SATURATION), rng.uniform(*VALUE))
                for _ in range(DRAWS)
            ]
            away = np.array(drawn) - own.mean(axis=0)
            farthest = away[np.linalg.norm(away, axis=1).argmax()]
            scene.model.geom_rgba[shapes, :3] = np.clip(own + strength * farthest, 0.0, 1.0)


class DepthNoise(Shift):
    """Depth images with the noise and holes of a stereo camera, scaled by the strength.

    The noise of an image depends on the episode's seed, the time and the camera only.
    """

    name: ClassVar[str] = "depth_noise"

    def __init__(self, sensor: StereoSensor) -> None:
        self._sensor = sensor
        self._strength = 0.0
        self._seed = 0

    def apply(
        self, scene: ShiftedWorld, start: EpisodeStart, strength: float, rng: np.random.Generator
    ) -> None:
        """Stores strength and seed for the episode's images."""
        self._strength = strength
        self._seed = int(rng.integers(2**32))

    def measured(self, depth: NDArray[np.uint16], shot: Shot) -> NDArray[np.uint16]:
        """Returns the sensor's measurement."""
        moment = round(1e6 * shot.time), zlib.crc32(shot.camera.encode())
        rng = np.random.Generator(np.random.SFC64([self._seed, *moment]))
        return self._sensor.measure(depth, shot.intrinsics, rng, self._strength)
