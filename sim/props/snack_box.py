"""A box of snacks."""

import numpy as np

from stringline.sim.props.prop import CONTACT, Prop
from stringline.sim.props.vessel import Colour

WHITE: Colour = (0.95, 0.95, 0.92, 1.0)
SPACING_M = 0.03
FLAT = CONTACT | {"condim": 4}  # What is flat does not roll, and its many contacts cost half as much without it.


class SnackBox(Prop):
    """A cuboid around its origin, with a white band around it so that its turn can be seen.

    Attributes:
        half: (3,), half of its lengths along its axes, metres.
        points: (N, 3), its corners, and points at most 3 cm apart on its edges along x, metres.
    """

    def _build(self, name: str, *, size: tuple[float, float, float], colour: Colour, mass: float = 0.08) -> None:
        """Builds it.

        Args:
            name: Of the model.
            size: Its lengths along its axes, metres.
            colour: RGBA.
            mass: In kg.
        """
        self.half = np.array(size) / 2
        self._begin(name, float(np.linalg.norm(self.half)))
        along = np.linspace(-1, 1, int(np.ceil(size[0] / SPACING_M)) + 1)
        self.points = np.array([(x, y, z) for x in along for y in (-1, 1) for z in (-1, 1)]) * self.half
        self.body.add("geom", type="box", size=self.half, mass=mass, rgba=colour, **FLAT)
        band = self.half * (0.25, 1.0, 1.0) + (0.0, 0.0004, 0.0004)
        self.body.add("geom", type="box", size=band, mass=0, rgba=WHITE, contype=0, conaffinity=0)
