"""Fruits from balls, whose contacts with tables and walls are exact and cheap."""

import numpy as np

from stringline.sim.props.prop import CONTACT, Prop

RED, GREEN, BROWN = (0.82, 0.10, 0.10, 1.0), (0.45, 0.72, 0.15, 1.0), (0.35, 0.22, 0.08, 1.0)
_DRAWN: dict[str, object] = {"contype": 0, "conaffinity": 0, "mass": 0}


class Apple(Prop):
    """A ball around its origin, with a stalk along z.

    Attributes:
        points: (1, 3), the ball's centre, metres.
        radii: (1,), metres.
    """

    def _build(self, name: str = "apple", *, radius: float = 0.025, mass: float = 0.08) -> None:
        """Builds it.

        Args:
            name: Of the model.
            radius: Metres.
            mass: In kg.
        """
        self._begin(name, radius)
        self.points, self.radii = np.zeros((1, 3)), np.array([radius])
        self.body.add("geom", type="sphere", size=(radius,), mass=mass, rgba=RED, **CONTACT)
        stalk = (0, 0, 0.9 * radius, 0.004, 0, 1.35 * radius)
        self.body.add("geom", type="capsule", fromto=stalk, size=(0.0025,), rgba=BROWN, **_DRAWN)


class Pear(Prop):
    """Balls that get smaller along y: the thick one around its origin, the neck towards +y.

    Attributes:
        points: (3, 3), the balls' centres, metres.
        radii: (3,), metres.
        tilt: How far its axis points down where it lies on a table, on its belly and its neck, rad.
    """

    def _build(
        self,
        name: str = "pear",
        *,
        along: tuple[float, float, float] = (0.0, 0.017, 0.033),
        radii: tuple[float, float, float] = (0.025, 0.0195, 0.016),
        mass: float = 0.08,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            along: Where on the y axis the balls are, metres.
            radii: Of the balls, metres; the thickest first.
            mass: Of the whole, kg.
        """
        self._begin(name, along[-1] + radii[-1])
        self.points, self.radii = np.zeros((len(along), 3)), np.array(radii)
        self.points[:, 1] = along
        self.tilt = float(np.arcsin((radii[0] - radii[-1]) / (along[-1] - along[0])))
        shares = self.radii**3 / (self.radii**3).sum()
        for point, radius, share in zip(self.points, radii, shares, strict=True):
            self.body.add("geom", type="sphere", pos=point, size=(radius,), mass=mass * share, rgba=GREEN, **CONTACT)
        top = along[-1] + radii[-1]
        self.body.add("geom", type="capsule", fromto=(0, top, 0, 0, top + 0.01, 0), size=(0.0025,), rgba=BROWN, **_DRAWN)
