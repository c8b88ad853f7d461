"""The shifts of a world: their names, strengths, and their application to each episode."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.embodiments.transforms import Matrix
from stringline.sim.looks.looks import Looks, Scene
from stringline.sim.rendering.depth_sensor import StereoSensor
from stringline.sim.shifts.shift import (
    BrightLight,
    CameraPose,
    ColouredLight,
    DepthNoise,
    DimLight,
    Distractors,
    EpisodeStart,
    Miscalibration,
    ObjectColour,
    Shift,
    ShiftedWorld,
    Shot,
    SideLight,
    Zone,
)

# Task options that set the strength of a shift, in the order of `Shifts.of`.
NAMES = tuple(
    kind.name
    for kind in (
        DimLight,
        BrightLight,
        SideLight,
        ColouredLight,
        Distractors,
        ObjectColour,
        CameraPose,
        Miscalibration,
        DepthNoise,
    )
)


class Shifts:
    """The looks and the shifts of one world, in order of application.

    Strengths above 0 activate a shift.

    Attributes:
        looks: The looks, on which shifts of light and colours act.
    """

    def __init__(self, looks: Looks, shifts: Sequence[Shift] = ()) -> None:
        self.looks = looks
        self._all = tuple(shifts)
        self._active = tuple[Shift, ...]()
        self._scene: ShiftedWorld
        self._original: list[tuple[NDArray[Any], NDArray[Any]]] = []

    @classmethod
    def of(
        cls,
        root: mjcf.RootElement,
        zones: Sequence[Zone],
        sensor: StereoSensor,
        room_half_m: float,
    ) -> "Shifts":
        """Builds looks and shifts; their parts are added to `root` before it is compiled."""
        lights = (DimLight(), BrightLight(), SideLight(), ColouredLight())
        objects = (Distractors(root, zones), ObjectColour())
        others = (CameraPose(), Miscalibration(), DepthNoise(sensor))
        return cls(Looks(root, room_half_m), (*lights, *objects, *others))

    def bind(self, scene: ShiftedWorld) -> None:
        """Connects the shifts to the compiled world, and copies the arrays that they may change."""
        self._scene = scene
        self._active = ()
        arrays = [array for shift in self._all for array in shift.touched(scene)]
        arrays += self.looks.touched(scene.model)
        self._original = [(array, array.copy()) for array in arrays]

    def begin(
        self,
        start: EpisodeStart,
        strengths: Mapping[str, float],
        seed: Sequence[int],
        looks: str,
        scene: Scene,
    ) -> dict[str, Any]:
        """Undoes looks and shifts of the previous episode, and applies those of the next one.

        `strengths` are 0 to 1, by name of the shift; a missing one is 0. Returns what the looks
        have drawn.
        """
        if self._active or self.looks.active:
            for array, original in self._original:
                array[:] = original
        drawn = self.looks.apply(self._scene.model, looks, scene, seed)
        self._active = tuple(shift for shift in self._all if strengths.get(shift.name, 0.0) > 0)
        for shift in self._active:
            rng = np.random.default_rng([*seed, zlib.crc32(shift.name.encode())])
            shift.apply(self._scene, start, strengths[shift.name], rng)
        return drawn

    def measured(self, depth: NDArray[np.uint16], shot: Shot) -> NDArray[np.uint16]:
        """Returns the measurement of a true depth image (H, W)."""
        for shift in self._active:
            depth = shift.measured(depth, shot)
        return depth

    def reported(self, T_base_camera: Matrix, camera: int) -> Matrix:
        """Returns the reported pose (4, 4) of a camera by number."""
        for shift in self._active:
            T_base_camera = shift.reported(T_base_camera, camera)
        return T_base_camera
