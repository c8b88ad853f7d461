"""A banana: a chain of capsules along an arc."""

import numpy as np
from numpy.typing import NDArray

from stringline.sim.props.prop import CONTACT, Prop

YELLOW, BROWN = (0.98, 0.83, 0.08, 1.0), (0.35, 0.22, 0.08, 1.0)


class Banana(Prop):
    """Lies along its y axis, bent in the xy plane with both ends towards +x; the origin is the middle of its axis."""

    def _build(
        self,
        name: str = "banana",
        *,
        length: float = 0.18,
        radius: float = 0.018,
        bend_radius: float = 0.22,
        mass: float = 0.08,
        segments: int = 5,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            length: End to end along y, metres.
            radius: At the middle; the ends have nine tenths of it.
            bend_radius: Of the arc that the axis follows.
            mass: Of the whole, kg.
            segments: Number of capsules.
        """
        self._begin(name, length / 2)
        self.radius, self.bend_radius = radius, bend_radius
        radii = radius * (1.0 - 0.1 * np.linspace(-1, 1, segments) ** 2)
        self.half_arc = float(bend_radius * np.arcsin((length / 2 - radii[0]) / bend_radius))
        self.points = self.axis_point(np.linspace(-self.half_arc, self.half_arc, segments + 1))
        for start, end, size in zip(self.points[:-1], self.points[1:], radii, strict=True):
            self.body.add(
                "geom",
                type="capsule",
                fromto=(*start, *end),
                size=(size,),
                mass=mass / segments,
                rgba=YELLOW,
                **CONTACT,
            )
        tip = self.axis_point(np.array([self.half_arc + 0.006, self.half_arc + 0.014]))
        self.body.add("geom", type="capsule", fromto=tip.ravel(), size=(0.007,), mass=0, rgba=BROWN, contype=0, conaffinity=0)

    def axis_point(self, along: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns points (..., 3) of the axis in the banana's frame at arc lengths (...) from the middle, in metres."""
        angle = np.asarray(along) / self.bend_radius
        return np.stack(
            [self.bend_radius * (1 - np.cos(angle)), self.bend_radius * np.sin(angle), np.zeros_like(angle)], axis=-1
        )

    def axis_direction(self, along: float) -> NDArray[np.float64]:
        """Returns the unit tangent (3,) of the axis in the banana's frame, towards +y, at an arc length from the middle."""
        angle = along / self.bend_radius
        return np.array([np.sin(angle), np.cos(angle), 0.0])
