"""Distribution shifts: of appearance, camera poses and distractors; their names and strengths.

Images are lit by one directional light and the headlight, whose colours and directions the shifts
of lighting change. Shifts of camera poses have true or outdated extrinsics. Distractors are large
objects that are unrelated to the task.
"""

import colorsys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import mujoco
import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.embodiments.mjcf_parts import CAMERA_FLIP, DRAWN, HIDDEN, SCENERY
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.looks.looks import Looks, Scene
from stringline.sim.rendering.depth_sensor import StereoSensor


@dataclass(frozen=True)
class ShiftedWorld:
    """A compiled model that shifts change, and the numbers of the geoms of each of its objects."""

    model: mujoco.MjModel
    objects: Mapping[str, NDArray[np.int_]]


@dataclass(frozen=True)
class EpisodeStart:
    """The placement of objects at the start of an episode.

    Attributes:
        spots: (N, 3), x, y and radius of a circle around each object in the base frame, metres.
        table_height: Height of the table top above the plane z = 0, metres.
    """

    spots: NDArray[np.float64]
    table_height: float


@dataclass(frozen=True)
class Shot:
    """Camera, time since the episode began, and intrinsics (3, 3), pixels, of a depth image."""

    camera: str
    time: float
    intrinsics: NDArray[np.float32]


class Shift(ABC):
    """One way in which episodes can differ from the demonstrations.

    Each shift draws from a random stream of its own, so that nothing else of the episode depends on
    it.

    Attributes:
        name: Name of the task option that sets its strength, 0 (none) to 1 (the strongest).
    """

    name: ClassVar[str]

    def touched(self, scene: ShiftedWorld) -> Sequence[NDArray[Any]]:
        """Returns the arrays that `apply` writes to; they are restored before the next episode."""
        del scene
        return ()

    @abstractmethod
    def apply(
        self, scene: ShiftedWorld, start: EpisodeStart, strength: float, rng: np.random.Generator
    ) -> None:
        """Changes the world, with the shifts before this one, for the episode that begins.

        The strength is above 0 and at most 1. `rng` is the shift's own random stream, determined by
        the episode's seed.
        """

    def measured(self, depth: NDArray[np.uint16], shot: Shot) -> NDArray[np.uint16]:
        """Returns the measurement of a true depth image (H, W), which stays unchanged."""
        del shot
        return depth

    def reported(self, T_base_camera: Matrix, camera: int) -> Matrix:
        """Returns the reported pose (4, 4) of a camera by number, in the contract's convention."""
        del camera
        return T_base_camera


# Elevation above the horizon, and largest azimuth from straight left or right.
SIDE_ELEVATION_DEG = 20.0
SIDE_SPREAD_DEG = 40.0
# Factors of the ambient light and of the light from the side.
SIDE_AMBIENT = 0.4
SIDE_DIFFUSE = 1.8
COLOUR_SATURATION = 0.8
COLOUR_GAIN = 1.5


class _Light(Shift):
    """A shift of colours and directions of light."""

    def touched(self, scene: ShiftedWorld) -> Sequence[NDArray[Any]]:
        """Returns colours and directions of all lights."""
        return (*_colours(scene.model), scene.model.light_dir)


class DimLight(_Light):
    """Less light; at full strength 15 % of it."""

    name: ClassVar[str] = "dim_light"
    factor: ClassVar[float] = 0.15

    def apply(
        self, scene: ShiftedWorld, start: EpisodeStart, strength: float, rng: np.random.Generator
    ) -> None:
        """Multiplies all lights by a factor, which is `factor` at full strength."""
        for colour in _colours(scene.model):
            colour *= 1 + (self.factor - 1) * strength


class BrightLight(DimLight):
    """More light; at full strength 2.2 times as much, so that pale objects are overexposed."""

    name: ClassVar[str] = "bright_light"
    factor: ClassVar[float] = 2.2


