"""Images, depth and geometry of third-party cameras, rendered here from their physics."""

from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.transforms import Matrix
from stringline.sim.environment.world_cameras import camera_pose
from stringline.sim.rendering.rendering import (
    FAR_M,
    LARGEST_IMAGE,
    NEAR_M,
    Renderer,
    intrinsics,
)
from stringline.sim.worlds.adapter import CameraView


class ThirdPartyCameras:
    """Renders cameras of a third-party environment, by their names in the contract.

    `size` has rows and columns of the images. `T_base_world` (4, 4) maps the frame of the
    environment to the base of the embodiment.

    Raises:
        ValueError: A camera is unknown, or the size of the images is out of range.
    """

    def __init__(
        self,
        names: Sequence[str],
        views: Mapping[str, CameraView],
        size: tuple[int, int],
        T_base_world: Matrix,
    ) -> None:
        for name in names:
            if name not in views:
                raise unknown_name("camera", name, views)
        if not all(0 < pixels <= LARGEST_IMAGE for pixels in size):
            got = "x".join(map(str, size))
            most = f"{LARGEST_IMAGE}x{LARGEST_IMAGE}"
            raise ValueError(f"The image size is {got}; allowed: 1x1 to {most}.")
        self._views = {name: views[name] for name in names}
        self._size = size
        self._T_base_world = T_base_world
        self._intrinsics = {
            name: intrinsics(*size, view.fovy_deg) for name, view in self._views.items()
        }
        self._model: mujoco.MjModel | None = None
        self._numbers = dict[str, int]()
        self._renderer: Renderer | None = None

    def look_at(self, physics: Any) -> None:
        """Prepares rendering if the physics has a new model."""
        model = physics.model.ptr
        if model is self._model:
            return
        self.close()
        make_flat(model)
        kind = mujoco.mjtObj.mjOBJ_CAMERA
        self._numbers = {
            name: mujoco.mj_name2id(model, kind, view.camera) for name, view in self._views.items()
        }
        for name, number in self._numbers.items():
            if number < 0:  # MuJoCo would render its own free camera.
                raise unknown_name(
                    "camera of the third-party model",
                    self._views[name].camera,
                    _camera_names(model),
                )
            model.cam_fovy[number] = self._views[name].fovy_deg
            model.cam_sensorsize[number] = 0.0  # Otherwise its aspect ratio stretches the image.
        self._model = model
        self._renderer = Renderer(model, *self._size)

    def frame(self, physics: Any, time: float) -> dict[str, Array]:
        """Renders images and geometry of all cameras at the current `time`, seconds."""
        self.look_at(physics)
        assert self._renderer is not None
        found: dict[str, Array] = {}
        if self._numbers:
            self._renderer.update(physics.data.ptr)
        for name, number in self._numbers.items():
            found[f"rgb/{name}"], found[f"depth/{name}"] = self._renderer.image(number)
            found[f"time/{name}"] = np.asarray(time)
            found[f"intrinsics/{name}"] = self._intrinsics[name]
            T_base_camera = self._T_base_world @ camera_pose(physics.data, number)
            found[f"T_base_camera/{name}"] = T_base_camera.astype(np.float32)
        return found

    def close(self) -> None:
        """Frees the graphics."""
        if self._renderer is not None:
            self._renderer.close()
        self._renderer = self._model = None


def make_flat(model: mujoco.MjModel) -> None:
    """Turns off shadows and multi-sampling of a model, without effect on its dynamics."""
    model.vis.quality.shadowsize = model.vis.quality.offsamples = 0
    model.vis.map.znear = NEAR_M
    model.vis.map.zfar = FAR_M
    model.vis.global_.offwidth = model.vis.global_.offheight = LARGEST_IMAGE
    model.stat.extent = 1.0  # Near and far planes are multiples of the extent.


def _camera_names(model: mujoco.MjModel) -> list[str]:
    """Returns the names of a model's cameras."""
    return [
        str(mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_CAMERA, number))
        for number in range(model.ncam)
    ]
