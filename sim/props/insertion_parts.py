"""Parts to insert and their counterparts: block, peg, socket and recessed board.

All lengths are in metres.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, permutations, product

import numpy as np
from numpy.typing import NDArray

from stringline.sim.props.prop import CONTACT, FLAT_CONTACT, VISUAL, Colour, Prop

BLOCK_RED: Colour = (0.86, 0.16, 0.13, 1.0)
BOARD_RED: Colour = (0.85, 0.12, 0.10, 1.0)
YELLOW: Colour = (0.98, 0.83, 0.08, 1.0)
BLUE: Colour = (0.10, 0.33, 0.85, 1.0)
LIGHT: Colour = (0.55, 0.78, 1.0, 1.0)
DARK: Colour = (0.02, 0.05, 0.16, 1.0)
# Stiffer than other props: where parts fit to 2 mm, none may sink into another by a tenth of that.
STIFF_CONTACT: dict[str, object] = {
    **CONTACT,
    "solref": (0.005, 1.5),
    "solimp": (0.98, 0.998, 0.0005),
}
RIM_M = 0.01  # Length of the light rims of a socket.
RAISED_M = 0.0003  # Thickness of the light rims and of the dark lining.


class Block(Prop):
    """A square bar along its x axis; the origin is its middle.

    Attributes:
        length: Length along x, metres.
        width: Width and height, metres.
    """

    def _build(
        self,
        name: str = "block",
        *,
        length: float = 0.12,
        width: float = 0.03,
        mass: float = 0.06,
        colour: Colour = BLOCK_RED,
    ) -> None:
        """Builds the model.

        Args:
            name: Name of the prop.
            length: Length along x, metres.
            width: Width and height, metres.
            mass: Mass, kg.
            colour: Colour of the bar.
        """
        self._begin(name, length / 2)
        self.length = length
        self.width = width
        half = (length / 2, width / 2, width / 2)
        self._add_box((0, 0, 0), half, mass, colour)


class Peg(Prop):
    """A cuboid with its long side along x; the origin is its centre.

    Attributes:
        half: (3,), half of its lengths, metres.
        corners: (8, 3), metres.
    """

    def _build(
        self, *, size: tuple[float, float, float] = (0.2, 0.037, 0.037), mass: float = 0.16
    ) -> None:
        """Builds the model; the default mass in kg is that of soft wood."""
        self.half = np.array(size) / 2
        self._begin("peg", float(np.linalg.norm(self.half)))
        self.corners = np.array(list(product((-1.0, 1.0), repeat=3))) * self.half
        self._add_box((0, 0, 0), self.half, mass, YELLOW, STIFF_CONTACT)

    def symmetries(self) -> NDArray[np.float64]:
        """Returns the rotations (n, 3, 3) that map the cuboid to itself, the identity first."""
        orders = permutations(range(3))
        signs = list(product((1.0, -1.0), repeat=3))
        turns = [np.eye(3)[list(order)] * sign for order in orders for sign in signs]
        rotations = [turn for turn in turns if np.linalg.det(turn) > 0]
        return np.array([T for T in rotations if np.allclose(np.abs(T) @ self.half, self.half)])


class Socket(Prop):
    """A square tube along its x axis; the origin is its middle.

    Its default size is that of gym-aloha's socket: `width` outside, `bore` inside.
    """

    width = 0.044
    bore = 0.036

    def _build(self, *, length: float = 0.12, mass: float = 0.07) -> None:
        """Builds the model, of a mass in kg."""
        self._begin("socket", length / 2)
        self.length = length
        wall = (self.width - self.bore) / 4  # Half of its thickness.
        for sign in (-1.0, 1.0):
            for turned in (False, True):
                self._add_wall(sign * (self.bore / 2 + wall), wall, turned=turned, mass=mass / 4)

    def _add_wall(self, across: float, wall: float, *, turned: bool, mass: float) -> None:
        """Adds a wall with a light rim at each end and a dark lining, which show that it is a tube.

        `across` is the position of the wall's middle along z, or along y if it is turned about x by
        a quarter; `wall` is half its thickness.
        """

        def add(
            x: float, out: float, half: tuple[float, float, float], rgba: Colour, **more: object
        ) -> None:
            place = (x, out, 0.0) if turned else (x, 0.0, out)
            size = (half[0], half[2], half[1]) if turned else half
            self.body.add("geom", type="box", pos=place, size=size, rgba=rgba, **more)

        side = (self.bore if turned else self.width) / 2
        end = self.length / 2
        lining = (end - RIM_M, self.bore / 2, RAISED_M)
        rim = (RIM_M / 2 + RAISED_M, side + RAISED_M, wall + RAISED_M)
        add(0.0, across, (end, side, wall), BLUE, mass=mass, **FLAT_CONTACT)
        add(0.0, across - wall * np.sign(across), lining, DARK, **VISUAL)
        for x in (RIM_M / 2 - end, end - RIM_M / 2):
            add(x, across, rim, LIGHT, **VISUAL)


@dataclass(frozen=True)
class Pocket:
    """A rectangular hole from above; size and centre are along x and y of the board."""

    size: tuple[float, float]
    depth: float
    centre: tuple[float, float] = (0.0, 0.0)

    def contains(self, x: float, y: float) -> bool:
        """Returns whether a point of the board's top is above the pocket."""
        across = abs(y - self.centre[1]) < self.size[1] / 2
        return abs(x - self.centre[0]) < self.size[0] / 2 and across


