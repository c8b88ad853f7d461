"""The cameras of a world: what they show, by the keys of the contract."""

from collections.abc import Sequence

import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.contract.arguments import Range, unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.embodiment import CameraMount
from stringline.datasets.embodiments.mjcf_parts import CAMERA_FLIP
from stringline.datasets.embodiments.transforms import Matrix, pose
from stringline.sim.environment.segments import Segments
from stringline.sim.rendering.rendering import Renderer, Rendering, intrinsics
from stringline.sim.shifts.shift import Shot
from stringline.sim.shifts.shift_catalogue import Shifts


def checked_image_size(image_size: int | Sequence[int]) -> tuple[int, int]:
    """Returns rows and columns of images.

    Args:
        image_size: One number for both, or two.

    Raises:
        ValueError: There are neither one nor two, or they are not whole.
    """
    sides = [image_size] * 2 if isinstance(image_size, int | float) else list(image_size)
    if len(sides) != 2 or not all(side in Range(whole=True) for side in sides):
        raise ValueError(
            f"image_size is {image_size!r}; allowed: a whole number, or two for rows and columns."
        )
    return sides[0], sides[1]


class Cameras:
    """Draws what the robot's cameras see.

    Args:
        physics: The compiled world.
        mounts: All cameras of the embodiment.
        names: Which of them to draw.
        size: Rows and columns of the images.
        segments: What the shapes of the world belong to.
        segmentation: Whether `frame` holds segmentations.
        rendering: `fast`, or `pretty` for videos.
        shifts: What depth is measured by, and whether cameras are where they are said to be; None:
            true depth and true poses.

    Raises:
        ValueError: There is no such camera, size or way of rendering.
    """

    def __init__(
        self,
        physics: mjcf.Physics,
        mounts: Sequence[CameraMount],
        names: Sequence[str],
        size: tuple[int, int],
        segments: Segments,
        *,
        segmentation: bool = False,
        rendering: Rendering = "fast",
        shifts: Shifts | None = None,
    ) -> None:
        fovy = {mount.name: mount.fovy_deg for mount in mounts}
        for name in names:
            if name not in fovy:
                raise unknown_name("camera", name, fovy)
        self._physics = physics
        self._segmentation = segmentation
        self._shifts = shifts or Shifts()
        self._numbers = {name: _number(physics, name) for name in names}
        shown = names or (["overhead"] if "overhead" in fovy else list(fovy))
        self._shown = _number(physics, shown[0])
        self._intrinsics = {name: intrinsics(*size, fovy[name]) for name in names}
        self._renderer = Renderer(
            physics.model.ptr,
            *size,
            rendering=rendering,
            casters=segments.things,
            segments=segments.of_geom if segmentation else None,
        )

    def frame(self, time: float) -> dict[str, Array]:
        """Returns images and geometry of all cameras, captured now, which is `time`."""
        found: dict[str, Array] = {}
        if self._numbers:
            self._renderer.update(self._physics.data.ptr)
        for name, number in self._numbers.items():
            found[f"rgb/{name}"], depth = self._renderer.image(number)
            found[f"depth/{name}"] = self._shifts.measured(
                depth, Shot(name, time, self._intrinsics[name])
            )
            if self._segmentation:
                found[f"segmentation/{name}"] = self._renderer.segmentation(number)
            found[f"time/{name}"] = np.asarray(time)
            found[f"intrinsics/{name}"] = self._intrinsics[name]
            found[f"T_base_camera/{name}"] = self._shifts.reported(
                self._pose(number), number
            ).astype(np.float32)
        return found

    def image(self) -> NDArray[np.uint8]:
        """Returns what the first camera sees now (H, W, 3); where there is none the overhead one, or any of the body."""
        self._renderer.update(self._physics.data.ptr)
        return self._renderer.image(self._shown)[0]

    def close(self) -> None:
        """Gives the graphics back."""
        self._renderer.close()

    def _pose(self, number: int) -> Matrix:
        data = self._physics.data
        return pose(data.cam_xpos[number], data.cam_xmat[number].reshape(3, 3)) @ CAMERA_FLIP


def _number(physics: mjcf.Physics, name: str) -> int:
    """Cameras of an attached model bear its name in front: `aloha/left/wrist_left`."""
    names = [
        physics.model.id2name(number, "camera").split("/")[-1]
        for number in range(physics.model.ncam)
    ]
    return names.index(name)
