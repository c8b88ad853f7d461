"""Pictures and depth of a MuJoCo world from one drawing pass, without a screen and fast on a CPU.

OpenGL is first touched when the first picture is asked for, in the process that asks: a context does not survive a fork.
"""

import atexit
import os
import platform
import weakref
from collections.abc import Callable
from typing import Protocol

import mujoco
import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

Rgb = NDArray[np.uint8]
Depth = NDArray[np.uint16]

DEPTH_UNIT_M = 0.001
FARTHEST_M = 2.5  # A depth camera of this kind returns nothing beyond.
NEAR_M, FAR_M = 0.01, 5.0

NO_GRAPHICS = (
    "No OpenGL for drawing pictures ({reason}). On a machine without a screen install EGL with Mesa "
    "(Debian, Ubuntu: `apt install libegl1 libgl1 libgl1-mesa-dri`) and set MUJOCO_GL=egl; "
    "on a desktop unset MUJOCO_GL. Without pictures, tasks still run: ask for no cameras."
)


class GraphicsContext(Protocol):
    """An OpenGL context, as MuJoCo's back ends offer it."""

    def make_current(self) -> None:
        """Makes it the one that calls of this thread go to."""

    def free(self) -> None:
        """Gives it back."""


def set_flat_rendering(root: mjcf.RootElement, *, largest_picture: int = 1024) -> None:
    """Makes a model cheap to draw: no shadows, no multi-sampling, coarse curves. Shadows alone would cost ten times the rest.

    Args:
        root: The model, before it is compiled.
        largest_picture: Rows and columns that the drawing buffer must hold.
    """
    root.visual.quality.shadowsize = 0
    root.visual.quality.offsamples = 0
    root.visual.quality.numslices = 12
    root.visual.quality.numstacks = 8
    root.visual.quality.numquads = 2
    root.visual.map.znear, root.visual.map.zfar = NEAR_M, FAR_M
    getattr(root.visual, "global").offwidth = largest_picture
    getattr(root.visual, "global").offheight = largest_picture
    root.statistic.extent = 1.0  # Near and far are multiples of it.
    root.visual.headlight.ambient = (0.35, 0.35, 0.35)
    root.visual.headlight.diffuse = (0.3, 0.3, 0.3)
    root.visual.headlight.specular = (0.0, 0.0, 0.0)


def intrinsics(height: int, width: int, fovy_deg: float) -> NDArray[np.float32]:
    """Returns the pinhole matrix (3, 3) in pixels; the centre of the picture is the principal point."""
    focal = height / 2 / np.tan(np.radians(fovy_deg) / 2)
    return np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]], dtype=np.float32)


class Renderer:
    """Draws one model. Make one per process and model, and keep it.

    Args:
        model: The compiled model, see `set_flat_rendering`.
        height: Rows of the pictures.
        width: Columns of the pictures.
    """

    def __init__(self, model: mujoco.MjModel, height: int, width: int) -> None:
        buffer = model.vis.global_
        if not 0 < height <= buffer.offheight or not 0 < width <= buffer.offwidth:
            raise ValueError(
                f"A picture of {height}x{width} was asked for; allowed: 1x1 to {buffer.offheight}x{buffer.offwidth}."
            )
        self._model = model
        self._rect = mujoco.MjrRect(0, 0, width, height)
        self._depth = np.empty((height, width), dtype=np.float32)
        self._rgb = np.empty((height, width, 3), dtype=np.uint8)
        self._graphics: GraphicsContext | None = None
        self._scene: mujoco.MjvScene
        self._context: mujoco.MjrContext
        self._option = mujoco.MjvOption()
        self._camera = mujoco.MjvCamera()

    def update(self, data: mujoco.MjData) -> None:
        """Takes over where everything is now.

        Raises:
            RuntimeError: There is no OpenGL; says what to install.
        """
        if self._graphics is None:
            self._open()
        free, all_kinds = mujoco.MjvCamera(), int(mujoco.mjtCatBit.mjCAT_ALL)
        mujoco.mjv_updateScene(self._model, data, self._option, None, free, all_kinds, self._scene)
        self._data = data

    def picture(self, camera: int) -> tuple[Rgb, Depth]:
        """Draws what the camera of that number saw at the last `update`.

        Returns:
            Colours (H, W, 3) and depth (H, W) along the optical axis in millimetres, 0 where nothing is within range.
        """
        assert self._graphics is not None, "update comes first"
        self._graphics.make_current()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED.value
        self._camera.fixedcamid = camera
        mujoco.mjv_updateCamera(self._model, self._data, self._camera, self._scene)
        mujoco.mjr_render(self._rect, self._scene, self._context)
        mujoco.mjr_readPixels(self._rgb, self._depth, self._rect, self._context)
        return self._rgb[::-1].copy(), _millimetres(self._depth[::-1])

    def close(self) -> None:
        """Gives the context back; the next `update` would make another."""
        if self._graphics is not None:
            self._graphics.make_current()
            self._context.free()
            self._graphics.free()
            self._graphics = None

    def _open(self) -> None:
        self._graphics = open_graphics(self._rect.width, self._rect.height)
        # Registered after the driver's own end, so it comes before it: a context that outlives its driver complains at exit.
        atexit.register(_close, weakref.ref(self))
        self._graphics.make_current()
        self._context = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._context.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR.value
        self._scene = mujoco.MjvScene(self._model, maxgeom=1000)
        for flag in (mujoco.mjtRndFlag.mjRND_SKYBOX, mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._scene.flags[int(flag)] = 0


def _close(reference: weakref.ref[Renderer]) -> None:
    renderer = reference()
    if renderer is not None:
        renderer.close()


def open_graphics(width: int, height: int) -> GraphicsContext:
    """Makes an OpenGL context: the one that MUJOCO_GL names, EGL where it names none and there is no screen.

    Raises:
        RuntimeError: There is none; says what to install.
    """
    try:
        context = _back_end()(width, height)
        context.make_current()
    except Exception as error:  # Each back end fails in its own way, from AttributeError to OSError.
        raise RuntimeError(NO_GRAPHICS.format(reason=f"{type(error).__name__}: {error}")) from error
    return context


def _back_end() -> Callable[[int, int], GraphicsContext]:
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or platform.system() != "Linux"
    if os.environ.get("MUJOCO_GL") or screen:
        context: Callable[[int, int], GraphicsContext] = mujoco.GLContext
        return context
    from mujoco.egl import GLContext  # Where EGL is missing, its import fails: it must not be a condition of importing this.

    headless: Callable[[int, int], GraphicsContext] = GLContext
    return headless


def _millimetres(buffer: NDArray[np.float32]) -> Depth:
    """Turns the depth buffer (H, W), 1 at the near plane and 0 at the far one, into millimetres.

    A perspective projection stores (near far / z - near) / (far - near), so z = near far / (near + buffer (far - near)).
    """
    metres = NEAR_M * FAR_M / (NEAR_M + buffer.astype(np.float64) * (FAR_M - NEAR_M))
    return np.where(metres <= FARTHEST_M, np.rint(metres / DEPTH_UNIT_M), 0).astype(np.uint16)
