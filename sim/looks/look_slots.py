"""The parts of a model that looks change: textures, materials, a floor and further lights.

They are compiled into every model and take no effect until an episode has looks: no geom has one
of the materials, the floor is hidden, the lights are off.
"""

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.embodiments.mjcf_parts import HIDDEN
from stringline.sim.looks.families import Family
from stringline.sim.looks.patterns import Field

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
