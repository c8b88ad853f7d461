"""Objects to grasp, one for each of 24 parametric forms, for the tasks of the KUKA cell.

A form has solids, and grasps by which two pads hold them. All lengths are in metres. A form rests
on the table with its z axis up.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, quaternion, rotation_about
from stringline.sim.props.prop import CONTACT, FLAT_CONTACT, Colour, Prop

X, Y, Z = np.eye(3)
UPRIGHT = np.eye(3)
WIDEST = 0.09  # Largest width to grasp; the gripper opens 110 mm.
LEVEL = 0.3  # Largest slope of the direction in which the pads close, as its sine.
WALL_PIECES = 16
AROUND = np.arange(6) * np.pi / 6  # Directions in which pads close on round parts.


@dataclass(frozen=True, eq=False)
class Part:
    """A solid of a form.

    Attributes:
        size: Box: half its lengths. Cylinder and capsule: radius, and half the length along z.
            Sphere: radius.
        position: (3,), its middle.
        turn: (3, 3), its rotation.
    """

    kind: Literal["box", "cylinder", "capsule", "sphere"]
    size: tuple[float, ...]
    position: Vector
    turn: Matrix

    @property
    def volume(self) -> float:
        """Volume, cubic metres."""
        if self.kind == "box":
            return float(8 * np.prod(self.size))
        radius = self.size[0]
        sphere = 4 / 3 * np.pi * radius**3
        if self.kind == "sphere":
            return float(sphere)
        cylinder = 2 * np.pi * radius**2 * self.size[1]
        return float(cylinder + (sphere if self.kind == "capsule" else 0.0))

    def balls(self) -> tuple[Matrix, Vector]:
        """Returns centres (N, 3) and radii (N,) of balls whose hull is the part.

        A cylinder is approximated by a prism with 16 sides.
        """
        if self.kind == "box":
            corners = [(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
            points = np.array(corners) * np.array(self.size)
            radii = np.zeros(8)
        elif self.kind == "cylinder":
            angles = np.arange(16) * np.pi / 8
            rim = self.size[0] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
            ends = [np.insert(rim, 2, sign * self.size[1], axis=1) for sign in (-1, 1)]
            points = np.concatenate(ends)
            radii = np.zeros(32)
        else:
            half = self.size[1] if self.kind == "capsule" else 0.0
            points = np.array([-half * Z, half * Z])
            radii = np.full(2, self.size[0])
        return points @ self.turn.T + self.position, radii


@dataclass(frozen=True, eq=False)
class Hold:
    """An antipodal grasp of a form, by two pads on opposite sides of a point.

    Attributes:
        point: (3,), middle between the pads.
        across: (3,), unit vector of the direction in which they close.
        width: Distance between the closed pads.
        around: Whether the pads can close in any direction at right angles to the form's z axis.
    """

    point: Vector
    across: Vector
    width: float
    around: bool = False

    def is_level(self, turn: Matrix = UPRIGHT) -> bool:
        """Returns whether the pads close nearly horizontally on a form with a rotation (3, 3)."""
        return bool(abs(turn[2] @ self.across) <= LEVEL)


@dataclass(frozen=True, eq=False)
class Form:
    """The shape of an object, and how it can be held.

    Attributes:
        parts: Its solids.
        holds: Grasps in which the pads do not collide with its own parts.
    """

    parts: Sequence[Part]
    holds: Sequence[Hold]


def box(size: ArrayLike, position: ArrayLike = (0.0, 0.0, 0.0), turn: Matrix = UPRIGHT) -> Part:
    """Returns a box with lengths (3,)."""
    x, y, z = np.asarray(size, float) / 2
    return Part("box", (float(x), float(y), float(z)), np.asarray(position, float), turn)


def rod(
    kind: Literal["cylinder", "capsule"],
    radius: float,
    length: float,
    position: ArrayLike = (0.0, 0.0, 0.0),
    axis: ArrayLike = Z,
) -> Part:
    """Returns a cylinder or a capsule, of that length without its caps, along an axis (3,)."""
    return Part(
        kind, (radius, length / 2), np.asarray(position, float), _turn_to(np.asarray(axis, float))
    )


def block(x: float, y: float, z: float) -> Form:
    """A cuboid."""
    return Form([box((x, y, z))], list(faces((x, y, z))))


def pillar(radius: float, height: float) -> Form:
    """An upright cylinder."""
    return Form([rod("cylinder", radius, height)], list(rounds((0, 0, 0), radius)))


def roller(radius: float, length: float) -> Form:
    """A lying cylinder."""
    holds = [Hold(share * length * X, Y, 2 * radius) for share in (-0.3, 0.0, 0.3)]
    return Form([rod("cylinder", radius, length, axis=X)], holds)


def ball(radius: float) -> Form:
    """A ball."""
    return Form([Part("sphere", (radius,), np.zeros(3), UPRIGHT)], list(rounds((0, 0, 0), radius)))


def plan(
    height: float,
    bars: Iterable[tuple[float, float, float, float]],
    holds: Iterable[tuple[float, float, str]],
) -> Form:
    """Lying bars that form a letter, all of the same height.

    `bars` has the middle (x, y) and the lengths along x and y of each bar. `holds` has for each
    grasp a point (x, y), and the axis, `x` or `y`, along which the pads close on the bar at that
    point.
    """
    listed = list(bars)
    parts = [box((length, width, height), (x, y, 0)) for x, y, length, width in listed]
    return Form(parts, [_around_bar(listed, x, y, axis) for x, y, axis in holds])


def arc(radius: float, bend: float, angle: float, pieces: int = 6) -> Form:
    """A lying round bar whose axis has the radius `bend` and spans an angle in rad, of capsules."""
    angles = np.linspace(-angle / 2, angle / 2, pieces + 1)
    points = bend * np.stack([1 - np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    parts = []
    for a, b in pairwise(points):
        length = np.linalg.norm(b - a)
        parts.append(rod("capsule", radius, float(length), (a + b) / 2, (b - a) / length))
    holds = []
    for a in angle * np.array([-0.25, 0.0, 0.25]):
        point = bend * np.array([1 - np.cos(a), np.sin(a), 0.0])
        holds.append(Hold(point, np.array([np.cos(a), -np.sin(a), 0.0]), 2 * radius))
    return Form(parts, holds)


def tube(radius: float, height: float, wall: float, floor: float = 0.0) -> Form:
    """A hollow upright cylinder of 16 wall pieces; a cup if its floor has a thickness."""
    parts = []
    inner = radius - wall
    width = 2 * radius * np.tan(np.pi / WALL_PIECES)
    for angle in np.arange(WALL_PIECES) * 2 * np.pi / WALL_PIECES:
        turn = rotation_about(Z, angle)
        parts.append(box((wall, width, height), turn @ ((inner + wall / 2) * X), turn))
    if floor:
        half = inner / np.sqrt(2)
        parts += [
            box((2 * half, 2 * half, floor), (0, 0, (floor - height) / 2), rotation_about(Z, a))
            for a in (0.0, np.pi / 4)
        ]
    angles = np.arange(WALL_PIECES // 2) * 2 * np.pi / WALL_PIECES
    return Form(parts, list(rounds((0, 0, 0), radius, angles)))


def frame(length: float, height: float, wall: float) -> Form:
    """A hollow square of four walls, open at the top and the bottom."""
    middle = (length - wall) / 2
    inner = length - 2 * wall
    sides = [box((wall, length, height), (sign * middle, 0, 0)) for sign in (-1, 1)]
    sides += [box((inner, wall, height), (0, sign * middle, 0)) for sign in (-1, 1)]
    return Form(sides, [Hold(np.zeros(3), across, length) for across in (X, Y)])


def arch(span: float, width: float, height: float, leg: float) -> Form:
    """A beam along x on two legs."""
    beam = box((span, width, leg), (0, 0, (height - leg) / 2))
    size = (leg, width, height - leg)
    feet = [box(size, (sign * (span - leg) / 2, 0, -leg / 2)) for sign in (-1, 1)]
    points = [np.array([x, 0, (height - leg) / 2]) for x in (-0.3 * span, 0.0, 0.3 * span)]
    return Form([beam, *feet], [Hold(point, Y, width) for point in points])


def mallet(handle: float, radius: float, head: tuple[float, float]) -> Form:
    """A lying round handle along x with a block at its end, as high as the handle.

    `head` has the lengths of the block along x and y.
    """
    end = (handle + head[0]) / 2
    parts = [rod("cylinder", radius, handle, axis=X), box((*head, 2 * radius), (end, 0, 0))]
    holds = [Hold(x * handle * X, Y, 2 * radius) for x in (-0.25, 0.0, 0.2)]
    return Form(parts, [*holds, Hold(end * X, Y, head[1])])


def bottle(radius: float, height: float, neck: float, neck_height: float) -> Form:
    """An upright cylinder with a thinner one on top; the origin is the middle of both together."""
    body = rod("cylinder", radius, height - neck_height, (0, 0, -neck_height / 2))
    top = rod("cylinder", neck, neck_height, (0, 0, (height - neck_height) / 2))
    low = (0.0, 0.0, -neck_height / 2 + 0.01)
    high = (0.0, 0.0, (height - neck_height) / 2)
    return Form([body, top], [*rounds(low, radius), *rounds(high, neck)])


def faces(size: Sequence[float]) -> Iterable[Hold]:
    """Yields grasps of a cuboid of lengths (3,) by opposite faces, at its middle and beside it."""
    for axis, width in enumerate(size):
        along = max((other for other in range(3) if other != axis), key=lambda other: size[other])
        shares = (-0.25, 0.0, 0.25) if size[along] > 0.06 else (0.0,)
        if width <= WIDEST:
            for share in shares:
                yield Hold(share * size[along] * np.eye(3)[along], np.eye(3)[axis], width)


def rounds(point: ArrayLike, radius: float, angles: ArrayLike = AROUND) -> Iterable[Hold]:
    """Yields grasps of a round part from its sides."""
    for angle in np.asarray(angles, float):
        across = rotation_about(Z, angle) @ X
        yield Hold(np.asarray(point, float), across, 2 * radius, around=True)


def _around_bar(
    bars: Sequence[tuple[float, float, float, float]], x: float, y: float, axis: str
) -> Hold:
    """Returns the grasp of the bar that covers a point, across the bar's middle."""
    for middle_x, middle_y, length, width in bars:
        if abs(x - middle_x) <= length / 2 and abs(y - middle_y) <= width / 2:
            if axis == "x":
                return Hold(np.array([middle_x, y, 0.0]), X, length)
            return Hold(np.array([x, middle_y, 0.0]), Y, width)
    raise ValueError(f"No bar covers ({x}, {y}) m; the bars are {list(bars)}.")


