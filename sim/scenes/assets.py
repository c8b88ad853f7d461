"""Assets: what stands in rooms, their solids and colours, and the sketch that draws their forms.

The frame of an asset: x right, y back, z up, metres; it stands on z = 0 and faces -y.
"""

import colorsys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stringline.sim.looks import families, patterns
from stringline.sim.looks.families import Family

Vectors = NDArray[np.float64]
Colour = tuple[float, float, float]
Form = Literal["box", "cylinder", "ellipsoid", "mesh"]

SIDES = 16  # Corners of a solid of revolution.


@dataclass(frozen=True, eq=False)
class Mesh:
    """A triangle mesh.

    Attributes:
        vertices: (V, 3) in metres.
        faces: (F, 3) indices of vertices, counterclockwise seen from outside.
        places: (V, 2) texture coordinates of the vertices; None without texture.
        image: (H, W, 3) uint8 texture; None without.
    """

    vertices: Vectors
    faces: NDArray[np.int32]
    places: Vectors | None = None
    image: NDArray[np.uint8] | None = None


@dataclass(frozen=True, eq=False)
class Solid:
    """A solid of one colour.

    Attributes:
        form: A cylinder has its axis along z.
        half: (3,) half lengths along its axes; of a mesh, a scale of its vertices.
        centre: (3,) in the frame of the asset.
        rotation: (3, 3); its columns are the axes of the solid.
        colour: Red, green and blue, 0 to 1.
        texture: Name of a pattern that multiplies the colour; "" for none.
        mesh: The mesh, if the form is one.
        swings: Whether it moves with the hinge of the asset.
    """

    form: Form
    half: Vectors
    centre: Vectors
    rotation: Vectors
    colour: Colour
    texture: str = ""
    mesh: Mesh | None = None
    swings: bool = False

    def extent(self) -> tuple[Vectors, Vectors]:
        """Returns the lowest and the highest coordinates (3,) in the frame of the asset."""
        if self.mesh is not None:
            points = self.centre + (self.mesh.vertices * self.half) @ self.rotation.T
            return points.min(0), points.max(0)
        spread = self.rotation * self.half
        if self.form == "box":
            reach = np.abs(spread).sum(1)
        elif self.form == "ellipsoid":
            reach = np.linalg.norm(spread, axis=1)
        else:
            reach = np.linalg.norm(spread[:, :2], axis=1) + np.abs(spread[:, 2])
        return self.centre - reach, self.centre + reach


def revolved(profile: Vectors) -> Mesh:
    """Returns the solid of revolution about z of a closed profile (P, 2) of radii and heights.

    The profile runs from its lowest point on the outside up, and on the inside down; its first and
    last points lie on the axis.
    """
    angle = np.arange(SIDES) * (2 * np.pi / SIDES)
    radius = np.repeat(profile[:, 0], SIDES)
    turns = np.tile(angle, len(profile))
    heights = np.repeat(profile[:, 1], SIDES)
    vertices = np.stack([radius * np.cos(turns), radius * np.sin(turns), heights], axis=1)
    ring = np.arange(SIDES)
    after = (ring + 1) % SIDES
    faces = []
    for low in range(len(profile) - 1):
        a = low * SIDES + ring
        b = low * SIDES + after
        c = b + SIDES
        d = a + SIDES
        if profile[low, 0] > 0:
            faces.append(np.stack([a, b, c], axis=1))
        if profile[low + 1, 0] > 0:
            faces.append(np.stack([a, c, d], axis=1))
    return Mesh(vertices, np.concatenate(faces).astype(np.int32))


def turned(yaw: float) -> Vectors:
    """Returns the rotation (3, 3) by an angle about z, rad."""
    cos = np.cos(yaw)
    sin = np.sin(yaw)
    return np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])


def along(direction: Vectors) -> Vectors:
    """Returns a rotation (3, 3) whose third column is along a direction (3,)."""
    third = direction / np.linalg.norm(direction)
    other = np.eye(3)[int(np.argmin(np.abs(third)))]
    first = np.cross(other, third)
    first /= np.linalg.norm(first)
    return np.stack([first, np.cross(third, first), third], axis=1)