class RecessedBoard(Prop):
    """A board that stands on its origin, with z up; its first pocket is the recess to fill.

    Real boards are screwed to the table. This one is so heavy that it takes some 80 N to move it.
    """

    def _build(
        self,
        *,
        size: tuple[float, float, float],
        pockets: Sequence[Pocket],
    ) -> None:
        """Builds the model; where two pockets overlap, the deeper one counts."""
        deepest = max((pocket.depth for pocket in pockets), default=0.0)
        if not 0 < deepest < size[2]:
            raise ValueError(
                f"The deepest pocket has {deepest} m; allowed: above 0 and below the board's "
                f"height, {size[2]} m."
            )
        self._begin("board", float(np.hypot(size[0], size[1]) / 2 + size[2]))
        self.height = size[2]
        self.recess = pockets[0]
        self.size = size
        floor = size[2] - deepest
        self._add((-size[0] / 2, -size[1] / 2, 0.0), (size[0] / 2, size[1] / 2, floor), 12.0)
        for low, high, top in _blocks(size, pockets):
            if top > floor:
                self._add((*low, floor), (*high, top), 0.0)

    def _add(self, low: Sequence[float], high: Sequence[float], mass: float) -> None:
        a = np.array(low)
        b = np.array(high)
        # Lower faces are darker, in place of shadows.
        light = 1.0 - 0.55 * np.sqrt(1.0 - high[2] / self.height)
        rgba = (*(light * value for value in BOARD_RED[:3]), BOARD_RED[3])
        self._add_box((a + b) / 2, (b - a) / 2, mass, rgba, STIFF_CONTACT)


Corner = tuple[float, float]


def _blocks(
    size: tuple[float, float, float], pockets: Sequence[Pocket]
) -> Iterator[tuple[Corner, Corner, float]]:
    """Yields low corner, high corner and top of blocks that fill the board around its pockets.

    The blocks are strips along y, few and long.
    """
    cuts = []
    for axis in (0, 1):
        edges = {-size[axis] / 2, size[axis] / 2}
        for pocket in pockets:
            edges |= {pocket.centre[axis] + sign * pocket.size[axis] / 2 for sign in (-1, 1)}
        # Rounded, since two edges at one place must not leave a strip without width.
        cuts.append(sorted({round(edge, 6) for edge in edges}))

    def top(x: float, y: float) -> float:
        depths = (pocket.depth for pocket in pockets if pocket.contains(x, y))
        return size[2] - max(depths, default=0.0)

    for x in pairwise(cuts[0]):
        cells = [(y, top(sum(x) / 2, sum(y) / 2)) for y in pairwise(cuts[1])]
        for height, run in groupby(cells, key=lambda cell: cell[1]):
            ys = [y for y, _ in run]
            yield (x[0], ys[0][0]), (x[1], ys[-1][1]), height
