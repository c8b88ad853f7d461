"""The base class of distribution shifts, and the data that shifts read."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import mujoco
import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.transforms import Matrix


@dataclass(frozen=True)
class ShiftedWorld:
    """A compiled world that shifts change.

    Attributes:
        model: The compiled model, whose arrays determine physics and images.
        objects: Numbers of the geoms of each object of the task, by name.
    """

    model: mujoco.MjModel
    objects: Mapping[str, NDArray[np.int_]]


@dataclass(frozen=True)
class EpisodeStart:
    """The placement of objects at the start of an episode.

    Attributes:
        spots: (N, 3), x, y and radius of a circle around each object in the base frame, metres.
        table_height: Height of the table top above the plane z = 0, metres.
    """

    spots: NDArray[np.float64]
    table_height: float


@dataclass(frozen=True)
class Shot:
    """Camera and time of a depth image.

    Attributes:
        camera: Name of the camera.
        time: Seconds since the episode began.
        intrinsics: (3, 3), pixels.
    """

    camera: str
    time: float
    intrinsics: NDArray[np.float32]


class Shift(ABC):
    """One way in which episodes can differ from the demonstrations.

    Each shift draws from a random stream of its own, so that nothing else of the episode depends on
    it.

    Attributes:
        name: Name of the task option that sets its strength, 0 (none) to 1 (the strongest).
    """

    name: ClassVar[str]

    def touched(self, scene: ShiftedWorld) -> Sequence[NDArray[Any]]:
        """Returns the arrays that `apply` writes to; they are restored before the next episode."""
        del scene
        return ()

    @abstractmethod
    def apply(
        self, scene: ShiftedWorld, start: EpisodeStart, strength: float, rng: np.random.Generator
    ) -> None:
        """Changes the world for the episode that begins.

        Args:
            scene: The compiled world, with the shifts applied before this one.
            start: The placement of objects.
            strength: Above 0, at most 1.
            rng: The shift's own random stream, determined by the episode's seed.
        """

    def measured(self, depth: NDArray[np.uint16], shot: Shot) -> NDArray[np.uint16]:
        """Returns the measurement of a true depth image (H, W), which stays unchanged."""
        del shot
        return depth

    def reported(self, T_base_camera: Matrix, camera: int) -> Matrix:
        """Returns the reported pose (4, 4) of a camera by number, in the contract's convention."""
        del camera
        return T_base_camera
