"""The families of surfaces from which looks are chosen, in two disjoint halves.

Collection draws from `SEEN`, an evaluation of unknown looks from `HELD_OUT`. They share no family,
no directions of light and no hues, so that no draw of one is a draw of the other.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stringline.sim.looks import patterns
from stringline.sim.looks.patterns import Pattern


@dataclass(frozen=True)
class Family:
    """A kind of surface.

    Attributes:
        gloss: Specular reflection and shininess, 0 to 1, as of an MJCF material.
        repeats: Repeats of the texture per 2 m; of objects unused.
    """

    name: str
    pattern: Pattern
    gloss: tuple[float, float] = (0.1, 0.2)
    repeats: float = 2.0


@dataclass(frozen=True)
class Half:
    """One half of all looks.

    Attributes:
        tables: Families of table tops.
        floors: Families of floors.
        walls: Families of walls.
        objects: Families of objects.
        sector: Sectors of 45 degrees, even (0) or odd (1), of the azimuth of lights and of the
            hues of lights and objects.
    """

    tables: tuple[Family, ...]
    floors: tuple[Family, ...]
    walls: tuple[Family, ...]
    objects: tuple[Family, ...]
    sector: int

    def turn(self, rng: np.random.Generator) -> float:
        """Draws an angle from this half's sectors, as a share of a full turn, 0 to 1."""
        return float((2 * rng.integers(4) + self.sector + rng.uniform()) / 8)


OAK = patterns.wood((0.45, 0.28, 0.13), (0.80, 0.60, 0.37), 7)
WALNUT = patterns.wood((0.20, 0.11, 0.06), (0.50, 0.32, 0.19), 5)
SEEN = Half(
    tables=(
        Family("oak", OAK, (0.3, 0.4)),
        Family("walnut", WALNUT, (0.35, 0.5)),
        Family("white_marble", patterns.marble((0.93, 0.92, 0.90), (0.42, 0.43, 0.47)), (0.5, 0.7)),
        Family(
            "linen",
            patterns.cloth([(0.80, 0.75, 0.66), (0.70, 0.64, 0.55)], 128, [0, 0, 1, 0]),
            (0.0, 0.0),
            repeats=3.0,
        ),
        Family("oilcloth", patterns.checks((0.86, 0.84, 0.80), (0.70, 0.20, 0.18), 12), (0.4, 0.5)),
        Family(
            "concrete_top", patterns.mottled((0.62, 0.64, 0.66), (0.82, 0.83, 0.82)), (0.3, 0.3)
        ),
    ),
    floors=(
        Family("tiles", patterns.tiles((0.72, 0.68, 0.62), (0.40, 0.38, 0.36), 3)),
        Family("boards", patterns.wood((0.36, 0.25, 0.16), (0.62, 0.46, 0.30), 6)),
        Family("concrete", patterns.mottled((0.42, 0.42, 0.42), (0.62, 0.61, 0.59), 1.1)),
    ),
    walls=(
        Family("plaster", patterns.mottled((0.74, 0.72, 0.67), (0.90, 0.88, 0.83), 1.0)),
        Family("wallpaper", patterns.stripes((0.62, 0.70, 0.68), (0.78, 0.82, 0.78), 8)),
        Family("bricks", patterns.tiles((0.62, 0.32, 0.24), (0.72, 0.69, 0.64), 12, shift=0.5)),
    ),
    objects=(
        Family("plastic", patterns.shaded(0.22, 1.4), (0.5, 0.5)),
        Family("painted_wood", patterns.painted_wood, (0.2, 0.3)),
        Family("glaze", patterns.glaze, (0.7, 0.8)),
        Family("label", patterns.label((0.75, 0.15, 0.2)), (0.4, 0.5)),
        Family("woven", patterns.woven),
        Family("dots", patterns.dots(5, 0.45), (0.3, 0.4)),
    ),
    sector=0,
)
HELD_OUT = Half(
    tables=(
        Family("bamboo", patterns.wood((0.66, 0.56, 0.28), (0.90, 0.82, 0.54), 24), (0.3, 0.5)),
        Family(
            "granite",
            patterns.speckled(
                (0.50, 0.50, 0.52), [(0.16, 0.16, 0.18), (0.84, 0.82, 0.80), (0.55, 0.42, 0.38)]
            ),
            (0.5, 0.7),
        ),
        Family(
            "tartan",
            patterns.cloth(
                [(0.16, 0.30, 0.22), (0.62, 0.14, 0.14), (0.85, 0.80, 0.62)],
                128,
                [0, 0, 0, 2, 1, 1, 0, 1, 1, 2],
            ),
            (0.0, 0.0),
            repeats=3.0,
        ),
        Family("steel", patterns.brushed((0.46, 0.48, 0.50), (0.74, 0.76, 0.78)), (0.8, 0.6)),
    ),
    floors=(
        Family("carpet", patterns.cloth([(0.30, 0.34, 0.45), (0.40, 0.42, 0.50)], 64, [0, 1])),
        Family("slate", patterns.tiles((0.34, 0.37, 0.38), (0.20, 0.21, 0.21), 4, shift=0.5)),
    ),
    walls=(
        Family("panelling", patterns.wood((0.50, 0.36, 0.22), (0.72, 0.56, 0.38), 10)),
        Family("tiled_wall", patterns.tiles((0.80, 0.86, 0.88), (0.56, 0.60, 0.62), 16)),
    ),
    objects=(
        Family("stone", patterns.shaded(0.5, 0.9, lowest=3.0), (0.1, 0.2)),
        Family("bands", patterns.bands(5, 0.5), (0.4, 0.5)),
        Family("squares", patterns.squares(4, 0.5), (0.3, 0.3)),
        Family("packet", patterns.label((0.1, 0.45, 0.3)), (0.4, 0.5)),
    ),
    sector=1,
)

