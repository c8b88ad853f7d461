"""All shifts of a world: which there are, how strong they may be, and when they come and go."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.embodiments.transforms import Matrix
from stringline.sim.rendering.depth_sensor import StereoSensor
from stringline.sim.shifts.appearance import (
    BrightLight,
    ColouredLight,
    DepthNoise,
    DimLight,
    ObjectColour,
    SideLight,
)
from stringline.sim.shifts.camera_pose import CameraPose, Miscalibration
from stringline.sim.shifts.distractors import Distractors, Zone
from stringline.sim.shifts.shift import Scene, Shift, Shot, Start

# The options of every task that give the strength of a shift; `Shifts.of` makes them, in this
# order.
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
    """The shifts of one world, of which an episode has those with a strength above 0.

    Args:
        shifts: In the order in which they are applied.
    """

    def __init__(self, shifts: Sequence[Shift] = ()) -> None:
        self._all = tuple(shifts)
        self._active = tuple[Shift, ...]()
        self._scene: Scene
        self._original: list[tuple[NDArray[Any], NDArray[Any]]] = []

    @classmethod
    def of(cls, root: mjcf.RootElement, zones: Sequence[Zone], sensor: StereoSensor) -> "Shifts":
        """Returns all shifts that there are.

        Args:
            root: The arena, before it is compiled; distractors are added to it.
            zones: Where distractors can stand.
            sensor: Whose faults depth images get.
        """
        lights = (DimLight(), BrightLight(), SideLight(), ColouredLight())
        return cls(
            (
                *lights,
                Distractors(root, zones),
                ObjectColour(),
                CameraPose(),
                Miscalibration(),
                DepthNoise(sensor),
            )
        )

    def bind(self, scene: Scene) -> None:
        """Takes over the compiled world, and keeps what shifts may change in it."""
        self._scene = scene
        self._active = ()
        self._original = [
            (array, array.copy()) for shift in self._all for array in shift.touched(scene)
        ]

    def begin(self, start: Start, strengths: Mapping[str, float], seed: Sequence[int]) -> None:
        """Puts back what the episode before has changed, and shifts the one that begins.

        Args:
            start: Where things are.
            strengths: By the names of shifts, see `strength`; 0 where there is none.
            seed: Of the episode.
        """
        if self._active:
            for array, original in self._original:
                array[:] = original
        self._active = tuple(shift for shift in self._all if strengths.get(shift.name, 0.0) > 0)
        for shift in self._active:
            rng = np.random.default_rng([*seed, zlib.crc32(shift.name.encode())])
            shift.apply(self._scene, start, strengths[shift.name], rng)

    def measured(self, depth: NDArray[np.uint16], shot: Shot) -> NDArray[np.uint16]:
        """Returns what a camera delivers in place of the true depth (H, W)."""
        for shift in self._active:
            depth = shift.measured(depth, shot)
        return depth

    def reported(self, T_base_camera: Matrix, camera: int) -> Matrix:
        """Returns the pose (4, 4) that the camera of that number is said to have."""
        for shift in self._active:
            T_base_camera = shift.reported(T_base_camera, camera)
        return T_base_camera


def number(name: str, value: object, low: float, high: float, unit: str = "") -> float:
    """Returns the value of a task option.

    Args:
        name: Of the option.
        value: As it was given.
        low: The smallest that is allowed.
        high: The largest.
        unit: To name in a message.

    Raises:
        ValueError: It is no number, or out of range; the message says what is allowed.
    """
    allowed = f"allowed: {low} to {high} {unit}".strip()
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValueError(f"{name} is {value!r}; {allowed}.")
    if not low <= value <= high:
        raise ValueError(f"{name} is {f'{value} {unit}'.strip()}; {allowed}.")
    return float(value)


def strength(name: str, value: object) -> float:
    """Returns the strength of a shift, 0 to 1.

    Raises:
        ValueError: It is no such number.
    """
    return number(f"The strength of {name}", value, 0.0, 1.0)
