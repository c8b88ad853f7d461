"""What a distribution shift is: one way in which an episode differs from those that a policy was trained on."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import mujoco
import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.transforms import Matrix


@dataclass(frozen=True)
class Scene:
    """A compiled world as shifts see it.

    Attributes:
        model: The compiled model; its arrays are what the physics and the images are computed from.
        things: The numbers of the shapes of each thing of the task, by its name.
    """

    model: mujoco.MjModel
    things: Mapping[str, NDArray[np.int_]]


@dataclass(frozen=True)
class Start:
    """Where things are when an episode begins.

    Attributes:
        spots: (N, 3), x and y of each thing in the base frame and how far its farthest point is
            from there, metres.
        table_height: Of the table top above the plane z = 0, metres.
    """

    spots: NDArray[np.float64]
    table_height: float


@dataclass(frozen=True)
class Shot:
    """What a depth image was taken with, and when.

    Attributes:
        camera: Its name.
        time: Seconds since the episode began.
        intrinsics: (3, 3) in pixels.
    """

    camera: str
    time: float
    intrinsics: NDArray[np.float32]


class Shift(ABC):
    """One way in which episodes can differ; its strength is 0 for none to 1 for the strongest.

    What a shift draws comes from a stream of its own, so that nothing else of the episode depends
    on it.

    Attributes:
        name: Of the task option that gives its strength.
    """

    name: ClassVar[str]

    def touched(self, scene: Scene) -> Sequence[NDArray[Any]]:
        """Returns the arrays of the model that `apply` writes to; they are put back before the next episode."""
        del scene
        return ()

    @abstractmethod
    def apply(self, scene: Scene, start: Start, strength: float, rng: np.random.Generator) -> None:
        """Changes the world for the episode that begins.

        Args:
            scene: The world, as it was compiled but for the shifts that came before.
            start: Where things are.
            strength: Above 0, at most 1.
            rng: The shift's own source of randomness, the same for the same seed of the episode.
        """

    def measured(self, depth: NDArray[np.uint16], shot: Shot) -> NDArray[np.uint16]:
        """Returns what a camera delivers in place of the true depth (H, W), which it does not change."""
        del shot
        return depth

    def reported(self, T_base_camera: Matrix, camera: int) -> Matrix:
        """Returns the pose (4, 4) that the camera of that number is said to have, in the contract's convention."""
        del camera
        return T_base_camera