class SideLight(_Light):
    """Light from the left or the right, at full strength 20 degrees above the horizon."""

    name: ClassVar[str] = "side_light"

    def apply(
        self, scene: ShiftedWorld, start: EpisodeStart, strength: float, rng: np.random.Generator
    ) -> None:
        """Turns directional lights towards a drawn direction, and dims the others."""
        azimuth = np.radians(
            rng.choice([0.0, 180.0]) + rng.uniform(-SIDE_SPREAD_DEG, SIDE_SPREAD_DEG)
        )
        elevation = np.radians(SIDE_ELEVATION_DEG)
        level = np.cos(elevation)
        side = -np.array([np.cos(azimuth) * level, np.sin(azimuth) * level, np.sin(elevation)])
        model = scene.model
        for direction in model.light_dir:
            direction[:] = (1 - strength) * direction / np.linalg.norm(direction) + strength * side
            direction /= np.linalg.norm(direction)
        model.light_diffuse *= 1 + (SIDE_DIFFUSE - 1) * strength
        model.vis.headlight.diffuse *= 1 - strength
        for ambient in (model.light_ambient, model.vis.headlight.ambient):
            ambient *= 1 - (1 - SIDE_AMBIENT) * strength


class ColouredLight(_Light):
    """Light of a drawn colour, at full strength strongly saturated and 1.5 times as bright."""

    name: ClassVar[str] = "coloured_light"

    def apply(
        self, scene: ShiftedWorld, start: EpisodeStart, strength: float, rng: np.random.Generator
    ) -> None:
        """Gives all lights the same tint."""
        tint = COLOUR_GAIN * np.array(colorsys.hsv_to_rgb(rng.uniform(), COLOUR_SATURATION, 1.0))
        for colour in _colours(scene.model):
            colour *= 1 + strength * (tint - 1)


def _colours(model: mujoco.MjModel) -> tuple[NDArray[np.float32], ...]:
    """Returns the colours (..., 3) of all lights."""
    head = model.vis.headlight
    return (
        model.light_ambient,
        model.light_diffuse,
        model.light_specular,
        head.ambient,
        head.diffuse,
        head.specular,
    )


DRAWS = 4  # Drawn colours, of which the one farthest from the object's own is used.
# Ranges of the drawn colours; the table is darker and greyer.
SATURATION = (0.5, 1.0)
VALUE = (0.4, 1.0)


class ObjectColour(Shift):
    """A drawn colour for each object of the task.

    At full strength the object's mean colour is the drawn one, at half strength halfway there. The
    differences between its shapes stay.
    """

    name: ClassVar[str] = "object_colour"

    def touched(self, scene: ShiftedWorld) -> Sequence[NDArray[Any]]:
        """Returns the colours of all geoms."""
        return (scene.model.geom_rgba,)

    def apply(
        self, scene: ShiftedWorld, start: EpisodeStart, strength: float, rng: np.random.Generator
    ) -> None:
        """Moves the colours of each object's shapes by the same amount."""
        for shapes in scene.objects.values():
            own: NDArray[np.float64] = scene.model.geom_rgba[shapes, :3].astype(np.float64)
            drawn = [
                colorsys.hsv_to_rgb(rng.uniform(), rng.uniform(*SATURATION), rng.uniform(*VALUE))
                for _ in range(DRAWS)
            ]
            away = np.array(drawn) - own.mean(axis=0)
            farthest = away[np.linalg.norm(away, axis=1).argmax()]
            scene.model.geom_rgba[shapes, :3] = np.clip(own + strength * farthest, 0.0, 1.0)


class DepthNoise(Shift):
    """Depth images with the noise and holes of a stereo camera, scaled by the strength.

    The noise of an image depends on the episode's seed, the time and the camera only.
    """

    name: ClassVar[str] = "depth_noise"

    def __init__(self, sensor: StereoSensor) -> None:
        self._sensor = sensor
        self._strength = 0.0
        self._seed = 0

    def apply(
        self, scene: ShiftedWorld, start: EpisodeStart, strength: float, rng: np.random.Generator
    ) -> None:
        """Stores strength and seed for the episode's images."""
        self._strength = strength
        self._seed = int(rng.integers(2**32))

    def measured(self, depth: NDArray[np.uint16], shot: Shot) -> NDArray[np.uint16]:
        """Returns the sensor's measurement."""
        moment = round(1e6 * shot.time), zlib.crc32(shot.camera.encode())
        rng = np.random.Generator(np.random.SFC64([self._seed, *moment]))
        return self._sensor.measure(depth, shot.intrinsics, rng, self._strength)


