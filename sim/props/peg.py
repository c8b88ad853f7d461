"""A peg: a box with sharp edges, which looks the same after some turns."""

from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

from stringline.sim.props.prop import CONTACT, Prop
from stringline.sim.props.vessel import Colour

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
        self.body.add("geom", type="box", size=self.half, mass=mass, rgba=colour, **{**CONTACT, **STIFF})

    def symmetries(self) -> NDArray[np.float64]:
        """Returns the rotations (n, 3, 3) that leave the box as it is; the first is none at all."""
        turns = [np.eye(3)[list(order)] * signs for order in permutations(range(3)) for signs in product((1.0, -1.0), repeat=3)]
        return np.array([t for t in turns if np.linalg.det(t) > 0 and np.allclose(np.abs(t) @ self.half, self.half)])
