"""The cameras of a world: images, segments and geometry by the keys of the contract.

The segments of an image: nothing, the table, the arms and the objects on the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.embodiments.mjcf_parts import CAMERA_FLIP
from stringline.datasets.embodiments.transforms import Matrix, pose
from stringline.sim.looks.look_slots import FLOOR, WALLS
from stringline.sim.rendering.rendering import Renderer, Rendering, intrinsics
from stringline.sim.shifts.shift import Shot
from stringline.sim.tasks.tabletop import TabletopTask

NOTHING = "nothing"
TABLE = "table"


@dataclass(frozen=True)
class Segments:
    """The numbered segments of one task.

    Attributes:
        names: Names by number: 0 `nothing`, 1 `table`, then the arms (2 `left` and 3 `right` if
            there are two), then the task's objects in the order in which the task adds them, so
            that a task's numbers never change.
        of_geom: (G,), segment of each geom of the compiled model.
        first_object: Number of the task's first object.
    """

    names: tuple[str, ...]
    of_geom: NDArray[np.uint8]
    first_object: int

    @property
    def objects(self) -> NDArray[np.bool_]:
        """(G,), whether each geom belongs to an object of the task."""
        return self.of_geom >= self.first_object


def segments(task: TabletopTask, physics: mjcf.Physics) -> Segments:
    """Numbers the segments of a task; its entities besides the robot are its objects."""
    names = [NOTHING, TABLE, *task.embodiment.arms]
    of_geom = np.full(physics.model.ngeom, names.index(TABLE), dtype=np.uint8)
    for name in (FLOOR, *WALLS):
        of_geom[physics.model.name2id(name, "geom")] = names.index(NOTHING)
    for arm in task.embodiment.arms:
        of_geom[_numbers(physics, task.robot.shapes(arm))] = names.index(arm)
    first_object = len(names)
    for entity in task.root_entity.iter_entities(exclude_self=True):
        if entity is not task.robot:
            of_geom[_numbers(physics, entity.mjcf_model.find_all("geom"))] = len(names)
            names.append(str(entity.mjcf_model.model))
    return Segments(tuple(names), of_geom, first_object)


def _numbers(physics: mjcf.Physics, shapes: list[mjcf.Element]) -> NDArray[np.int_]:
    return np.array(
        [physics.model.name2id(shape.full_identifier, "geom") for shape in shapes], dtype=int
    )


def common_image_size(cameras: Sequence[Camera]) -> int | tuple[int, int]:
    """Returns the image size that a world needs for the cameras of a policy.

    It is one number for square images, else rows and columns; without cameras 128.

    Raises:
        ValueError: The cameras have images of several sizes.
    """
    sizes = {(camera.height, camera.width) for camera in cameras} or {(128, 128)}
    if len(sizes) > 1:
        got = ", ".join(f"{camera.name} {camera.height}x{camera.width}" for camera in cameras)
        raise ValueError(
            f"The policy needs images of several sizes ({got}); worlds draw all images in one size."
        )
    rows, columns = sizes.pop()
    return rows if rows == columns else (rows, columns)


class Cameras:
    """Draws the images of a task's cameras, with its shifts of depth and camera poses.

    `size` has rows and columns of the images, `segments` the names of all segments.

    Raises:
        ValueError: There is no such camera or rendering mode, or the size is not allowed.
    """

    def __init__(
        self,
        physics: mjcf.Physics,
        task: TabletopTask,
        names: Sequence[str],
        size: tuple[int, int],
        *,
        segmentation: bool,
        rendering: Rendering,
    ) -> None:
        fovy = {mount.name: mount.fovy_deg for mount in task.embodiment.cameras}
        for name in names:
            if name not in fovy:
                raise unknown_name("camera", name, fovy)
        parts = segments(task, physics)
        self.segments = parts.names
        self._physics = physics
        self._segmentation = segmentation
        self._shifts = task.shifts
        self._numbers = {name: _number(physics, name) for name in names}
        shown = names or (["overhead"] if "overhead" in fovy else list(fovy))
        self._shown = _number(physics, shown[0])
        self._intrinsics = {name: intrinsics(*size, fovy[name]) for name in names}
        self._renderer = Renderer(
            physics.model.ptr,
            *size,
            rendering=rendering,
            casters=parts.objects,
            segments=parts.of_geom if segmentation else None,
            scenery=task.shifts.looks.scenery,
        )

    def frame(self, time: float) -> dict[str, Array]:
        """Returns current images and geometry of all cameras, with the capture time `time`."""
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
                camera_pose(self._physics.data, number), number
            ).astype(np.float32)
        return found

    def image(self) -> NDArray[np.uint8]:
        """Returns an image (H, W, 3) of the first camera, or else of the overhead one."""
        self._renderer.update(self._physics.data.ptr)
        return self._renderer.image(self._shown)[0]

    def close(self) -> None:
        """Frees the graphics."""
        self._renderer.close()


def camera_pose(data: Any, number: int) -> Matrix:
    """Returns the current pose (4, 4) of a camera in the world frame, by the contract's axes."""
    return pose(data.cam_xpos[number], data.cam_xmat[number].reshape(3, 3)) @ CAMERA_FLIP


def _number(physics: mjcf.Physics, name: str) -> int:
    """Returns the number of a camera; its name may have prefixes: `aloha/left/wrist_left`."""
    model = physics.model
    names = [model.id2name(number, "camera").split("/")[-1] for number in range(model.ncam)]
    return names.index(name)
