"""Parts to insert and their counterparts: block, peg, socket and recessed board."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, permutations, product

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.mjcf_parts import DRAWN
from stringline.sim.props.prop import CONTACT, FLAT_CONTACT, Prop
from stringline.sim.props.vessel import Colour

BLOCK_RED: Colour = (0.86, 0.16, 0.13, 1.0)


class Block(Prop):
    """Lies along its x axis; the origin is its middle."""

    def _build(
        self,
        name: str = "block",
        *,
        length: float = 0.12,
        width: float = 0.03,
        mass: float = 0.06,
        colour: Colour = BLOCK_RED,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            length: Along x, metres.
            width: Width and height.
            mass: In kg.
            colour: RGBA.
        """
        self._begin(name, length / 2)
        self.length = length
        self.width = width
        self.body.add(
            "geom",
            type="box",
            size=(length / 2, width / 2, width / 2),
            mass=mass,
            rgba=colour,
            **FLAT_CONTACT,
        )


YELLOW: Colour = (0.98, 0.83, 0.08, 1.0)
# Stiffer than other props: where parts fit to 2 mm, none may sink into another by a tenth of that.
STIFF: dict[str, object] = {"solref": (0.005, 1.5), "solimp": (0.98, 0.998, 0.0005)}


class Peg(Prop):
    """Its origin is its centre, its long side lies along x."""

    def _build(
        self,
        name: str = "peg",
        *,
        size: tuple[float, float, float] = (0.2, 0.037, 0.037),
        mass: float = 0.16,
        colour: Colour = YELLOW,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            size: Full lengths along x, y and z, metres.
            mass: In kg; by default that of soft wood.
            colour: RGBA.
        """
        self.half = np.array(size) / 2
        self._begin(name, float(np.linalg.norm(self.half)))
        self.corners = np.array(list(product((-1.0, 1.0), repeat=3))) * self.half
        self.body.add(
            "geom", type="box", size=self.half, mass=mass, rgba=colour, **{**CONTACT, **STIFF}
        )

    def symmetries(self) -> NDArray[np.float64]:
        """Returns the rotations (n, 3, 3) that leave the box as it is; the first is none at all."""
        turns = [
            np.eye(3)[list(order)] * signs
            for order in permutations(range(3))
            for signs in product((1.0, -1.0), repeat=3)
        ]
        return np.array(
            [
                t
                for t in turns
                if np.linalg.det(t) > 0 and np.allclose(np.abs(t) @ self.half, self.half)
            ]
        )


BLUE: Colour = (0.10, 0.33, 0.85, 1.0)
LIGHT = (0.55, 0.78, 1.0, 1.0)
DARK = (0.02, 0.05, 0.16, 1.0)
# Length of the light rims, and how far they and the dark lining stand out, metres.
RIM = 0.01
VIDEO = 0.0003


class Socket(Prop):
    """Lies along its x axis; the origin is its middle.

    Its default size is that of gym-aloha's socket.
    """

    def _build(
        self,
        name: str = "socket",
        *,
        length: float = 0.12,
        bore: float = 0.036,
        width: float = 0.044,
        mass: float = 0.07,
        colour: Colour = BLUE,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            length: Along x, metres.
            bore: Width and height of the hole.
            width: Width and height outside.
            mass: Of the whole, kg.
            colour: RGBA.

        Raises:
            ValueError: There is nothing left for the walls.
        """
        if not 0 < bore < width:
            raise ValueError(
                f"bore is {bore} m; allowed: above 0 and below the width of {width} m."
            )
        self._begin(name, length / 2)
        self.length = length
        self.bore = bore
        self.width = width
        wall = (width - bore) / 4  # Half of its thickness.
        for sign in (-1.0, 1.0):
            for turned in (False, True):
                self._add_wall(
                    sign * (bore / 2 + wall), wall, turned=turned, colour=colour, mass=mass / 4
                )

    def _add_wall(
        self, across: float, wall: float, *, turned: bool, colour: Colour, mass: float
    ) -> None:
        """Adds the wall whose middle is that far from the axis, along z or along y, with what shows that it is a tube."""

        def add(
            along: float, out: float, half: tuple[float, float, float], rgba: Colour, **more: object
        ) -> None:
            place, size = (
                ((along, out, 0.0), (half[0], half[2], half[1]))
                if turned
                else ((along, 0.0, out), half)
            )
            self.body.add("geom", type="box", pos=place, size=size, rgba=rgba, **more)

        drawn = {"contype": 0, "conaffinity": 0, "group": DRAWN, "mass": 0}
        side = (self.bore if turned else self.width) / 2
        end = self.length / 2
        add(0.0, across, (end, side, wall), colour, mass=mass, **FLAT_CONTACT)
        add(0.0, across - wall * np.sign(across), (end - RIM, self.bore / 2, VIDEO), DARK, **drawn)
        for along in (RIM / 2 - end, end - RIM / 2):
            add(along, across, (RIM / 2 + VIDEO, side + VIDEO, wall + VIDEO), LIGHT, **drawn)


BOARD_RED: Colour = (0.85, 0.12, 0.10, 1.0)


@dataclass(frozen=True)
class Pocket:
    """A rectangular hole from above.

    Attributes:
        size: Along x and y of the board, metres.
        depth: Below the board's top, metres.
        centre: On the board's top, metres.
    """

    size: tuple[float, float]
    depth: float
    centre: tuple[float, float] = (0.0, 0.0)

    def contains(self, x: float, y: float) -> bool:
        """Says whether a point of the board's top lies over it."""
        return (
            abs(x - self.centre[0]) < self.size[0] / 2
            and abs(y - self.centre[1]) < self.size[1] / 2
        )


class RecessedBoard(Prop):
    """Stands on its origin, with z up; the first pocket is the recess that something is to fill.

    Real boards are screwed to the table. This one is so heavy that it takes some 80 N to move it.
    """

    def _build(
        self,
        name: str = "board",
        *,
        size: tuple[float, float, float],
        pockets: Sequence[Pocket],
        mass: float = 12.0,
        colour: Colour = BOARD_RED,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            size: Full lengths along x, y and z, metres.
            pockets: At least one, and none through the whole board; where two overlap, the deeper
                one counts.
            mass: In kg.
            colour: RGBA.

        Raises:
            ValueError: There is no pocket, or one is as deep as the board is high.
        """
        deepest = max((pocket.depth for pocket in pockets), default=0.0)
        if not 0 < deepest < size[2]:
            raise ValueError(
                f"The deepest pocket has {deepest} m; allowed: above 0 and below the board's "
                f"height, {size[2]} m."
            )
        self._begin(name, float(np.hypot(size[0], size[1]) / 2 + size[2]))
        self.height = size[2]
        self.recess = pockets[0]
        self.size = size
        self.colour = colour
        floor = size[2] - deepest
        self._add((-size[0] / 2, -size[1] / 2, 0.0), (size[0] / 2, size[1] / 2, floor), mass)
        for low, high, top in _blocks(size, pockets):
            if top > floor:
                self._add((*low, floor), (*high, top), 0.0)

    def _add(self, low: Sequence[float], high: Sequence[float], mass: float) -> None:
        a = np.array(low)
        b = np.array(high)
        # What lies deeper is drawn darker, since there are no shadows.
        light = 1.0 - 0.55 * np.sqrt(1.0 - high[2] / self.height)
        rgba = (*(light * value for value in self.colour[:3]), self.colour[3])
        self.body.add(
            "geom",
            type="box",
            pos=(a + b) / 2,
            size=(b - a) / 2,
            mass=mass,
            rgba=rgba,
            **{**CONTACT, **STIFF},
        )


def _blocks(
    size: tuple[float, float, float], pockets: Sequence[Pocket]
) -> Iterator[tuple[tuple[float, float], tuple[float, float], float]]:
    """Yields low corner, high corner and top of blocks that fill the board around its pockets: strips along y, few and long."""
    cuts = []
    for axis in (0, 1):
        edges = {
            pocket.centre[axis] + sign * pocket.size[axis] / 2
            for pocket in pockets
            for sign in (-1, 1)
        }
        # Rounded, since two edges in one place must not leave a strip of no width between them.
        cuts.append(sorted({round(edge, 6) for edge in edges | {-size[axis] / 2, size[axis] / 2}}))

    def top(x: float, y: float) -> float:
        return size[2] - max(
            (pocket.depth for pocket in pockets if pocket.contains(x, y)), default=0.0
        )

    for x in pairwise(cuts[0]):
        cells = [(y, top(sum(x) / 2, sum(y) / 2)) for y in pairwise(cuts[1])]
        for height, run in groupby(cells, key=lambda cell: cell[1]):
            ys = [y for y, _ in run]
            yield (x[0], ys[0][0]), (x[1], ys[-1][1]), height