WOODEN = "wooden"
METAL = "grey"
_Ranges = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]
# Ranges of hue, saturation and value, far enough from each other for the names to hold.
COLOURS: Mapping[str, _Ranges] = {
    "red": ((-0.02, 0.015), (0.75, 0.95), (0.6, 0.85)),
    "orange": ((0.06, 0.085), (0.8, 1.0), (0.85, 1.0)),
    "yellow": ((0.13, 0.16), (0.75, 0.95), (0.85, 1.0)),
    "green": ((0.28, 0.4), (0.5, 0.9), (0.35, 0.65)),
    "blue": ((0.57, 0.64), (0.6, 0.95), (0.45, 0.85)),
    "purple": ((0.74, 0.8), (0.45, 0.8), (0.4, 0.7)),
    "pink": ((0.9, 0.95), (0.3, 0.5), (0.85, 1.0)),
    "brown": ((0.04, 0.08), (0.5, 0.75), (0.25, 0.42)),
    "white": ((0.0, 1.0), (0.0, 0.05), (0.9, 1.0)),
    "grey": ((0.0, 1.0), (0.0, 0.05), (0.4, 0.6)),
    "black": ((0.0, 1.0), (0.0, 0.1), (0.06, 0.14)),
    WOODEN: ((0.07, 0.1), (0.45, 0.65), (0.5, 0.85)),
}
BRIGHT = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "white")
FABRIC = (*BRIGHT, "grey", "brown", "black")
TEXTURES: Mapping[str, Family] = {
    "wood": families.WOOD,
    "wicker": families.WICKER,
    "glaze": families.GLAZE,
    "plastic": families.PLASTIC,
    "skin": families.FRUIT,
    "cloth": Family("cloth", patterns.shaded(0.3, 0.5, lowest=3.0), (0.0, 0.1)),
}


def draw_colour(rng: np.random.Generator, names: Sequence[str]) -> tuple[str, Colour]:
    """Draws one of some named colours; returns its name and red, green and blue, 0 to 1."""
    name = names[int(rng.integers(len(names)))]
    hue, saturation, value = (rng.uniform(*limits) for limits in COLOURS[name])
    return name, colorsys.hsv_to_rgb(hue % 1.0, saturation, value)


Stand = Literal["floor", "top", "wall", "opening"]
SCALES = (0.8, 1.25)  # Of sizes within a class.
DARK: Colour = (0.12, 0.12, 0.13)
STEEL: Colour = (0.6, 0.61, 0.63)


@dataclass(frozen=True)
class Top:
    """A level rectangle of an asset on which others can stand.

    Attributes:
        x: Middle, along x, metres.
        y: Middle, along y.
        z: Height.
        half_x: Half length along x.
        half_y: Half length along y.
        clearance: Free height above it.
    """

    x: float
    y: float
    z: float
    half_x: float
    half_y: float
    clearance: float = 10.0


@dataclass(frozen=True)
class Hinge:
    """A vertical or horizontal hinge.

    Attributes:
        point: A point of its axis in the frame of the asset, metres.
        axis: Direction of its axis.
        open_rad: Angle at which it is wide open; the solids are given at 0.
        closed_rad: Angle at which it is closed.
    """

    point: tuple[float, float, float]
    axis: tuple[float, float, float]
    open_rad: float
    closed_rad: float = 0.0


@dataclass(frozen=True, eq=False)
class Asset:
    """A thing with its form, size and colour.

    Attributes:
        identity: Class and variant, such as "mug-017", or file and entry of a catalogue.
        name: Its name, such as "floor lamp".
        noun: The head noun of the name, such as "lamp".
        colour: Name of its main colour; "" where unknown.
        stand: Where it stands; doors and windows are openings, which rooms do not have.
        solids: Its solids in its frame.
        low: (3,) lowest corner of the tight box, in its frame, metres.
        high: (3,) highest corner.
        tops: Where others can stand on it.
        hinge: The hinge of its door or lid.
    """

    identity: str
    name: str
    noun: str
    colour: str
    stand: Stand
    solids: tuple[Solid, ...]
    low: Vectors
    high: Vectors
    tops: tuple[Top, ...] = ()
    hinge: Hinge | None = None

    @property
    def size(self) -> Vectors:
        """Side lengths (3,) of the tight box, metres."""
        return self.high - self.low


def tight(solids: Sequence[Solid]) -> tuple[Vectors, Vectors]:
    """Returns the lowest and the highest corner (3,) of the box around solids."""
    extents = [solid.extent() for solid in solids]
    low = np.min([extent[0] for extent in extents], axis=0)
    return low, np.max([extent[1] for extent in extents], axis=0)


