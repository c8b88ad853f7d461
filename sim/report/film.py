"""Videos for people: the motion of an episode, drawn again by a camera that shows the workcell.

Images are lit, anti-aliased, with shadows, and framed on the workcell.
"""

import copy
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.environment.sensing import segments
from stringline.sim.evaluation.runner import Motion, read_motion, trace_of_video
from stringline.sim.rendering.opengl_context import drawing_context, open_graphics
from stringline.sim.report.report import Clip
from stringline.sim.robots.arm_appearance import RobotModel
from stringline.sim.rollout.rollout import encode
from stringline.sim.worlds.task_settings import TaskSettings
from stringline.sim.worlds.world_registry import is_third_party, open_world

SAMPLES = 4  # Per pixel. In software they take a third of the time of twice the resolution.
# A finer or smaller shadow map draws dots on the arms where their surface is along the light.
SHADOW_PIXELS = 1024
SHADOW_CLIP = 1.5
SHADOW_HEIGHT_M = 2.0
SLICES = 20
FOVY_DEG = 32.0
NEAR_M = 0.1
FAR_M = 200.0
MARGIN = 0.98  # Share of the image in which all points are.
GAMMA = 0.62  # Tables and arms are dark.
# Below the reach of the shadow map, whose border would be visible on it.
FLOOR_M = -3.0
FLOOR_HALF_M = 90.0
FLOOR_COLOUR = (0.62, 0.64, 0.67, 1.0)

Rgb = NDArray[np.uint8]
Vectors = NDArray[np.float64]

_BRIGHTER = np.round(255 * (np.arange(256) / 255) ** GAMMA).astype(np.uint8)
_SHADOW = int(mujoco.mjtRndFlag.mjRND_SHADOW)


@dataclass(frozen=True)
class View:
    """A perspective view with a vertical field of view of 32 degrees.

    Attributes:
        centre: (3,) point in the middle of the image, world frame, metres.
        distance: Distance from the camera to the centre, metres.
        azimuth_deg: Direction of view about z; 0 looks along x, 90 along y.
        elevation_deg: Direction of view above the horizon; negative looks down.
    """

    centre: Vectors
    distance: float
    azimuth_deg: float
    elevation_deg: float

    @classmethod
    def of(
        cls, points: Vectors, *, aspect: float, azimuth_deg: float, elevation_deg: float
    ) -> "View":
        """Returns the nearest view in a direction whose image has all points (N, 3).

        `aspect` is width by height. With axes to the right (x), up (y) and towards the camera (z),
        a point is in the image if |x - c_x| <= t_x (d - z) and |y - c_y| <= t_y (d - z), where t
        are the tangents of half the fields of view. The smallest d of each axis is that of two
        points on opposite edges of the image.
        """
        right, up, back = _axes(azimuth_deg, elevation_deg)
        tangent = MARGIN * np.tan(np.radians(FOVY_DEG) / 2)
        depth = points @ back
        x, d_x = _between(points @ right, depth, tangent * aspect)
        y, d_y = _between(points @ up, depth, tangent)
        middle = float(depth.mean())
        centre = x * right + y * up + middle * back
        return cls(centre, max(d_x, d_y) - middle, azimuth_deg, elevation_deg)


def _axes(azimuth_deg: float, elevation_deg: float) -> tuple[Vectors, Vectors, Vectors]:
    """Returns unit vectors (3,) to the right, up and towards the camera."""
    azimuth = np.radians(azimuth_deg)
    elevation = np.radians(elevation_deg)
    level = np.array([np.cos(azimuth), np.sin(azimuth), 0.0])
    right = np.array([np.sin(azimuth), -np.cos(azimuth), 0.0])
    forward = np.cos(elevation) * level + np.array([0.0, 0.0, np.sin(elevation)])
    return right, np.cross(right, forward), -forward


def _between(places: Vectors, depth: Vectors, tangent: float) -> tuple[float, float]:
    """Returns the centre and the smallest distance for places (N,) along one axis."""
    first = float((depth + places / tangent).max())
    last = float((depth - places / tangent).max())
    return tangent * (first - last) / 2, (first + last) / 2


