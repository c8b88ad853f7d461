"""A flat tray with a low rim."""

import numpy as np

from stringline.datasets.embodiments.rigid import Matrix
from stringline.sim.props.prop import FLAT_CONTACT, Prop
from stringline.sim.props.vessel import Colour

RIM: Colour = (0.93, 0.93, 0.95, 1.0)
FLOOR: Colour = (0.30, 0.33, 0.38, 1.0)


class Tray(Prop):
    """A square that stands on its origin, with z up.

    Attributes:
        inner: Half of its length inside, metres.
        outer: The same outside.
        height: Of the rim, metres.
        thickness: Of floor and rim, metres.
    """

    def _build(
        self, name: str = "tray", *, length: float = 0.2, height: float = 0.016, thickness: float = 0.006, mass: float = 1.0
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            length: Inside, metres.
            height: Of the rim, metres.
            thickness: Of floor and rim, metres.
            mass: Of the whole, kg; four fifths of it in the floor.
        """
        self.inner, self.outer, self.height, self.thickness = length / 2, length / 2 + thickness, height, thickness
        self._begin(name, float(np.hypot(self.outer, self.outer)))
        half, wall = thickness / 2, (height - thickness) / 2
        floor = {"pos": (0, 0, half), "size": (self.outer, self.outer, half)}
        self.body.add("geom", type="box", mass=0.8 * mass, rgba=FLOOR, **floor, **FLAT_CONTACT)
        middle = self.inner + half
        for sign in (-1, 1):
            for centre, size in (((sign * middle, 0), (half, self.outer)), ((0, sign * middle), (self.inner, half))):
                side = {"pos": (*centre, thickness + wall), "size": (*size, wall)}
                self.body.add("geom", type="box", mass=0.05 * mass, rgba=RIM, **side, **FLAT_CONTACT)

    def holds(self, points: Matrix, radii: Matrix) -> bool:
        """Says whether balls at points (N, 3) in its frame, of radii (N,), metres, lie on its floor within its rim."""
        slack = 0.001  # What contacts give way.
        within = (np.abs(points[:, :2]) + radii[:, None] < self.inner + slack).all()
        bottom = float((points[:, 2] - radii).min()) - self.thickness
        return bool(within and -slack < bottom < 0.004)