class Sketch:
    """Collects the solids of one asset; lengths in metres, heights from below.

    Attributes:
        rng: Stream of the variant.
        colour: Name of the main colour.
        paint: Red, green and blue of the main colour.
        texture: Texture of solids without another one.
    """

    def __init__(self, noun: str, variant: int) -> None:
        self.rng = np.random.default_rng([zlib.crc32(noun.encode()), variant])
        self.scale = float(np.exp(self.rng.uniform(*np.log(SCALES))))
        self.noun = noun
        self.name = noun
        self.variant = variant
        self.colour = ""
        self.paint: Colour = (0.5, 0.5, 0.5)
        self.texture = ""
        self._solids: list[Solid] = []
        self._tops: list[Top] = []
        self._hinge: Hinge | None = None

    def draw(self, low: float, high: float) -> float:
        """Draws a number."""
        return float(self.rng.uniform(low, high))

    def chance(self, share: float) -> bool:
        """Draws whether something is so."""
        return bool(self.rng.uniform() < share)

    def use(self, *colours: str, texture: str = "") -> Colour:
        """Draws the main colour, and sets it and the texture of what follows."""
        self.colour, self.paint = draw_colour(self.rng, colours or FABRIC)
        self.texture = "wood" if self.colour == WOODEN else texture
        return self.paint

    def second(self, *colours: str) -> Colour:
        """Draws a colour that the name does not tell."""
        return draw_colour(self.rng, colours or (WOODEN, METAL, "black", "white"))[1]

    def box(
        self,
        size: Sequence[float],
        at: Sequence[float] = (0, 0, 0),
        colour: Colour | None = None,
        *,
        tilt: float = 0.0,
        swings: bool = False,
    ) -> None:
        """Adds a box, given the middle of its lower face; `tilt` turns it about x, rad."""
        cos = np.cos(tilt)
        sin = np.sin(tilt)
        rotation = np.array([[1.0, 0, 0], [0, cos, -sin], [0, sin, cos]])
        centre = np.asarray(at, float) + rotation @ (0, 0, size[2] / 2)
        self._add("box", np.asarray(size) / 2, centre, rotation, colour, swings=swings)

    def post(
        self,
        radius: float,
        height: float,
        at: Sequence[float] = (0, 0, 0),
        colour: Colour | None = None,
    ) -> None:
        """Adds an upright cylinder."""
        centre = np.add(at, (0, 0, height / 2))
        self._add("cylinder", np.array([radius, radius, height / 2]), centre, np.eye(3), colour)

    def rod(
        self, start: Sequence[float], end: Sequence[float], radius: float, colour: Colour | None
    ) -> None:
        """Adds a cylinder between two points."""
        a = np.asarray(start, float)
        b = np.asarray(end, float)
        half = np.array([radius, radius, float(np.linalg.norm(b - a)) / 2])
        self._add("cylinder", half, (a + b) / 2, along(b - a), colour)

    def blob(
        self,
        size: Sequence[float],
        at: Sequence[float] = (0, 0, 0),
        colour: Colour | None = None,
        *,
        yaw: float = 0.0,
    ) -> None:
        """Adds an ellipsoid, given its lowest point."""
        centre = np.add(at, (0, 0, size[2] / 2))
        self._add("ellipsoid", np.asarray(size) / 2, centre, turned(yaw), colour)

    def revolve(
        self,
        profile: ArrayLike,
        at: Sequence[float] = (0, 0, 0),
        colour: Colour | None = None,
    ) -> None:
        """Adds a solid of revolution; see `revolved`."""
        mesh = revolved(np.asarray(profile, float))
        self._add("mesh", np.ones(3), np.asarray(at, float), np.eye(3), colour, mesh=mesh)

    def legs(
        self, width: float, depth: float, height: float, radius: float, colour: Colour
    ) -> None:
        """Adds four legs at the corners of a rectangle."""
        for x in (-1, 1):
            for y in (-1, 1):
                place = (x * (width / 2 - radius), y * (depth / 2 - radius), 0)
                self.post(radius, height, place, colour)

    def top(
        self,
        size: Sequence[float],
        z: float,
        at: Sequence[float] = (0, 0),
        clearance: float = 10.0,
    ) -> None:
        """Declares a rectangle on which others can stand."""
        self._tops.append(Top(at[0], at[1], z, size[0] / 2, size[1] / 2, clearance))

    def hinge(
        self,
        point: Sequence[float],
        axis: Sequence[float],
        open_rad: float,
        closed_rad: float = 0.0,
    ) -> None:
        """Declares the hinge of the solids that swing."""
        at = (point[0], point[1], point[2])
        self._hinge = Hinge(at, (axis[0], axis[1], axis[2]), open_rad, closed_rad)

    def finish(self, stand: Stand) -> Asset:
        """Returns the asset."""
        scale = self.scale
        solids = tuple(
            replace(solid, half=solid.half * scale, centre=solid.centre * scale)
            for solid in self._solids
        )
        tops = tuple(
            Top(*(scale * value for value in (t.x, t.y, t.z, t.half_x, t.half_y, t.clearance)))
            for t in self._tops
        )
        hinge = self._hinge
        if hinge is not None:
            x, y, z = (scale * value for value in hinge.point)
            hinge = replace(hinge, point=(x, y, z))
        low, high = tight(solids)
        identity = f"{self.noun.replace(' ', '_')}-{self.variant:03d}"
        known = (identity, self.name, self.noun.split()[-1], self.colour)
        return Asset(*known, stand, solids, low, high, tops, hinge)

    def _add(
        self,
        form: Form,
        half: Vectors,
        centre: Vectors,
        rotation: Vectors,
        colour: Colour | None,
        *,
        mesh: Mesh | None = None,
        swings: bool = False,
    ) -> None:
        # A texture belongs to the main colour only.
        texture = self.texture if colour is None or colour == self.paint else ""
        paint = self.paint if colour is None else colour
        self._solids.append(Solid(form, half, centre, rotation, paint, texture, mesh, swings))
