"""The looks of a world: `plain`, or textures, materials and lights, fixed or drawn per episode.

They are compiled into every model and take no effect until an episode has looks: no geom has one
of the materials, the floor is hidden, the lights are off.
"""

import colorsys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import mujoco
import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.embodiments.mjcf_parts import DRAWN, HIDDEN
from stringline.sim.looks.families import HELD_OUT, SEEN, Choice, Family, Half, drawn, usual
from stringline.sim.looks.patterns import Field, Pattern
from stringline.sim.rendering.rendering import Caster, Scenery

TABLE = "look_table"
FLOOR = "look_floor"
WALL = "look_wall"
WALLS: tuple[str, ...] = tuple(f"{WALL}_{number}" for number in range(4))
OBJECTS = tuple(f"look_object_{number}" for number in range(6))
FILLS = ("look_fill_1", "look_fill_2")
SIDES = {TABLE: 512, FLOOR: 256, WALL: 256, **dict.fromkeys(OBJECTS, 128)}
FLOOR_M = -0.5  # Where the stands of arms and distractors end.
ROOM_HEIGHT_M = 3.0


def add_slots(root: mjcf.RootElement, room_half_m: float) -> None:
    """Adds the parts to an arena before it is compiled; `room_half_m`: from middle to wall."""
    for name, side in SIDES.items():
        kind = "cube" if name in OBJECTS else "2d"
        size = {"width": side, "height": side}
        root.asset.add("texture", name=name, type=kind, builtin="flat", **size)
        # One image on each face of an object; on tables, floors and walls, one per length.
        uniform = name not in OBJECTS
        root.asset.add("material", name=name, texture=name, texuniform=uniform)
    _add_room(root, room_half_m)
    for name in FILLS:
        root.worldbody.add(
            "light", name=name, directional=True, dir=(0, 0, -1), active=False, castshadow=False
        )


def _add_room(root: mjcf.RootElement, half_m: float) -> None:
    """Adds a floor and four walls, hidden; their fronts face inwards."""
    bits = {"type": "box", "contype": 0, "conaffinity": 0, "mass": 0, "group": HIDDEN}
    size = (half_m, half_m, 0.01)
    root.worldbody.add("geom", name=FLOOR, size=size, pos=(0, 0, FLOOR_M - 0.01), **bits)
    size = (half_m, ROOM_HEIGHT_M / 2, 0.01)
    for name, angle in zip(WALLS, np.arange(4) * np.pi / 2, strict=True):
        x, y = half_m * np.cos(angle), half_m * np.sin(angle)
        place = (x, y, FLOOR_M + ROOM_HEIGHT_M / 2)
        axes = (np.sin(angle), -np.cos(angle), 0, 0, 0, 1)
        root.worldbody.add("geom", name=name, size=size, pos=place, xyaxes=axes, **bits)


def touched(model: mujoco.MjModel) -> Sequence[NDArray[Any]]:
    """Returns the arrays that looks change, except for textures, which nothing else shows."""
    head = model.vis.headlight
    lights = (model.light_dir, model.light_active, model.light_ambient, model.light_diffuse)
    materials = (model.mat_specular, model.mat_shininess, model.mat_texrepeat)
    heads = (head.ambient, head.diffuse, head.specular)
    return (*lights, *materials, *heads, model.geom_matid, model.geom_rgba, model.geom_group)


def set_material(model: mujoco.MjModel, name: str, family: Family) -> int:
    """Gives a material the gloss of a family; returns its number."""
    material = int(model.material(name).id)
    model.mat_specular[material] = family.gloss[0]
    model.mat_shininess[material] = family.gloss[1]
    if name not in OBJECTS:
        model.mat_texrepeat[material] = family.repeats
    return material