def _turn_to(axis: Vector) -> Matrix:
    """Returns a rotation (3, 3) that maps z to a unit vector (3,)."""
    helper = X if abs(axis[0]) < 0.9 else Y
    first = np.cross(helper, axis)
    first /= np.linalg.norm(first)
    return np.stack([first, np.cross(axis, first), axis], axis=1)


DENSITY = 600.0  # kg/m^3, as of wood.
LIGHTEST_KG = 0.04
HEAVIEST_KG = 0.25


class Graspable(Prop):
    """An object around its origin, which rests with its z axis up.

    Attributes:
        points: (N, 3), centres of balls whose hull is the object, metres.
        radii: (N,), radii of the balls, metres.
        holds: Its grasps.
    """

    points: Matrix
    radii: Vector
    holds: Sequence[Hold]

    @property
    def rest_height(self) -> float:
        """Height of the origin above the ground on which the object rests, metres."""
        return -float((self.points[:, 2] - self.radii).min())

    def lowest(self, T_base_item: Matrix) -> float:
        """Returns the height of its lowest point in the base frame, metres."""
        return float((self.points @ T_base_item[2, :3] + T_base_item[2, 3] - self.radii).min())

    def highest(self, T_base_item: Matrix) -> float:
        """Returns the height of its highest point in the base frame, metres."""
        return float((self.points @ T_base_item[2, :3] + T_base_item[2, 3] + self.radii).max())


