"""Images, depth and segmentation of a MuJoCo world, without a screen, and fast on a CPU.

A shadow map costs 2 to 5 times all the rest of an image in software. A soft shadow is the shadow of
an ellipsoid around the shapes of a body, drawn as a flat translucent ellipse on the table. Textures
take one mipmap level per pixel, which costs less than MuJoCo's two.
"""

import atexit
import copy
import math
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import mujoco
import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.sim.rendering.opengl_context import (
    FORKED,
    GraphicsContext,
    drawing_context,
    forked,
    open_graphics,
)


def use_nearest_mipmap(
    model: mujoco.MjModel, context: mujoco.MjrContext, textures: Iterable[int]
) -> None:
    """Makes textures, by their numbers in the model, take the nearest level of their mipmap.

    MuJoCo interpolates between two levels, in software a tenth of the time of a textured image. An
    upload of a texture sets MuJoCo's filter again. The OpenGL context must be current.
    """
    # PyOpenGL takes the platform of the context at its import.
    from OpenGL import GL

    for number in textures:
        flat = model.tex_type[number] == mujoco.mjtTexture.mjTEXTURE_2D.value
        kind = GL.GL_TEXTURE_2D if flat else GL.GL_TEXTURE_CUBE_MAP
        GL.glBindTexture(kind, int(context.texture[number]))
        GL.glTexParameteri(kind, GL.GL_TEXTURE_MIN_FILTER, GL.GL_LINEAR_MIPMAP_NEAREST)
        GL.glBindTexture(kind, 0)


OPACITY = 0.38  # Of the shadow of a body on the table.
BLUR = 0.3  # Growth of a shadow's half lengths per metre above the table.
FADE_M = 0.12  # Height at which a shadow has half of its opacity.
HIGHEST_M = 0.4  # Bodies above cast no shadow that could be seen.
LIFT_M = 0.0004  # Above the table; the thickness is less, and depth has steps of 1 mm.
SMALLEST_M = 0.004

Vectors = NDArray[np.float64]
_ELLIPSOID = mujoco.mjtGeom.mjGEOM_ELLIPSOID.value


@dataclass(frozen=True)
class Caster:
    """A body that casts a shadow, with the box around its shapes in its own frame, metres."""

    body: int
    centre: Vectors
    half: Vectors


@dataclass
class Scenery:
    """Settings of an episode's images; the textures themselves are in the model.

    Attributes:
        textures: Numbers of textures that have changed since `version` grew.
        version: Grows with each change of textures.
        casters: Bodies with soft shadows.
        light: (3,), direction of the light that casts them.
        ground: (x, y, half x, half y, z) of the table top, metres.
    """

    textures: tuple[int, ...] = ()
    version: int = 0
    casters: Sequence[Caster] = ()
    light: Vectors = field(default_factory=lambda: np.array([0.0, 0.0, -1.0]))
    ground: tuple[float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0)

    def add_shadows(self, data: mujoco.MjData, scene: mujoco.MjvScene) -> None:
        """Appends the shadows at the current state to a scene, as far as it has room."""
        for caster in self.casters:
            turn = data.xmat[caster.body].reshape(3, 3)
            middle = data.xpos[caster.body] + turn @ caster.centre
            ellipse = self._ellipse(middle, turn * caster.half)
            if ellipse is not None and scene.ngeom < scene.maxgeom:
                shape = scene.geoms[scene.ngeom]
                mujoco.mjv_initGeom(shape, _ELLIPSOID, *ellipse)
                shape.segid = -1  # It belongs to no segment.
                scene.ngeom += 1

    def _ellipse(
        self, middle: Vectors, spread: Vectors
    ) -> tuple[Vectors, Vectors, Vectors, NDArray[np.float32]] | None:
        """Returns half lengths, place, axes (9,) and colour of the shadow of an ellipsoid.

        An ellipsoid {m + S u: |u| <= 1} has the shadow {P m + P S u} under the projection P along
        the light; its axes are the eigenvectors of P S S' P'.
        """
        x, y, half_x, half_y, top = self.ground
        above = middle[2] - top
        slope = self.light[:2] / self.light[2]  # Metres sideways per metre down.
        place = (*(middle[:2] - slope * above), top + LIFT_M)
        beside = abs(place[0] - x) > half_x or abs(place[1] - y) > half_y
        if beside or not 0 < above < HIGHEST_M:
            return None
        flat = spread[:2] - slope[:, None] * spread[2]
        (a, b), (_, c) = (flat @ flat.T).tolist()
        # Eigenvalues and eigenvectors of a symmetric matrix of two rows in closed form.
        radius = math.hypot((a - c) / 2, b)
        turn = math.atan2(2 * b, a - c) / 2
        cos = math.cos(turn)
        sin = math.sin(turn)
        half = [
            math.sqrt(max((a + c) / 2 + sign * radius, SMALLEST_M**2)) + BLUR * above
            for sign in (1, -1)
        ]
        opacity = OPACITY / (1 + above / FADE_M)
        colour = np.array((0.0, 0.0, 0.0, opacity), dtype=np.float32)
        axes = np.array((cos, -sin, 0.0, sin, cos, 0.0, 0.0, 0.0, 1.0))
        return np.array((*half, LIFT_M / 4)), np.array(place), axes, colour