def write_texture(model: mujoco.MjModel, name: str, image: Field) -> int:
    """Writes an image (n, n, 3) to a texture, to all faces if it has six; returns its number."""
    number = int(model.texture(name).id)
    rows, columns = int(model.tex_height[number]), int(model.tex_width[number])
    start = int(model.tex_adr[number])
    pixels = np.round(255 * image).astype(np.uint8).reshape(-1)
    space = model.tex_data[start : start + 3 * rows * columns]
    space[:] = np.tile(pixels, len(space) // len(pixels))
    return number


OPTION = "looks"
PLAIN, TEXTURED, RANDOMISED, HELD_OUT_LOOKS = LOOKS = (
    "plain",
    "textured",
    "randomised",
    "held_out",
)
HALVES = {RANDOMISED: SEEN, HELD_OUT_LOOKS: HELD_OUT}
SURFACES: dict[str, tuple[str, ...]] = {
    TABLE: ("table_top",),
    FLOOR: (FLOOR,),
    WALL: WALLS,
}
# Light of `textured`: ambient, of the camera, of the lamp and of two others, warm and cool.
AMBIENT, HEAD, LAMP = 0.26, 0.16, 0.42
FILL_LIGHTS = (((-0.6, 0.2, -0.8), (0.17, 0.15, 0.12)), ((0.5, -0.6, -0.6), (0.10, 0.12, 0.15)))


@dataclass(frozen=True)
class Scene:
    """What looks read of an episode: task, objects with their geoms, and the table's top.

    `ground` is as in `Scenery`.
    """

    task: str
    objects: Mapping[str, NDArray[np.int_]]
    ground: tuple[float, float, float, float, float]


class Looks:
    """Changes the appearance of a compiled model, and nothing else of it.

    The parts are added to the arena `root` before it is compiled.

    Attributes:
        active: Whether this episode has other looks than `plain`.
        scenery: Settings for renderers of the model.
    """

    def __init__(self, root: mjcf.RootElement, room_half_m: float) -> None:
        add_slots(root, room_half_m)
        self.scenery = Scenery()
        self.active = False

    def touched(self, model: mujoco.MjModel) -> Sequence[NDArray[Any]]:
        """Returns the arrays that are to be restored before the next episode."""
        return touched(model)

    def apply(
        self, model: mujoco.MjModel, looks: str, scene: Scene, seed: Sequence[int]
    ) -> dict[str, Any]:
        """Gives the model the looks of an episode; returns what was drawn as plain JSON."""
        self.active = looks != PLAIN
        self.scenery.casters = ()
        if looks == PLAIN:
            return {}
        names = tuple(scene.objects)
        stream = [] if looks == TEXTURED else seed
        rng = np.random.default_rng([*stream, zlib.crc32(f"looks {looks}".encode())])
        half = HALVES.get(looks)
        choice = usual(scene.task, names) if half is None else drawn(half, names, rng)
        self._write(model, choice, rng)
        _cover(model, choice, scene)
        if half is None:
            _light(model)
        else:
            _draw_light(model, half, rng)
            _draw_colours(model, half, scene, rng)
        self.scenery.ground = scene.ground
        self.scenery.light = model.light_dir[0].astype(np.float64)
        self.scenery.casters = tuple(_casters(model, scene))
        return _described(model, choice)

    def _write(self, model: mujoco.MjModel, choice: Choice, rng: np.random.Generator) -> None:
        """Writes the textures of an episode, each from a seed of its own."""
        patterns = {name: family.pattern for name, family in _surfaces(choice).items()}
        patterns |= {
            OBJECTS[place % len(OBJECTS)]: family.pattern
            for place, family in enumerate(choice.objects.values())
        }
        written = [
            write_texture(model, name, _image(pattern, SIDES[name], int(rng.integers(2**32))))
            for name, pattern in patterns.items()
        ]
        self.scenery.textures = tuple(written)
        self.scenery.version += 1


@lru_cache(maxsize=32)
def _image(pattern: Pattern, side: int, seed: int) -> Field:
    """Draws a texture; those of `textured` are the same in each episode."""
    return pattern(side, np.random.default_rng(seed))


def _surfaces(choice: Choice) -> dict[str, Family]:
    return {TABLE: choice.table, FLOOR: choice.floor, WALL: choice.wall}


def _cover(model: mujoco.MjModel, choice: Choice, scene: Scene) -> None:
    """Gives table, room and objects their materials, and shows the room."""
    for slot, family in _surfaces(choice).items():
        for geom in SURFACES[slot]:
            number = model.geom(geom).id
            model.geom_matid[number] = set_material(model, slot, family)
            model.geom_rgba[number] = 1.0
            model.geom_group[number] = DRAWN
    for place, (name, family) in enumerate(choice.objects.items()):
        slot = OBJECTS[place % len(OBJECTS)]
        geoms = scene.objects[name]
        plain = geoms[model.geom_matid[geoms] < 0]  # Meshes keep their own textures.
        model.geom_matid[plain] = set_material(model, slot, family)


def _light(model: mujoco.MjModel) -> None:
    """Lights the world by a lamp, two weaker lights, and little light of the camera."""
    _set_head(model, AMBIENT, HEAD)
    model.light_diffuse[0] = LAMP
    for name, (direction, colour) in zip(FILLS, FILL_LIGHTS, strict=True):
        _set_light(model, model.light(name).id, direction, colour)


def _draw_light(model: mujoco.MjModel, half: Half, rng: np.random.Generator) -> None:
    """Draws directions, colours and intensities of the lamp and of up to two other lights."""
    _set_head(model, rng.uniform(0.22, 0.36), rng.uniform(0.12, 0.24))
    _set_light(model, 0, *_beam(half, rng, (0.36, 0.55)))
    lit = int(rng.integers(len(FILLS) + 1))
    for name in FILLS[:lit]:
        _set_light(model, model.light(name).id, *_beam(half, rng, (0.06, 0.18)))


def _beam(
    half: Half, rng: np.random.Generator, power: tuple[float, float]
) -> tuple[tuple[float, float, float], tuple[float, ...]]:
    """Draws a direction, 40 to 80 degrees from above the horizon, and a colour."""
    azimuth, elevation = 2 * np.pi * half.turn(rng), np.radians(rng.uniform(40, 80))
    level = np.cos(elevation)
    direction = (level * np.cos(azimuth), level * np.sin(azimuth), -np.sin(elevation))
    tint = colorsys.hsv_to_rgb(half.turn(rng), rng.uniform(0.0, 0.25), 1.0)
    strength = rng.uniform(*power)
    return direction, tuple(strength * channel for channel in tint)


def _set_light(
    model: mujoco.MjModel, number: int, direction: Sequence[float], colour: Sequence[float]
) -> None:
    model.light_active[number] = True
    model.light_dir[number] = np.asarray(direction) / np.linalg.norm(direction)
    model.light_diffuse[number] = colour


def _set_head(model: mujoco.MjModel, ambient: float, diffuse: float) -> None:
    model.vis.headlight.ambient[:] = ambient
    model.vis.headlight.diffuse[:] = diffuse


def _draw_colours(
    model: mujoco.MjModel, half: Half, scene: Scene, rng: np.random.Generator
) -> None:
    """Tints table, floor and walls, and gives half of the objects other colours."""
    for geoms in SURFACES.values():
        tint = colorsys.hsv_to_rgb(half.turn(rng), rng.uniform(0, 0.3), rng.uniform(0.85, 1.0))
        for geom in geoms:
            model.geom_rgba[model.geom(geom).id, :3] = tint
    for shapes in scene.objects.values():
        colour = colorsys.hsv_to_rgb(half.turn(rng), rng.uniform(0.3, 1), rng.uniform(0.5, 1))
        share = rng.uniform(0.3, 0.9) * (rng.uniform() < 0.5)
        own = model.geom_rgba[shapes, :3]
        model.geom_rgba[shapes, :3] = own + share * (np.asarray(colour) - own)


def _casters(model: mujoco.MjModel, scene: Scene) -> list[Caster]:
    """Returns the bodies of the objects; shadows of arms would cost as much again."""
    found = []
    for body in (model.geom_bodyid[shapes[0]] for shapes in scene.objects.values()):
        low, high = np.full(3, np.inf), np.full(3, -np.inf)
        drawn_ones = (model.geom_group == DRAWN) & (model.geom_bodyid == body)
        for geom in np.flatnonzero(drawn_ones):
            turn = np.empty(9)
            mujoco.mju_quat2Mat(turn, model.geom_quat[geom])
            rotation = turn.reshape(3, 3)
            middle = model.geom_pos[geom] + rotation @ model.geom_aabb[geom, :3]
            reach = np.abs(rotation) @ model.geom_aabb[geom, 3:]
            low, high = np.minimum(low, middle - reach), np.maximum(high, middle + reach)
        found.append(Caster(int(body), (low + high) / 2, (high - low) / 2))
    return found


def _described(model: mujoco.MjModel, choice: Choice) -> dict[str, Any]:
    """Returns families, and directions and colours of the lights, as plain JSON."""
    lights = [
        {
            "direction": [round(float(value), 4) for value in model.light_dir[number]],
            "colour": [round(float(value), 4) for value in model.light_diffuse[number]],
        }
        for number in np.flatnonzero(model.light_active)
    ]
    surfaces = {"table": choice.table, "floor": choice.floor, "wall": choice.wall}
    return {
        **{name: family.name for name, family in surfaces.items()},
        "objects": {name: family.name for name, family in choice.objects.items()},
        "lights": lights,
    }