FARTHEST_M = 0.05
LARGEST_DEG = 5.0
SMALLEST_SHARE = 0.5  # A drawn movement is at least this share of the largest one.


class _MovedCameras(Shift):
    """Static cameras are moved and rotated, at full strength by up to 5 cm and 5 degrees.

    Each camera draws a direction, an axis and a size: 0.5 to 1 of the largest movement, times the
    strength. No camera moves down, where one near the table would sink into it. Cameras on arms are
    not moved.
    """

    def __init__(self) -> None:
        self._movements: dict[int, Matrix] = {}

    def touched(self, scene: ShiftedWorld) -> Sequence[NDArray[Any]]:
        """Returns the poses of all cameras."""
        return (scene.model.cam_pos, scene.model.cam_quat)

    def apply(
        self, scene: ShiftedWorld, start: EpisodeStart, strength: float, rng: np.random.Generator
    ) -> None:
        """Moves all static cameras."""
        self._movements = {
            number: self._move(scene.model, number, strength, rng) for number in _still(scene.model)
        }

    def _move(
        self, model: mujoco.MjModel, number: int, strength: float, rng: np.random.Generator
    ) -> Matrix:
        """Moves a camera; returns the movement (4, 4) in its frame as of the contract."""
        way, axis = (vector / np.linalg.norm(vector) for vector in rng.standard_normal((2, 3)))
        metres, degrees = strength * rng.uniform(SMALLEST_SHARE, 1.0, 2) * (FARTHEST_M, LARGEST_DEG)
        way[2] = abs(way[2])
        turn = np.empty(9)
        quat = np.empty(4)
        mujoco.mju_quat2Mat(turn, model.cam_quat[number])
        old = turn.reshape(3, 3)
        own_way = old.T @ way * metres
        own_turn = rotation_about(axis, np.radians(degrees))
        mujoco.mju_mat2Quat(quat, (old @ own_turn).ravel())
        model.cam_pos[number] += way * metres
        model.cam_quat[number] = quat
        return CAMERA_FLIP @ pose(own_way, own_turn) @ CAMERA_FLIP


class CameraPose(_MovedCameras):
    """Moved cameras whose reported extrinsics are the true ones."""

    name: ClassVar[str] = "camera_pose"


class Miscalibration(_MovedCameras):
    """Moved cameras whose reported extrinsics are those before the movement."""

    name: ClassVar[str] = "miscalibration"

    def reported(self, T_base_camera: Matrix, camera: int) -> Matrix:
        """Returns the pose before the movement."""
        if camera not in self._movements:
            return T_base_camera
        return T_base_camera @ inverse(self._movements[camera])


def _still(model: mujoco.MjModel) -> list[int]:
    """Returns the numbers of the static cameras."""
    static = model.body_weldid[model.cam_bodyid] == 0
    return [int(number) for number in np.flatnonzero(static)]


AWAY = (0.0, 0.0, -5.0)  # Position of distractors that an episode does not use.
CLEARANCE_M = 0.08  # Smallest gap to the task's objects: room for a hand above them.
APART_M = 0.05  # Smallest gap between distractors.
TRIES = 100


@dataclass(frozen=True)
class Zone:
    """A rectangle of the base frame, x and y in metres, in which distractors can stand.

    They stand on the table, or on the floor beside it, far from the task's objects.
    """

    x: tuple[float, float]
    y: tuple[float, float]
    on_table: bool = True