Rgb = NDArray[np.uint8]
Depth = NDArray[np.uint16]
Segments = NDArray[np.uint8]
Rendering = Literal["fast", "pretty"]
RENDERINGS: tuple[Rendering, ...] = ("fast", "pretty")

DEPTH_UNIT_M = 0.001
FARTHEST_M = 2.5  # Range of the depth cameras.
NEAR_M = 0.01
FAR_M = 5.0
LARGEST_IMAGE = 1024  # Rows and columns.
SHADOW_PIXELS = 1024  # Rows and columns of the shadow map, which spans 2 x 2 m.
SHADOW_HEIGHT_M = 2.0  # Height of the light that casts shadows above the middle of the table.

_DECOR = int(mujoco.mjtCatBit.mjCAT_DECOR)
_SHADOW, _SEGMENT, _IDS = (
    int(flag)
    for flag in (
        mujoco.mjtRndFlag.mjRND_SHADOW,
        mujoco.mjtRndFlag.mjRND_SEGMENT,
        mujoco.mjtRndFlag.mjRND_IDCOLOR,
    )
)
_UNUSED = [
    int(flag) for flag in (mujoco.mjtRndFlag.mjRND_SKYBOX, mujoco.mjtRndFlag.mjRND_REFLECTION)
]


def set_flat_rendering(root: mjcf.RootElement) -> None:
    """Makes a model cheap to draw, before it is compiled: no shadows or multi-sampling.

    Shadows alone would cost ten times the rest. Curves are coarse.
    """
    root.visual.quality.shadowsize = 0
    root.visual.quality.offsamples = 0
    root.visual.quality.numslices = 12
    root.visual.quality.numstacks = 8
    root.visual.quality.numquads = 2
    root.visual.map.znear = NEAR_M
    root.visual.map.zfar = FAR_M
    getattr(root.visual, "global").offwidth = LARGEST_IMAGE
    getattr(root.visual, "global").offheight = LARGEST_IMAGE
    root.statistic.extent = 1.0  # The unit of near and far.
    root.visual.headlight.ambient = (0.35, 0.35, 0.35)
    root.visual.headlight.diffuse = (0.3, 0.3, 0.3)
    root.visual.headlight.specular = (0.0, 0.0, 0.0)


def intrinsics(height: int, width: int, fovy_deg: float) -> NDArray[np.float32]:
    """Returns the pinhole matrix (3, 3) in pixels; the principal point is the image's centre."""
    focal = height / 2 / np.tan(np.radians(fovy_deg) / 2)
    return np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]], dtype=np.float32)


def check_rendering(rendering: str) -> None:
    """Checks the name of a rendering mode.

    Raises:
        ValueError: There is no such mode.
    """
    if rendering not in RENDERINGS:
        raise unknown_name("rendering mode", rendering, RENDERINGS)


