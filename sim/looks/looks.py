"""The looks of a world: `plain`, or textures, materials and lights, fixed or drawn per episode."""

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

from stringline.datasets.embodiments.mjcf_parts import DRAWN
from stringline.sim.looks import look_slots as slots
from stringline.sim.looks.families import HELD_OUT, SEEN, Choice, Family, Half, drawn, usual
from stringline.sim.looks.patterns import Field, Pattern
from stringline.sim.rendering.rendering import Caster, Scenery

OPTION = "looks"
PLAIN, TEXTURED, RANDOMISED, HELD_OUT_LOOKS = LOOKS = (
    "plain",
    "textured",
    "randomised",
    "held_out",
)
HALVES = {RANDOMISED: SEEN, HELD_OUT_LOOKS: HELD_OUT}
SURFACES: dict[str, tuple[str, ...]] = {
    slots.TABLE: ("table_top",),
    slots.FLOOR: (slots.FLOOR,),
    slots.WALL: slots.WALLS,
}
# Light of `textured`: ambient, of the camera, of the lamp and of two others, warm and cool.
AMBIENT, HEAD, LAMP = 0.26, 0.16, 0.42
FILLS = (((-0.6, 0.2, -0.8), (0.17, 0.15, 0.12)), ((0.5, -0.6, -0.6), (0.10, 0.12, 0.15)))


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
        slots.add_slots(root, room_half_m)
        self.scenery = Scenery()
        self.active = False

    def touched(self, model: mujoco.MjModel) -> Sequence[NDArray[Any]]:
        """Returns the arrays that are to be restored before the next episode."""
        return slots.touched(model)

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
            slots.OBJECTS[place % len(slots.OBJECTS)]: family.pattern
            for place, family in enumerate(choice.objects.values())
        }
        written = [
            slots.write_texture(
                model, name, _image(pattern, slots.SIDES[name], int(rng.integers(2**32)))
            )
            for name, pattern in patterns.items()
        ]
        self.scenery.textures = tuple(written)
        self.scenery.version += 1


@lru_cache(maxsize=32)
def _image(pattern: Pattern, side: int, seed: int) -> Field:
    """Draws a texture; those of `textured` are the same in each episode."""
    return pattern(side, np.random.default_rng(seed))


def _surfaces(choice: Choice) -> dict[str, Family]:
    return {slots.TABLE: choice.table, slots.FLOOR: choice.floor, slots.WALL: choice.wall}


def _cover(model: mujoco.MjModel, choice: Choice, scene: Scene) -> None:
    """Gives table, room and objects their materials, and shows the room."""
    for slot, family in _surfaces(choice).items():
        for geom in SURFACES[slot]:
            number = model.geom(geom).id
            model.geom_matid[number] = slots.set_material(model, slot, family)
            model.geom_rgba[number] = 1.0
            model.geom_group[number] = DRAWN
    for place, (name, family) in enumerate(choice.objects.items()):
        slot = slots.OBJECTS[place % len(slots.OBJECTS)]
        geoms = scene.objects[name]
        plain = geoms[model.geom_matid[geoms] < 0]  # Meshes keep their own textures.
        model.geom_matid[plain] = slots.set_material(model, slot, family)


def _light(model: mujoco.MjModel) -> None:
    """Lights the world by a lamp, two weaker lights, and little light of the camera."""
    _set_head(model, AMBIENT, HEAD)
    model.light_diffuse[0] = LAMP
    for name, (direction, colour) in zip(slots.FILLS, FILLS, strict=True):
        _set_light(model, model.light(name).id, direction, colour)


def _draw_light(model: mujoco.MjModel, half: Half, rng: np.random.Generator) -> None:
    """Draws directions, colours and intensities of the lamp and of up to two other lights."""
    _set_head(model, rng.uniform(0.22, 0.36), rng.uniform(0.12, 0.24))
    _set_light(model, 0, *_beam(half, rng, (0.36, 0.55)))
    lit = int(rng.integers(len(slots.FILLS) + 1))
    for name in slots.FILLS[:lit]:
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