@dataclass(frozen=True)
class _Kind:
    """An upright shape: MuJoCo's half sizes, and the height of its middle above the ground."""

    shape: str
    size: tuple[float, ...]
    middle: float
    on_table: bool

    @property
    def radius(self) -> float:
        """Radius of the smallest upright cylinder around it, metres."""
        return float(np.hypot(self.size[0], self.size[1])) if self.shape == "box" else self.size[0]


KINDS = {
    "distractor_carton": _Kind("box", (0.05, 0.035, 0.11), 0.11, on_table=True),
    "distractor_canister": _Kind("cylinder", (0.045, 0.09), 0.09, on_table=True),
    "distractor_bottle": _Kind("cylinder", (0.035, 0.13), 0.13, on_table=True),
    "distractor_tin": _Kind("box", (0.045, 0.04, 0.06), 0.06, on_table=True),
    # From the floor to 22 and 30 cm above z = 0.
    "distractor_crate": _Kind("box", (0.16, 0.06, 0.4), -0.18, on_table=False),
    "distractor_drum": _Kind("cylinder", (0.09, 0.4), -0.1, on_table=False),
}


class Distractors(Shift):
    """Large static objects of drawn colours beside the task's objects.

    There are four on the table, and a crate and a drum on the floor; at half strength half of them
    are used. Those on the table keep 8 cm off all objects of the task, and are omitted if there is
    no such place. Arms can collide with them, and they do not move. They are added to the arena
    `root` before it is compiled; a kind without a zone is not used.
    """

    name: ClassVar[str] = "distractors"

    def __init__(self, root: mjcf.RootElement, zones: Sequence[Zone]) -> None:
        self._zones = zones
        for name, kind in KINDS.items():
            body = root.worldbody.add("body", name=name, pos=AWAY)
            bits = {"contype": SCENERY, "conaffinity": 0, "condim": 3, "group": HIDDEN}
            body.add("geom", name=name, type=kind.shape, size=kind.size, **bits)

    def touched(self, scene: ShiftedWorld) -> Sequence[NDArray[Any]]:
        """Returns the distractors' poses and looks; the pose of the table must not be restored."""
        model = scene.model
        bodies, geoms = ([find(name).id for name in KINDS] for find in (model.body, model.geom))
        body, geom = (slice(min(numbers), max(numbers) + 1) for numbers in (bodies, geoms))
        return (
            model.body_pos[body],
            model.body_quat[body],
            model.geom_group[geom],
            model.geom_rgba[geom],
        )

    def apply(
        self, scene: ShiftedWorld, start: EpisodeStart, strength: float, rng: np.random.Generator
    ) -> None:
        """Draws distractors, places and colours; a stronger shift adds distractors only."""
        levels = {zone.on_table for zone in self._zones}
        able = [name for name, kind in KINDS.items() if kind.on_table in levels]
        count = int(np.ceil(strength * len(able) - 1e-9))
        taken: NDArray[np.float64] = start.spots + np.array([0.0, 0.0, CLEARANCE_M - APART_M])
        for number in rng.permutation(len(able))[:count]:
            name = able[number]
            kind = KINDS[able[number]]
            colour = colorsys.hsv_to_rgb(
                rng.uniform(), rng.uniform(0.3, 0.9), rng.uniform(0.4, 0.9)
            )
            yaw = rng.uniform(-np.pi, np.pi) if kind.on_table else rng.uniform(-0.3, 0.3)
            # Distractors on the floor are far from the task's objects.
            others = taken if kind.on_table else taken[len(start.spots) :]
            if (spot := self._spot(kind, others, rng)) is not None:
                bottom = start.table_height if kind.on_table else 0.0
                _stand(scene.model, name, (*spot, bottom + kind.middle), yaw, colour)
                taken = np.vstack([taken, (*spot, kind.radius)])

    def _spot(
        self, kind: _Kind, others: NDArray[np.float64], rng: np.random.Generator
    ) -> tuple[float, float] | None:
        """Returns x and y of a free place, or None; always uses the same number of draws."""
        zones = [zone for zone in self._zones if zone.on_table == kind.on_table]
        draws = rng.uniform(size=(TRIES, 3))
        for choice, across, along in draws:
            zone = zones[int(choice * len(zones))]
            x = np.interp(across, (0, 1), zone.x)
            y = np.interp(along, (0, 1), zone.y)
            apart = np.hypot(others[:, 0] - x, others[:, 1] - y) - others[:, 2] - kind.radius
            if (apart > APART_M).all():
                return float(x), float(y)
        return None


