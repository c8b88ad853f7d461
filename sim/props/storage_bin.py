"""An open bin: a floor and four upright walls."""

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.rigid import Matrix
from stringline.sim.props.prop import Prop
from stringline.sim.props.snack_box import FLAT
from stringline.sim.props.vessel import Colour

GREY: Colour = (0.62, 0.66, 0.70, 1.0)
INSIDE: Colour = (0.42, 0.46, 0.50, 1.0)


class Bin(Prop):
    """Stands on its origin, with z up.

    Attributes:
        inner: (2,), half of its lengths inside along x and y, metres.
        height: Of the rim, metres.
        thickness: Of floor and walls, metres.
        outline: (N, 3), points on the foot of its walls outside, at most 3 cm apart, metres.
    """

    def _build(
        self,
        name: str = "bin",
        *,
        inner: tuple[float, float] = (0.16, 0.29),
        height: float = 0.1,
        thickness: float = 0.005,
        mass: float = 0.8,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            inner: Lengths inside along x and y, metres.
            height: Of the rim, metres.
            thickness: Of floor and walls, metres.
            mass: Of the whole, kg; half of it in the floor.
        """
        self.inner, self.height, self.thickness = np.array(inner) / 2, height, thickness
        (x, y), wall = self.inner, thickness / 2
        self._begin(name, float(np.hypot(x, y)) + thickness)
        outer, middle = self.inner + thickness, (height + thickness) / 2
        self._add((0, 0, wall), (*outer, wall), mass / 2, INSIDE)
        for sign in (-1, 1):
            self._add((sign * (x + wall), 0, middle), (wall, outer[1], middle - thickness), mass / 8, GREY)
            self._add((0, sign * (y + wall), middle), (x, wall, middle - thickness), mass / 8, GREY)
        around = np.array([(u, v) for u in np.linspace(-1, 1, 9) for v in np.linspace(-1, 1, 11) if max(abs(u), abs(v)) == 1])
        self.outline = np.column_stack([around * outer, np.zeros(len(around))])

    def contains(self, points: Matrix) -> bool:
        """Says whether points (N, 3) in its frame, metres, are between its walls, above its floor and below its rim."""
        slack = 0.001  # What contacts give way.
        within = (np.abs(points[:, :2]) < self.inner + slack).all()
        return bool(within and (points[:, 2] > self.thickness - slack).all() and (points[:, 2] < self.height).all())

    def _add(self, centre: tuple[float, float, float] | Vector, half: tuple[float, ...], mass: float, colour: Colour) -> None:
        self.body.add("geom", type="box", pos=centre, size=half, mass=mass, rgba=colour, **FLAT)