class Renderer:
    """Draws one model, prepared by `set_flat_rendering`. Use one renderer per process and model.

    A `pretty` image is for videos: colours are the mean of 2 x 2 samples per pixel, and objects
    cast shadows, all of them or those of the geoms `casters` (G,). Depth and segmentation are the
    same in both. `segments` (G,) has the segment of each geom, 0 to 255, for `segmentation`.
    `scenery` has what images show beyond the shapes of the model.

    Raises:
        ValueError: There is no such rendering mode, or the image's size is not allowed.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        height: int,
        width: int,
        *,
        rendering: Rendering = "fast",
        casters: NDArray[np.bool_] | None = None,
        segments: NDArray[np.uint8] | None = None,
        scenery: Scenery | None = None,
    ) -> None:
        check_rendering(rendering)
        most = model.vis.global_
        if not 0 < height <= most.offheight or not 0 < width <= most.offwidth:
            raise ValueError(
                f"The size of images is {height}x{width}; allowed: 1x1 to "
                f"{most.offheight}x{most.offwidth}."
            )
        self._model = model
        self._segments = segments
        self._scenery = Scenery() if scenery is None else scenery
        self._textures = 0  # Version of the textures that OpenGL has.
        self._pretty = rendering == "pretty"
        self._scale = 2 if rendering == "pretty" else 1
        self._casters = np.ones(model.ngeom, dtype=bool) if casters is None else casters
        self._rect = mujoco.MjrRect(0, 0, width, height)
        self._fine = mujoco.MjrRect(0, 0, self._scale * width, self._scale * height)
        self._depth = np.empty((height, width), dtype=np.float32)
        self._rgb = np.empty((height, width, 3), dtype=np.uint8)
        self._graphics: GraphicsContext | None = None
        self._scene: mujoco.MjvScene
        self._context: mujoco.MjrContext
        self._option = mujoco.MjvOption()
        self._camera = mujoco.MjvCamera()
        self._free = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED.value

    def update(self, data: mujoco.MjData) -> None:
        """Updates the scene to the current state.

        Raises:
            RuntimeError: OpenGL is not available; or this process was forked after the first image.
        """
        if self._graphics is None:
            self._open()
        elif forked():
            raise RuntimeError(FORKED)
        all_kinds = int(mujoco.mjtCatBit.mjCAT_ALL)
        mujoco.mjv_updateScene(
            self._model, data, self._option, None, self._free, all_kinds, self._scene
        )
        self._data = data
        self._update_scenery()
        if self._pretty or self._segments is not None:
            self._mark_geoms()
        if self._pretty:
            self._place_lights()
        else:
            self._scenery.add_shadows(data, self._scene)

    def image(self, camera: int) -> tuple[Rgb, Depth]:
        """Draws the image of a camera, by its number, at the last `update`.

        Returns colours (H, W, 3) and depth (H, W) along the optical axis in millimetres, 0 where
        nothing is within range.
        """
        self._look_through(camera)
        mujoco.mjr_render(self._rect, self._scene, self._context)
        if not self._pretty:
            mujoco.mjr_readPixels(self._rgb, self._depth, self._rect, self._context)
            return self._rgb[::-1].copy(), _millimetres(self._depth[::-1])
        mujoco.mjr_readPixels(None, self._depth, self._rect, self._context)
        return self._shaded(), _millimetres(self._depth[::-1])

    def segmentation(self, camera: int) -> Segments:
        """Draws the segment of each pixel (H, W) of a camera at the last `update`; 0 is nothing."""
        assert self._segments is not None, "segmentation needs segments"
        self._look_through(camera)
        self._scene.flags[_SEGMENT] = self._scene.flags[_IDS] = 1
        mujoco.mjr_render(self._rect, self._scene, self._context)
        self._scene.flags[_SEGMENT] = self._scene.flags[_IDS] = 0
        mujoco.mjr_readPixels(self._rgb, None, self._rect, self._context)
        return self._rgb[::-1, :, 0].copy()

    def close(self) -> None:
        """Frees the context; the next `update` would make another."""
        if self._graphics is not None and not forked():
            self._graphics.make_current()
            self._context.free()
            self._graphics.free()
        self._graphics = None

    def _open(self) -> None:
        graphics = open_graphics(self._fine.width, self._fine.height)
        model = self._model
        if self._pretty:
            model = copy.copy(model)
            model.vis.quality.shadowsize = SHADOW_PIXELS
            model.vis.global_.offwidth = self._fine.width
            model.vis.global_.offheight = self._fine.height
        self._context = drawing_context(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        self._graphics = graphics
        # Registered after the driver's own exit handler, hence called before it: a context that
        # outlives its driver reports errors at exit.
        atexit.register(_close, weakref.ref(self))
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._context.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR.value
        self._textures = self._scenery.version
        self._filter_textures()
        self._scene = mujoco.MjvScene(self._model, maxgeom=self._model.ngeom + 100)
        for flag in (*_UNUSED, _SHADOW):
            self._scene.flags[flag] = 0

    def _update_scenery(self) -> None:
        """Hands new textures to OpenGL."""
        scenery = self._scenery
        if scenery.version != self._textures:
            assert self._graphics is not None
            self._graphics.make_current()
            for number in scenery.textures:
                mujoco.mjr_uploadTexture(self._model, self._context, number)
            self._textures = scenery.version
            self._filter_textures()

    def _filter_textures(self) -> None:
        if self._scenery.textures and not self._pretty:
            use_nearest_mipmap(self._model, self._context, self._scenery.textures)

    def _look_through(self, camera: int) -> None:
        assert self._graphics is not None, "call update first"
        self._graphics.make_current()
        self._camera.fixedcamid = camera
        mujoco.mjv_updateCamera(self._model, self._data, self._camera, self._scene)

    def _shaded(self) -> Rgb:
        self._scene.flags[_SHADOW] = 1
        mujoco.mjr_render(self._fine, self._scene, self._context)
        self._scene.flags[_SHADOW] = 0
        height, width = self._depth.shape
        samples = np.empty((height, 2, width, 2, 3), dtype=np.uint8)
        mujoco.mjr_readPixels(
            samples.reshape(2 * height, 2 * width, 3), None, self._fine, self._context
        )
        mean: Rgb = ((samples.sum(axis=(1, 3), dtype=np.uint16) + 2) // 4).astype(np.uint8)
        return mean[::-1]

    def _mark_geoms(self) -> None:
        """Sets the numbers of segments, and marks geoms as decoration, which casts no shadows."""
        for geom in self._scene.geoms[: self._scene.ngeom]:
            if self._segments is not None:
                geom.segid = int(self._segments[geom.objid]) - 1  # Drawn as one more.
            if not self._casters[geom.objid]:
                geom.category = _DECOR

    def _place_lights(self) -> None:
        """Makes directional lights cast shadows; their position sets the shadow map's extent."""
        for light in self._scene.lights[: self._scene.nlight]:
            directional = int(light.type) == int(mujoco.mjtLightType.mjLIGHT_DIRECTIONAL)
            if directional and not light.headlight:
                light.castshadow = 1
                light.pos = -SHADOW_HEIGHT_M * np.asarray(light.dir) / abs(light.dir[2])


def _close(reference: weakref.ref[Renderer]) -> None:
    renderer = reference()
    if renderer is not None:
        renderer.close()


def _millimetres(buffer: NDArray[np.float32]) -> Depth:
    """Converts the depth buffer (H, W), 1 at the near and 0 at the far plane, to millimetres.

    A perspective projection stores (near far / z - near) / (far - near), so z = near far / (near +
    buffer (far - near)).
    """
    # In place from here on: new memory would take most of the time.
    value = np.multiply(buffer, FAR_M - NEAR_M, dtype=np.float64)
    value += NEAR_M
    np.divide(NEAR_M * FAR_M, value, out=value)
    near = value <= FARTHEST_M
    value /= DEPTH_UNIT_M
    depth = np.rint(value, out=value).astype(np.uint16)
    depth *= near
    return depth
