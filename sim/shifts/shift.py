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
    """A compiled model that shifts change, and the numbers of the geoms of each of its objects."""

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
    """Camera, time since the episode began, and intrinsics (3, 3), pixels, of a depth image."""

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
        """Changes the world, with the shifts before this one, for the episode that begins.

        The strength is above 0 and at most 1. `rng` is the shift's own random stream, determined by
        the episode's seed.
        """

    def measured(self, depth: NDArray[np.uint16], shot: Shot) -> NDArray[np.uint16]:
        """Returns the measurement of a true depth image (H, W), which stays unchanged."""
        del shot
        return depth

    def reported(self, T_base_camera: Matrix, camera: int) -> Matrix:
        """Returns the reported pose (4, 4) of a camera by number, in the contract's convention."""
        del camera
        return T_base_camera
