"""Images of rooms: colours, depth, and the object of each pixel."""

import atexit
import weakref
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from stringline.sim.rendering.opengl_context import FORKED, GraphicsContext, forked, open_graphics
from stringline.sim.scenes.room_model import RoomModel
from stringline.sim.scenes.solids import Vectors

NEAR_M = 0.05
FAR_M = 20.0
_DRAWN = 0
_HIDDEN = 5
_IDS = (int(mujoco.mjtRndFlag.mjRND_SEGMENT), int(mujoco.mjtRndFlag.mjRND_IDCOLOR))
_OFF = tuple(
    int(flag)
    for flag in (
        mujoco.mjtRndFlag.mjRND_SHADOW,
        mujoco.mjtRndFlag.mjRND_SKYBOX,
        mujoco.mjtRndFlag.mjRND_REFLECTION,
    )
)

Ids = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class View:
    """A pinhole camera in a room.

    Attributes:
        T_world_camera: (4, 4), camera to room; x right, y down, z forward.
        intrinsics: (3, 3) in pixels.
        height: Rows.
        width: Columns.
    """

    T_world_camera: Vectors
    intrinsics: Vectors
    height: int
    width: int

    def widened(self) -> "View":
        """Returns the view with as many rows and columns again around the image."""
        intrinsics = self.intrinsics.copy()
        intrinsics[:2, 2] += (self.width / 2, self.height / 2)
        return View(self.T_world_camera, intrinsics, 2 * self.height, 2 * self.width)


class RoomRenderer:
    """Draws one room after the other in one OpenGL context; use one per process.

    `largest` are rows and columns of the largest image.
    """

    def __init__(self, largest: tuple[int, int]) -> None:
        self._largest = largest
        self._graphics: GraphicsContext | None = None
        self._context: mujoco.MjrContext | None = None
        self._option = mujoco.MjvOption()
        self._option.geomgroup[:] = 0
        self._option.geomgroup[_DRAWN] = 1
        self._camera = mujoco.MjvCamera()
        self._room: RoomModel
        self._scene: mujoco.MjvScene

    def open(self, room: RoomModel) -> None:
        """Hands a room to OpenGL; images show this room until the next one.

        Raises:
            RuntimeError: OpenGL is not available; or this process was forked after the first image.
        """
        if self._graphics is None:
            self._graphics = open_graphics(self._largest[1], self._largest[0])
            atexit.register(_close, weakref.ref(self))
        elif forked():
            raise RuntimeError(FORKED)
        self._graphics.make_current()
        self._free_context()
        self._room = room
        context = mujoco.MjrContext(room.model, mujoco.mjtFontScale.mjFONTSCALE_50.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, context)
        context.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR.value
        self._context = context
        self._scene = mujoco.MjvScene(room.model, maxgeom=room.model.ngeom + 10)
        for flag in _OFF:
            self._scene.flags[flag] = 0

    def colours(self, view: View) -> NDArray[np.uint8]:
        """Returns colours (H, W, 3), each the mean of 2 x 2 samples."""
        self._look(view)
        height = view.height
        width = view.width
        fine = mujoco.MjrRect(0, 0, 2 * width, 2 * height)
        mujoco.mjr_render(fine, self._scene, self._context)
        samples = np.empty((2 * height, 2 * width, 3), np.uint8)
        mujoco.mjr_readPixels(samples, None, fine, self._context)
        blocks = samples.reshape(height, 2, width, 2, 3)
        mean = (blocks.sum(axis=(1, 3), dtype=np.uint16) + 2) // 4
        return np.ascontiguousarray(mean[::-1].astype(np.uint8))

    def objects(self, view: View) -> tuple[Ids, NDArray[np.uint16]]:
        """Returns object numbers and depth (H, W).

        The number is 1 + the index of the asset, 0 for the room. Depth is along the optical axis in
        millimetres, 0 where nothing is within range.
        """
        self._look(view)
        numbers = self._numbers(view)
        depth = np.empty((view.height, view.width), np.float32)
        rect = mujoco.MjrRect(0, 0, view.width, view.height)
        mujoco.mjr_readPixels(None, depth, rect, self._context)
        return numbers, _millimetres(depth[::-1])

    def alone(self, view: View, number: int) -> NDArray[np.bool_]:
        """Returns the pixels (H, W) of one object if nothing hides it."""
        groups = self._room.model.geom_group
        groups[:] = np.where(self._room.owners == number, _DRAWN, _HIDDEN)
        try:
            self._look(view)
            found: NDArray[np.bool_] = self._numbers(view) == number
            return found
        finally:
            groups[:] = _DRAWN

    def close(self) -> None:
        """Frees the context; the next `open` would make another."""
        if self._graphics is not None and not forked():
            self._graphics.make_current()
            self._free_context()
            self._graphics.free()
        self._graphics = None

    def _free_context(self) -> None:
        if self._context is not None:
            self._context.free()
        self._context = None

    def _look(self, view: View) -> None:
        """Updates the scene, and sets its camera to a view."""
        kinds = int(mujoco.mjtCatBit.mjCAT_ALL)
        room = self._room
        mujoco.mjv_updateScene(
            room.model, room.data, self._option, None, self._camera, kinds, self._scene
        )
        (fx, _, cx), (_, fy, cy) = view.intrinsics[:2]
        left = -cx / fx * NEAR_M
        right = (view.width - cx) / fx * NEAR_M
        for camera in self._scene.camera:
            camera.pos = view.T_world_camera[:3, 3]
            camera.forward = view.T_world_camera[:3, 2]
            camera.up = -view.T_world_camera[:3, 1]
            camera.frustum_near = NEAR_M
            camera.frustum_far = FAR_M
            camera.frustum_center = (left + right) / 2
            camera.frustum_width = (right - left) / 2  # Used as the half width.
            camera.frustum_top = cy / fy * NEAR_M
            camera.frustum_bottom = (cy - view.height) / fy * NEAR_M

    def _numbers(self, view: View) -> Ids:
        scene = self._scene
        owners = self._room.owners
        for geom in scene.geoms[: scene.ngeom]:
            geom.segid = int(owners[geom.objid])  # Drawn as one more; those of -1 are not.
        for flag in _IDS:
            scene.flags[flag] = 1
        rect = mujoco.MjrRect(0, 0, view.width, view.height)
        mujoco.mjr_render(rect, scene, self._context)
        for flag in _IDS:
            scene.flags[flag] = 0
        pixels = np.empty((view.height, view.width, 3), np.uint8)
        mujoco.mjr_readPixels(pixels, None, rect, self._context)
        low, middle, high = np.moveaxis(pixels[::-1].astype(np.int32), -1, 0)
        drawn = low + (middle << 8) + (high << 16)
        return np.asarray(np.maximum(drawn - 1, 0), np.int32)


def _close(reference: weakref.ref[RoomRenderer]) -> None:
    renderer = reference()
    if renderer is not None:
        renderer.close()


def _millimetres(buffer: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Converts the depth buffer (H, W), 1 at the near and 0 at the far plane, to millimetres.

    A perspective projection stores (near far / z - near) / (far - near).
    """
    value = buffer.astype(np.float64)
    metres = NEAR_M * FAR_M / (NEAR_M + value * (FAR_M - NEAR_M))
    return np.where(value > 0, np.rint(1000 * metres), 0).astype(np.uint16)