class FilmRenderer:
    """Draws one model in one view; the model and its state do not change.

    Close it in the thread that made it.

    Raises:
        RuntimeError: OpenGL is not available; or the process was forked after an image was drawn.
    """

    def __init__(self, model: mujoco.MjModel, *, height: int, width: int, view: View) -> None:
        self._model = model
        self._rect = mujoco.MjrRect(0, 0, width, height)
        self._graphics = open_graphics(width, height)
        self._context = drawing_context(
            _finer(model, height, width), mujoco.mjtFontScale.mjFONTSCALE_100
        )
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._scene = mujoco.MjvScene(model, maxgeom=model.ngeom + 100)
        self._scene.flags[:] = 0
        self._scene.flags[_SHADOW] = 1
        self._option = mujoco.MjvOption()
        self._camera = mujoco.MjvCamera()
        self._camera.lookat[:] = view.centre
        self._camera.distance = view.distance
        self._camera.azimuth = view.azimuth_deg
        self._camera.elevation = view.elevation_deg

    def image(self, data: mujoco.MjData) -> Rgb:
        """Returns an image (H, W, 3) of a state."""
        kinds = int(mujoco.mjtCatBit.mjCAT_ALL)
        scene = self._scene
        mujoco.mjv_updateScene(self._model, data, self._option, None, self._camera, kinds, scene)
        self._add_floor()
        self._light()
        self._set_frustum()
        self._graphics.make_current()
        mujoco.mjr_render(self._rect, scene, self._context)
        pixels = np.empty((self._rect.height, self._rect.width, 3), dtype=np.uint8)
        mujoco.mjr_readPixels(pixels, None, self._rect, self._context)
        brighter: Rgb = _BRIGHTER[pixels[::-1]]
        return brighter

    def close(self) -> None:
        """Frees the graphics."""
        self._graphics.make_current()
        self._context.free()
        self._graphics.free()

    def _add_floor(self) -> None:
        """Adds a floor that fills the image behind the workcell."""
        mujoco.mjv_initGeom(
            self._scene.geoms[self._scene.ngeom],
            mujoco.mjtGeom.mjGEOM_BOX.value,
            np.array([FLOOR_HALF_M, FLOOR_HALF_M, 0.01]),
            np.array([0.0, 0.0, FLOOR_M]),
            np.eye(3).ravel(),
            np.array(FLOOR_COLOUR, dtype=np.float32),
        )
        self._scene.ngeom += 1

    def _light(self) -> None:
        """Makes directional lights cast shadows around the middle of the view."""
        middle = np.array([*self._camera.lookat[:2], 0.0])
        for light in self._scene.lights[: self._scene.nlight]:
            directional = int(light.type) == int(mujoco.mjtLightType.mjLIGHT_DIRECTIONAL)
            if directional and not light.headlight:
                direction = np.asarray(light.dir)
                light.castshadow = 1
                light.pos = middle - SHADOW_HEIGHT_M * direction / abs(direction[2])

    def _set_frustum(self) -> None:
        for eye in self._scene.camera:
            eye.frustum_near = NEAR_M
            eye.frustum_far = FAR_M
            eye.frustum_top = NEAR_M * np.tan(np.radians(FOVY_DEG) / 2)
            eye.frustum_bottom = -eye.frustum_top


def _finer(model: mujoco.MjModel, height: int, width: int) -> mujoco.MjModel:
    """Returns a copy of a model of `set_flat_rendering` with the quality of a film."""
    finer = copy.copy(model)
    finer.vis.quality.shadowsize = SHADOW_PIXELS
    finer.vis.quality.offsamples = SAMPLES
    finer.vis.quality.numslices = SLICES
    finer.vis.quality.numstacks = SLICES // 2
    finer.vis.map.shadowclip = SHADOW_CLIP
    finer.vis.global_.offheight = height
    finer.vis.global_.offwidth = width
    return finer


logger = logging.getLogger(__name__)

WIDTH = 640
HEIGHT = 360
ELEVATION_DEG = -26.0
FRAMED_FRAMES = 20  # Frames of an episode whose arms are in the image; the others are between them.
LOWEST_M = -0.1  # Parts of the arms below, such as stands, may be outside of the image.
_SIDES = np.concatenate([np.eye(3), -np.eye(3)])


