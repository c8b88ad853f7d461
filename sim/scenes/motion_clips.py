"""Labelled clips of motions: each room gives a clip and its exact reversal.

A motion is drawn between two values of one quantity that are drawn alike, and its speed is the same
forwards and backwards. So both labels of a pair have the same frames.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import mujoco
import numpy as np

from stringline.datasets.contract.argument_checks import WHOLE, Range, unknown_name
from stringline.datasets.images.labelled_image import LabelledClip
from stringline.sim.scenes.asset_classes import VARIANTS, make_asset
from stringline.sim.scenes.assets import Asset, Solid, Vectors, turned
from stringline.sim.scenes.labels import sensed
from stringline.sim.scenes.room_renderer import RoomBuilder, RoomModel, RoomRenderer, View
from stringline.sim.scenes.rooms import PlacedAsset, Rectangle, Room, Surface
from stringline.sim.scenes.scene_images import Optics, looking

Pose = tuple[Vectors, Vectors]
"""Position (3,) and rotation (3, 3) in the frame of the room."""

LABELS: Mapping[str, tuple[str, str]] = {
    "lift": ("lift", "put down"),
    "open": ("open", "close"),
    "approach": ("approach", "part"),
    "turn": ("turn left", "turn right"),
    "pass": ("pass right", "pass left"),
}
"""The labels of each pair, and those of its reversal."""
TABLES = ("dining table", "desk")
CARRIED = ("mug", "cup", "bowl", "bottle", "can", "box", "car", "teapot", "apple", "jar", "vase")
TURNED = ("mug", "teapot", "car", "pan", "laptop", "keyboard", "desk lamp", "cup")
HINGED = ("box", "laptop")
BESIDE = ("book", "candle", "glass", "plate", "orange", "block", "small plant", "phone")
HEIGHTS_M = (0.0, 0.35)
TURNS_RAD = (1.0, 2.2)
LEAST = 0.4  # Least difference of start and end, share of the range.
LANE_M = 0.7


@dataclass(frozen=True, eq=False)
class Mover:
    """A rigid group of solids with a pose for each value of the quantity, 0 to 1."""

    solids: tuple[Solid, ...]
    number: int
    pose: Callable[[float], Pose]


@dataclass(frozen=True, eq=False)
class Choreography:
    """What moves in a room.

    Attributes:
        movers: The groups that move.
        still: The assets that do not move, with their numbers.
        ends: Values of the quantity at the start and the end; the second one is larger.
        target: (3,) where a camera looks.
        lane: (2,) direction of a motion along a line from above; None for others.
    """

    movers: tuple[Mover, ...]
    still: tuple[tuple[PlacedAsset, int], ...]
    ends: tuple[float, float]
    target: Vectors
    lane: Vectors | None = None


def stage_motion(pair: str, room: Room) -> Choreography:
    """Puts a table and the things of a motion into a room; `pair` is a name in `LABELS`."""
    table = None
    while table is None:
        table = room.stand_free(TABLES[room.rng.integers(len(TABLES))], 0.3)
    surface = next(one for one in room.surfaces if one.owner == table)
    motion = _MOTIONS[pair](room, surface)
    for _ in range(int(room.rng.integers(2, 7))):
        room.put_on(BESIDE[room.rng.integers(len(BESIDE))], table)
    moving = {mover.number for mover in motion.movers}
    still = [(one, index) for index, one in enumerate(room.placed) if index not in moving]
    return replace(motion, still=(*motion.still, *still))


def _drawn(room: Room, names: Sequence[str]) -> Asset:
    return make_asset(names[int(room.rng.integers(len(names)))], int(room.rng.integers(VARIANTS)))


def _ends(room: Room) -> tuple[float, float]:
    """Draws two different values between 0 and 1, the smaller one first."""
    while True:
        low, high = sorted(float(value) for value in room.rng.uniform(0, 1, 2))
        if high - low >= LEAST:
            return low, high


def _set(
    room: Room, surface: Surface, names: Sequence[str], spot: Callable[[Asset], Rectangle]
) -> tuple[Asset, int]:
    """Draws assets until one fits on an empty top, at its spot there; small ones always fit."""
    while True:
        asset = _drawn(room, names)
        if (number := room.set_on(asset, surface, spot(asset))) is not None:
            return asset, number


def _spot(asset: Asset, yaw: float) -> Rectangle:
    return Rectangle(0.0, 0.0, asset.size[0] / 2, asset.size[1] / 2, yaw)


def _swept(asset: Asset) -> Rectangle:
    """Returns the square that an asset needs at any angle."""
    reach = float(np.hypot(*asset.size[:2])) / 2
    return Rectangle(0.0, 0.0, reach, reach, 0.0)


def _lift(room: Room, surface: Surface) -> Choreography:
    """Moves one thing up."""
    asset, number = _set(
        room, surface, CARRIED, lambda one: _spot(one, room.rng.uniform(-np.pi, np.pi))
    )
    placed = room.placed[number]
    low, high = HEIGHTS_M

    def pose(value: float) -> Pose:
        height = np.array([0.0, 0.0, low + (high - low) * value])
        return placed.position + height, turned(placed.yaw)

    target = np.add(placed.centre(), (0, 0, (low + high) / 2))
    return Choreography((Mover(asset.solids, number, pose),), (), _ends(room), target)


def _turn(room: Room, surface: Surface) -> Choreography:
    """Turns one thing counterclockwise from above, about the middle of its box, from any angle."""
    asset, number = _set(room, surface, TURNED, _swept)
    placed = room.placed[number]
    start = room.rng.uniform(-np.pi, np.pi)
    turn = room.rng.uniform(*TURNS_RAD)
    middle = (asset.low + asset.high) / 2 * (1, 1, 0)
    axis = placed.position + turned(placed.yaw) @ middle

    def pose(value: float) -> Pose:
        rotation = turned(start + turn * value)
        return axis - rotation @ middle, rotation

    return Choreography((Mover(asset.solids, number, pose),), (), (0.0, 1.0), placed.centre())


def _open(room: Room, surface: Surface) -> Choreography:
    """Swings a lid from closed to open."""
    asset, number = _set(room, surface, HINGED, lambda one: _spot(one, room.rng.normal(0, 0.3)))
    placed = room.placed[number]
    hinge = asset.hinge
    assert hinge is not None
    fixed = tuple(solid for solid in asset.solids if not solid.swings)
    lid = tuple(solid for solid in asset.solids if solid.swings)
    point = np.array(hinge.point)

    def pose(value: float) -> Pose:
        angle = hinge.closed_rad + (hinge.open_rad - hinge.closed_rad) * value
        swing = _about(np.array(hinge.axis), angle)
        turn = turned(placed.yaw)
        return placed.position + turn @ (point - swing @ point), turn @ swing

    still = (replace(placed, asset=replace(asset, solids=fixed)), number)
    return Choreography((Mover(lid, number, pose),), (still,), _ends(room), placed.centre())


def _approach(room: Room, surface: Surface) -> Choreography:
    """Moves two things towards each other along the middle of a table."""
    pair = [_drawn(room, CARRIED) for _ in range(2)]
    wide = max(float(np.hypot(*asset.size[:2])) for asset in pair)
    far = LANE_M / 2
    near = wide / 2 + 0.01
    _reserve(surface, wide)
    movers = tuple(
        _slider(room, surface, asset, (side * far, side * near))
        for side, asset in zip((-1, 1), pair, strict=True)
    )
    return Choreography(movers, (), _ends(room), _middle(room, surface), _along(room, surface))


def _pass(room: Room, surface: Surface) -> Choreography:
    """Moves one thing along the middle of a table."""
    asset = _drawn(room, CARRIED)
    _reserve(surface, float(np.hypot(*asset.size[:2])))
    mover = _slider(room, surface, asset, (-LANE_M / 2, LANE_M / 2))
    return Choreography((mover,), (), _ends(room), _middle(room, surface), _along(room, surface))


def _reserve(surface: Surface, wide: float) -> None:
    half_x = min(LANE_M / 2 + wide / 2, surface.packing.half_x)
    surface.packing.add(Rectangle(0.0, 0.0, half_x, wide / 2, 0.0))


def _slider(room: Room, surface: Surface, asset: Asset, ends: tuple[float, float]) -> Mover:
    """Returns a thing that slides along a top between two places x."""
    yaw = room.placed[surface.owner].yaw + room.rng.uniform(-np.pi, np.pi)
    rotation = turned(yaw)
    middle = rotation @ ((asset.low + asset.high) / 2 * (1, 1, 0) + asset.low * (0, 0, 1))
    along = np.append(_along(room, surface), 0.0)
    start = _middle(room, surface)

    def pose(value: float) -> Pose:
        return start + along * (ends[0] + (ends[1] - ends[0]) * value) - middle, rotation

    room.placed.append(PlacedAsset(asset, pose(0.0)[0], yaw, surface.owner))
    return Mover(asset.solids, len(room.placed) - 1, pose)


def _along(room: Room, surface: Surface) -> Vectors:
    return turned(room.placed[surface.owner].yaw)[:2, 0]


def _middle(room: Room, surface: Surface) -> Vectors:
    """Returns the middle (3,) of a top in the frame of the room."""
    owner = room.placed[surface.owner]
    top = surface.top
    return np.asarray(owner.position + turned(owner.yaw) @ (top.x, top.y, top.z))


def _about(axis: Vectors, angle: float) -> Vectors:
    """Returns the rotation (3, 3) about an axis (3,) of length 1 (Rodrigues' formula)."""
    x, y, z = axis
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.asarray(np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross)


_MOTIONS: Mapping[str, Callable[[Room, Surface], Choreography]] = {
    "lift": _lift,
    "open": _open,
    "approach": _approach,
    "turn": _turn,
    "pass": _pass,
}


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
