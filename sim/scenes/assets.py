"""Assets: what stands in rooms, and the sketch by which the forms of a class are drawn."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from stringline.sim.scenes.palette import FABRIC, METAL, WOODEN, draw_colour
from stringline.sim.scenes.solids import (
    Colour,
    Form,
    Mesh,
    Solid,
    Vectors,
    along,
    revolved,
    turned,
)

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
