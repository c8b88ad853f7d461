"""Boards with pockets milled into their top: boxes of exactly the right sizes around them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from stringline.sim.props.peg import STIFF
from stringline.sim.props.prop import CONTACT, Prop
from stringline.sim.props.vessel import Colour

RED: Colour = (0.85, 0.12, 0.10, 1.0)


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
        return abs(x - self.centre[0]) < self.size[0] / 2 and abs(y - self.centre[1]) < self.size[1] / 2


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
        colour: Colour = RED,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            size: Full lengths along x, y and z, metres.
            pockets: At least one, and none through the whole board; where two overlap, the deeper one counts.
            mass: In kg.
            colour: RGBA.

        Raises:
            ValueError: There is no pocket, or one is as deep as the board is high.
        """
        deepest = max((pocket.depth for pocket in pockets), default=0.0)
        if not 0 < deepest < size[2]:
            raise ValueError(f"The deepest pocket has {deepest} m; allowed: above 0 and below the board's height, {size[2]} m.")
        self._begin(name, float(np.hypot(size[0], size[1]) / 2 + size[2]))
        self.height, self.recess, self.size = size[2], pockets[0], size
        self.colour = colour
        floor = size[2] - deepest
        self._add((-size[0] / 2, -size[1] / 2, 0.0), (size[0] / 2, size[1] / 2, floor), mass)
        for low, high, top in _blocks(size, pockets):
            if top > floor:
                self._add((*low, floor), (*high, top), 0.0)

    def _add(self, low: Sequence[float], high: Sequence[float], mass: float) -> None:
        a, b = np.array(low), np.array(high)
        # What lies deeper is drawn darker, since there are no shadows.
        light = 1.0 - 0.55 * np.sqrt(1.0 - high[2] / self.height)
        rgba = (*(light * value for value in self.colour[:3]), self.colour[3])
        self.body.add("geom", type="box", pos=(a + b) / 2, size=(b - a) / 2, mass=mass, rgba=rgba, **{**CONTACT, **STIFF})


def _blocks(
    size: tuple[float, float, float], pockets: Sequence[Pocket]
) -> Iterator[tuple[tuple[float, float], tuple[float, float], float]]:
    """Yields low corner, high corner and top of blocks that fill the board around its pockets: strips along y, few and long."""
    cuts = []
    for axis in (0, 1):
        edges = {pocket.centre[axis] + sign * pocket.size[axis] / 2 for pocket in pockets for sign in (-1, 1)}
        # Rounded, since two edges in one place must not leave a strip of no width between them.
        cuts.append(sorted({round(edge, 6) for edge in edges | {-size[axis] / 2, size[axis] / 2}}))

    def top(x: float, y: float) -> float:
        return size[2] - max((pocket.depth for pocket in pockets if pocket.contains(x, y)), default=0.0)

    for x in pairwise(cuts[0]):
        cells = [(y, top(sum(x) / 2, sum(y) / 2)) for y in pairwise(cuts[1])]
        for height, run in groupby(cells, key=lambda cell: cell[1]):
            ys = [y for y, _ in run]
            yield (x[0], ys[0][0]), (x[1], ys[-1][1]), height
