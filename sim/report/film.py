"""Videos for people: the motion of an episode, drawn again by a camera that shows the workcell."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.environment.world_cameras import segments
from stringline.sim.evaluation.trace import Motion, read_motion, trace_of_video
from stringline.sim.rendering.film_renderer import FilmRenderer, View
from stringline.sim.report.report import Clip
from stringline.sim.robots.arm_appearance import RobotModel
from stringline.sim.rollout.video import encode
from stringline.sim.worlds.task_settings import TaskSettings
from stringline.sim.worlds.world_registry import is_third_party, open_world

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
