"""The base class of objects to grasp: a hull, and grasps by which two pads hold it."""

from collections.abc import Sequence

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix
from stringline.sim.props.forms import Hold
from stringline.sim.props.prop import Prop

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
