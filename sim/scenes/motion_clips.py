"""Labelled clips of motions: each room gives a clip and its exact reversal."""

import zlib
from dataclasses import dataclass, field, replace

import mujoco
import numpy as np

from stringline.datasets.contract.argument_checks import WHOLE, Range, unknown_name
from stringline.datasets.images.labelled_image import LabelledClip
from stringline.sim.scenes.labels import sensed
from stringline.sim.scenes.motions import LABELS, Choreography, stage_motion
from stringline.sim.scenes.room_model import RoomBuilder, RoomModel
from stringline.sim.scenes.room_renderer import RoomRenderer, View
from stringline.sim.scenes.rooms import Room
from stringline.sim.scenes.viewpoints import Optics, looking

HALVES_M = (1.5, 2.2)
DISTANCES_M = (0.55, 0.95)
ELEVATIONS_RAD = (0.3, 0.9)
ACROSS_RAD = 0.7  # Largest angle of a view from the normal of a motion along a line.
MOST_OBJECTS = 25
FRAMES = Range(least=2, most=256, whole=True)


@dataclass(frozen=True)
class MotionSettings:
    """What clips are drawn from.

    Attributes:
        pairs: Names in `LABELS`; room i shows pair i modulo their number.
        seed: Seed of all rooms.
        frames: Number of frames of a clip.
        optics: Sizes of images and ranges of cameras.

    Raises:
        ValueError: A name does not exist, or a number is outside of its range.
    """

    pairs: tuple[str, ...] = tuple(LABELS)
    seed: int = 0
    frames: int = 8
    optics: Optics = field(default_factory=Optics)

    def __post_init__(self) -> None:
        if not self.pairs:
            raise ValueError(f"motions is []; allowed: any of {', '.join(LABELS)}.")
        for pair in self.pairs:
            if pair not in LABELS:
                raise unknown_name("pair of motions", pair, LABELS)
        WHOLE.check(seed=self.seed)
        FRAMES.check(frames=self.frames)
        self.optics.check()


class MotionClips:
    """Draws the clips of rooms; use one per process."""

    def __init__(self, settings: MotionSettings) -> None:
        self.settings = settings
        height, width = settings.optics.size
        self._largest = (2 * height, 2 * width)
        self._renderer = RoomRenderer(self._largest)

    def room(self, number: int) -> list[LabelledClip]:
        """Returns the clip of room `number` and its reversal."""
        settings = self.settings
        pair = settings.pairs[number % len(settings.pairs)]
        rng = np.random.default_rng([zlib.crc32(pair.encode()), settings.seed, number])
        half = (float(rng.uniform(*HALVES_M)), float(rng.uniform(*HALVES_M)))
        room = Room(rng, half, float(rng.uniform()), MOST_OBJECTS)
        motion = stage_motion(pair, room)
        model = self._model(room, motion, rng)
        view = _view(motion, settings.optics, rng)
        labels = LABELS[pair]
        if pair == "pass" and _moves_left(motion, view):
            labels = labels[::-1]
        identity = f"{pair}-{settings.seed}-{number:06d}"
        rgb, depth = self._frames(model, motion, view, rng)
        clip = LabelledClip(
            rgb=rgb,
            depth=depth,
            intrinsics=view.intrinsics,
            T_world_camera=np.repeat(view.T_world_camera[None], settings.frames, axis=0),
            label=labels[0],
            reverse_label=labels[1],
            room=identity,
            source=identity,
        )
        return [clip, reversed_clip(clip)]

    def close(self) -> None:
        """Frees the graphics."""
        self._renderer.close()

    def _model(self, room: Room, motion: Choreography, rng: np.random.Generator) -> RoomModel:
        builder = RoomBuilder(rng, self._largest)
        builder.add_room(room)
        for placed, number in motion.still:
            builder.add(placed, number)
        for index, mover in enumerate(motion.movers):
            builder.add_moving(mover.solids, mover.number, f"mover{index}")
        return builder.compile()

    def _frames(
        self, model: RoomModel, motion: Choreography, view: View, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns colours (F, H, W, 3) and sensed depth (F, H, W)."""
        self._renderer.open(model)
        colours = []
        depths = []
        for value in np.linspace(*motion.ends, self.settings.frames):
            for index, mover in enumerate(motion.movers):
                position, rotation = mover.pose(float(value))
                model.data.mocap_pos[index] = position
                mujoco.mju_mat2Quat(
                    model.data.mocap_quat[index], np.ascontiguousarray(rotation).ravel()
                )
            mujoco.mj_forward(model.model, model.data)
            colours.append(self._renderer.colours(view))
            depths.append(sensed(self._renderer.objects(view)[1], view, rng))
        return np.stack(colours), np.stack(depths)


def reversed_clip(clip: LabelledClip) -> LabelledClip:
    """Returns a clip played backwards, with the label of its reversal.

    Raises:
        ValueError: No class describes the reversal.
    """
    if clip.reverse_label is None:
        raise ValueError(
            f"A clip of {clip.label!r} has no reverse_label; allowed: a clip with one."
        )
    poses = clip.T_world_camera
    return replace(
        clip,
        rgb=np.ascontiguousarray(clip.rgb[::-1]),
        depth=None if clip.depth is None else np.ascontiguousarray(clip.depth[::-1]),
        T_world_camera=None if poses is None else poses[::-1].copy(),
        label=clip.reverse_label,
        reverse_label=clip.label,
    )


def _view(motion: Choreography, optics: Optics, rng: np.random.Generator) -> View:
    """Draws a camera that looks at a motion, across it if it is along a line."""
    angle = rng.uniform(-np.pi, np.pi)
    if motion.lane is not None:
        side = np.pi / 2 * (1 if rng.uniform() < 0.5 else -1)
        lane = np.arctan2(motion.lane[1], motion.lane[0])
        angle = lane + side + rng.uniform(-ACROSS_RAD, ACROSS_RAD)
    elevation = rng.uniform(*ELEVATIONS_RAD)
    distance = rng.uniform(*DISTANCES_M)
    level = distance * np.cos(elevation)
    target = motion.target + rng.normal(0, 0.03, 3)
    away = np.array([level * np.cos(angle), level * np.sin(angle), distance * np.sin(elevation)])
    return View(looking(target + away, target), optics.draw(rng), *optics.size)


def _moves_left(motion: Choreography, view: View) -> bool:
    """Returns whether a thing moves to the left in the image."""
    assert motion.lane is not None
    return bool(motion.lane @ view.T_world_camera[:2, 0] < 0)