def _stand(
    model: mujoco.MjModel,
    name: str,
    position: tuple[float, ...],
    yaw: float,
    colour: tuple[float, float, float],
) -> None:
    body = model.body(name).id
    geom = model.geom(name).id
    model.body_pos[body] = position
    model.body_quat[body] = (np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2))
    model.geom_group[geom] = DRAWN
    model.geom_rgba[geom] = (*colour, 1.0)


# Task options that set the strength of a shift, in the order of `Shifts.of`.
NAMES = tuple(
    kind.name
    for kind in (
        DimLight,
        BrightLight,
        SideLight,
        ColouredLight,
        Distractors,
        ObjectColour,
        CameraPose,
        Miscalibration,
        DepthNoise,
    )
)


class Shifts:
    """The looks and the shifts of one world, in order of application.

    Strengths above 0 activate a shift.

    Attributes:
        looks: The looks, on which shifts of light and colours act.
    """

    def __init__(self, looks: Looks, shifts: Sequence[Shift] = ()) -> None:
        self.looks = looks
        self._all = tuple(shifts)
        self._active = tuple[Shift, ...]()
        self._scene: ShiftedWorld
        self._original: list[tuple[NDArray[Any], NDArray[Any]]] = []

    @classmethod
    def of(
        cls,
        root: mjcf.RootElement,
        zones: Sequence[Zone],
        sensor: StereoSensor,
        room_half_m: float,
    ) -> "Shifts":
        """Builds looks and shifts; their parts are added to `root` before it is compiled."""
        lights = (DimLight(), BrightLight(), SideLight(), ColouredLight())
        objects = (Distractors(root, zones), ObjectColour())
        others = (CameraPose(), Miscalibration(), DepthNoise(sensor))
        return cls(Looks(root, room_half_m), (*lights, *objects, *others))

    def bind(self, scene: ShiftedWorld) -> None:
        """Connects the shifts to the compiled world, and copies the arrays that they may change."""
        self._scene = scene
        self._active = ()
        arrays = [array for shift in self._all for array in shift.touched(scene)]
        arrays += self.looks.touched(scene.model)
        self._original = [(array, array.copy()) for array in arrays]

    def begin(
        self,
        start: EpisodeStart,
        strengths: Mapping[str, float],
        seed: Sequence[int],
        looks: str,
        scene: Scene,
    ) -> dict[str, Any]:
        """Undoes looks and shifts of the previous episode, and applies those of the next one.

        `strengths` are 0 to 1, by name of the shift; a missing one is 0. Returns what the looks
        have drawn.
        """
        if self._active or self.looks.active:
            for array, original in self._original:
                array[:] = original
        drawn = self.looks.apply(self._scene.model, looks, scene, seed)
        self._active = tuple(shift for shift in self._all if strengths.get(shift.name, 0.0) > 0)
        for shift in self._active:
            rng = np.random.default_rng([*seed, zlib.crc32(shift.name.encode())])
            shift.apply(self._scene, start, strengths[shift.name], rng)
        return drawn

    def measured(self, depth: NDArray[np.uint16], shot: Shot) -> NDArray[np.uint16]:
        """Returns the measurement of a true depth image (H, W)."""
        for shift in self._active:
            depth = shift.measured(depth, shot)
        return depth

    def reported(self, T_base_camera: Matrix, camera: int) -> Matrix:
        """Returns the reported pose (4, 4) of a camera by number."""
        for shift in self._active:
            T_base_camera = shift.reported(T_base_camera, camera)
        return T_base_camera