# Tables of `textured`, with tiles in place of the concrete, which readers of images could not name.
TEXTURED_TABLES = (
    *(family for family in SEEN.tables if family.name != "concrete_top"),
    Family("ceramic_tiles", patterns.tiles((0.24, 0.46, 0.50), (0.86, 0.85, 0.80), 12), (0.6, 0.7)),
)
GLAZE = Family("glaze", patterns.glaze, (0.7, 0.8))
PLASTIC = Family("plastic", patterns.shaded(0.22, 1.4), (0.5, 0.5))
WOOD = Family("painted_wood", patterns.painted_wood, (0.2, 0.3))
PACKET = Family("label", patterns.label((0.15, 0.25, 0.55)), (0.4, 0.5))
FRUIT = Family("skin", patterns.skin, (0.5, 0.6))
WICKER = Family("woven", patterns.woven)
OF_OBJECT: Mapping[str, Family] = {
    **dict.fromkeys(("bowl", "mug", "plate", "cup", "ring", "bottle"), GLAZE),
    **dict.fromkeys(("apple", "pear", "ball"), FRUIT),
    **dict.fromkeys(("bin", "holder"), WICKER),
    **dict.fromkeys(("red_box", "yellow_box", "blue_box", "can", "tower", "tile"), PACKET),
    **dict.fromkeys(("glass", "rack", "pen", "tube", "frame", "hook"), PLASTIC),
    "banana": Family("peel", patterns.peel, (0.3, 0.4)),
    "cube": Family("squares", patterns.squares(3, 0.6), (0.3, 0.4)),
    "brick": Family("clay", patterns.shaded(0.4, 0.9, lowest=2.0), (0.0, 0.1)),
    "puck": Family("dots", patterns.dots(4, 0.6), (0.3, 0.4)),
}
"""Families of objects in `textured`; every other object is of painted wood."""


@dataclass(frozen=True)
class Choice:
    """The families of one episode; `objects` has one for each object."""

    table: Family
    floor: Family
    wall: Family
    objects: Mapping[str, Family]


def usual(task: str, objects: tuple[str, ...]) -> Choice:
    """Returns the families of a task in `textured`, always the same: a table for each task."""

    def of(families: tuple[Family, ...]) -> Family:
        return families[zlib.crc32(task.encode()) % len(families)]

    return Choice(
        of(TEXTURED_TABLES),
        of(SEEN.floors),
        of(SEEN.walls),
        {name: OF_OBJECT.get(name, WOOD) for name in objects},
    )


def drawn(half: Half, objects: tuple[str, ...], rng: np.random.Generator) -> Choice:
    """Draws the families of an episode."""

    def one(families: tuple[Family, ...]) -> Family:
        return families[rng.integers(len(families))]

    return Choice(
        one(half.tables),
        one(half.floors),
        one(half.walls),
        {name: one(half.objects) for name in objects},
    )