def with_films(clips: Sequence[Clip], task: TaskSettings, robot_model: RobotModel) -> list[Clip]:
    """Returns clips with films: new files in the folder `films` beside the videos.

    A film shows the motion of an episode, read from its trace, in a new world of the same task,
    options and seed. So observations and results do not depend on films. Clips of third-party
    tasks, and those without a recorded motion, stay as they are; so do all clips, with a warning,
    if OpenGL is not available in this process.
    """
    motions = [read_motion(trace_of_video(clip.path)) for clip in clips]
    if is_third_party(task.name) or all(motion is None for motion in motions):
        return list(clips)
    missing = sum(not _is_current(clip) for clip in clips)
    if missing:
        logger.info("Rendering %d videos for the report; rendering=fast omits them.", missing)
    world = open_world(
        task.name,
        cameras=(),
        control_hz=task.control_hz,
        robot_model=robot_model,
        embodiment=task.embodiment,
    )
    assert isinstance(world, TaskEnvironment)
    try:
        return [
            clip if motion is None else replace(clip, film=_film(world, clip, motion, task))
            for clip, motion in zip(clips, motions, strict=True)
        ]
    except RuntimeError as error:
        logger.warning("The report has no videos of rendering=pretty. %s", error)
        return list(clips)
    finally:
        world.close()


def _film(world: TaskEnvironment, clip: Clip, motion: Motion, task: TaskSettings) -> Path:
    """Draws the film of a clip, unless the file is current."""
    path = _path(clip)
    if _is_current(clip):
        return path
    world.begin(clip.result.seed, task.options)
    path.parent.mkdir(exist_ok=True)
    frame_hz = Fraction(task.frame_hz).limit_denominator(1000)
    encode(path, draw_film(world, motion.positions), frame_hz, (HEIGHT, WIDTH))
    return path


def _path(clip: Clip) -> Path:
    return clip.path.parent / "films" / clip.path.name


def _is_current(clip: Clip) -> bool:
    """Returns whether the film of a clip is newer than its video."""
    path = _path(clip)
    return path.is_file() and path.stat().st_mtime >= clip.path.stat().st_mtime


def draw_film(
    world: TaskEnvironment,
    positions: NDArray[np.float64],
    *,
    height: int = HEIGHT,
    width: int = WIDTH,
) -> Iterator[NDArray[np.uint8]]:
    """Yields the images (H, W, 3) of joint positions (F, nq) in a world that begins an episode.

    The state of the world is not changed.

    Raises:
        RuntimeError: OpenGL is not available; or the process was forked after an image was drawn.
    """
    model = world.physics.model.ptr
    data = mujoco.MjData(model)
    chosen = np.linspace(0, len(positions) - 1, FRAMED_FRAMES).round().astype(int)
    extents = [_extent(world, _moved(model, data, positions[frame])) for frame in np.unique(chosen)]
    view = View.of(
        np.concatenate(extents),
        aspect=width / height,
        azimuth_deg=world.task.cell.azimuth_deg,
        elevation_deg=ELEVATION_DEG,
    )
    renderer = FilmRenderer(model, height=height, width=width, view=view)
    try:
        for row in positions:
            yield renderer.image(_moved(model, data, row))
    finally:
        renderer.close()


def _moved(
    model: mujoco.MjModel, data: mujoco.MjData, positions: NDArray[np.float64]
) -> mujoco.MjData:
    """Sets the positions (nq,) and the poses that follow."""
    data.qpos[:] = positions
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)  # The lights need it.
    mujoco.mj_camlight(model, data)
    return data


def _extent(world: TaskEnvironment, data: mujoco.MjData) -> NDArray[np.float64]:
    """Returns points (N, 3) around the arms and the corners of the table, world frame, metres."""
    cell = world.task.cell
    x, y = cell.table_centre
    half_x, half_y = cell.table_half
    corners = [
        (x + a * half_x, y + b * half_y, world.task.table_height) for a in (-1, 1) for b in (-1, 1)
    ]
    found = segments(world.task, world.physics)
    arms = (found.of_geom > 1) & (found.of_geom < found.first_object)
    reach = world.physics.model.ptr.geom_rbound[arms, None]
    around = np.concatenate([data.geom_xpos[arms] + reach * side for side in _SIDES])
    return np.concatenate([corners, around[around[:, 2] > LOWEST_M]])