FORMS: Mapping[str, tuple[Form, Colour]] = MappingProxyType(
    {
        "cube": (block(0.045, 0.045, 0.045), (0.85, 0.12, 0.10, 1.0)),
        "brick": (block(0.09, 0.045, 0.035), (0.80, 0.38, 0.18, 1.0)),
        "beam": (block(0.15, 0.03, 0.03), (0.95, 0.78, 0.15, 1.0)),
        "tile": (block(0.085, 0.085, 0.024), (0.90, 0.90, 0.86, 1.0)),
        "tower": (block(0.04, 0.05, 0.1), (0.12, 0.35, 0.85, 1.0)),
        "can": (pillar(0.033, 0.09), (0.15, 0.65, 0.30, 1.0)),
        "puck": (pillar(0.04, 0.03), (0.95, 0.45, 0.08, 1.0)),
        "post": (pillar(0.02, 0.1), (0.60, 0.20, 0.75, 1.0)),
        "roller": (roller(0.024, 0.11), (0.10, 0.70, 0.75, 1.0)),
        "stick": (roller(0.016, 0.15), (0.72, 0.52, 0.30, 1.0)),
        "ball": (ball(0.028), (0.93, 0.30, 0.50, 1.0)),
        "angle": (
            plan(
                0.032,
                [(0, 0, 0.1, 0.03), (0.035, 0.05, 0.03, 0.07)],
                [(-0.028, 0, "y"), (-0.01, 0, "y"), (0.035, 0.06, "x")],
            ),
            (0.55, 0.75, 0.15, 1.0),
        ),
        "channel": (
            plan(
                0.032,
                [(0, 0, 0.12, 0.028), (-0.046, 0.046, 0.028, 0.064), (0.046, 0.046, 0.028, 0.064)],
                [(0, 0, "y"), (-0.046, 0.055, "x"), (0.046, 0.055, "x")],
            ),
            (0.20, 0.55, 0.90, 1.0),
        ),
        "tee": (
            plan(
                0.03,
                [(0, 0, 0.11, 0.03), (0, 0.05, 0.03, 0.07)],
                [(-0.035, 0, "y"), (0.035, 0, "y"), (0, 0.055, "x")],
            ),
            (0.80, 0.70, 0.20, 1.0),
        ),
        "cross": (
            plan(
                0.03,
                [(0, 0, 0.13, 0.03), (0, 0.04, 0.03, 0.05), (0, -0.04, 0.03, 0.05)],
                [(-0.045, 0, "y"), (0.045, 0, "y"), (0, 0.05, "x"), (0, -0.05, "x")],
            ),
            (0.95, 0.95, 0.30, 1.0),
        ),
        "arc": (arc(0.017, 0.16, 0.8), (0.98, 0.83, 0.08, 1.0)),
        "hook": (arc(0.015, 0.045, 2.6, pieces=8), (0.45, 0.30, 0.85, 1.0)),
        "tube": (tube(0.036, 0.07, 0.006), (0.25, 0.80, 0.55, 1.0)),
        "ring": (tube(0.042, 0.028, 0.009), (0.90, 0.20, 0.30, 1.0)),
        "frame": (frame(0.08, 0.04, 0.009), (0.95, 0.60, 0.35, 1.0)),
        "cup": (tube(0.036, 0.08, 0.005, floor=0.006), (0.55, 0.85, 0.95, 1.0)),
        "arch": (arch(0.1, 0.035, 0.06, 0.024), (0.85, 0.25, 0.65, 1.0)),
        "mallet": (mallet(0.1, 0.014, (0.035, 0.07)), (0.60, 0.35, 0.15, 1.0)),
        "bottle": (bottle(0.03, 0.11, 0.015, 0.035), (0.10, 0.45, 0.35, 1.0)),
    }
)


class GraspObject(Graspable):
    """An object of one of the forms."""

    def _build(self, name: str) -> None:
        """Builds the object of a name in `FORMS`."""
        form, colour = FORMS[name]
        self.holds = form.holds
        balls = [part.balls() for part in form.parts]
        self.points, self.radii = (np.concatenate(arrays) for arrays in zip(*balls, strict=True))
        self._begin(name, float((np.linalg.norm(self.points, axis=1) + self.radii).max()))
        volume = sum(part.volume for part in form.parts)
        mass = float(np.clip(DENSITY * volume, LIGHTEST_KG, HEAVIEST_KG))
        for part in form.parts:
            shape = {"type": part.kind, "size": part.size, "rgba": colour}
            place = {"pos": part.position, "quat": quaternion(part.turn)}
            contact = FLAT_CONTACT if part.kind == "box" else CONTACT
            mass_share = mass * part.volume / volume
            self.body.add("geom", mass=mass_share, **shape, **place, **contact)
