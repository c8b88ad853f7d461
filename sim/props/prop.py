"""The base class of props: free-standing entities built from primitive shapes."""

from dm_control import composer, mjcf
from numpy.typing import ArrayLike

from stringline.datasets.embodiments.mjcf_parts import DRAWN, PROP, SCENERY

Colour = tuple[float, float, float, float]
"""Red, green, blue and opacity, 0 to 1."""

# Friction of a dry plastic or peel: sliding, torsional (m), rolling (m). Rolling friction lets
# round objects come to rest.
FRICTION = (0.7, 0.02, 0.005)
# Contacts with a time constant of five time steps and twice the critical damping: with stiffer
# contacts, less damping or more sliding friction, an object that is wedged between walls rattles
# without end.
CONTACT: dict[str, object] = {
    "contype": PROP,
    "conaffinity": SCENERY | PROP,
    "condim": 6,
    "friction": FRICTION,
    "solref": (0.01, 2),
    "solimp": (0.95, 0.99, 0.001),
}
"""Contact parameters of shapes that may roll (MJCF attributes of a geom)."""
FLAT_CONTACT: dict[str, object] = {**CONTACT, "condim": 4}
"""Contact parameters of shapes with flat faces only, without rolling friction, at half the cost."""
VISUAL: dict[str, object] = {"contype": 0, "conaffinity": 0, "group": DRAWN, "mass": 0}
"""Attributes of geoms that are drawn and neither collide nor weigh anything."""


class Prop(composer.Entity):
    """An object that a task places on the table; subclasses add shapes to `body` in `_build`.

    Attributes:
        reach: Distance of the farthest point from the origin, metres.
        body: The body of all shapes.
    """

    reach: float

    def _begin(self, name: str, reach: float) -> None:
        """Makes the model, without shapes."""
        self._root = mjcf.RootElement(model=name)
        self.reach = reach
        self.body = self._root.worldbody.add("body", name="body")

    def _add_box(
        self,
        centre: ArrayLike,
        half: ArrayLike,
        mass: float,
        colour: ArrayLike,
        contact: dict[str, object] = FLAT_CONTACT,
    ) -> None:
        """Adds a box by its centre (3,) and half its lengths (3,), metres."""
        self.body.add("geom", type="box", pos=centre, size=half, mass=mass, rgba=colour, **contact)

    @property
    def name(self) -> str:
        """Name of the model, of its segment, and of its shapes as a group in contacts."""
        return str(self._root.model)

    @property
    def mjcf_model(self) -> mjcf.RootElement:
        """The model to attach."""
        return self._root

    @property
    def shapes(self) -> list[mjcf.Element]:
        """All geoms of the prop."""
        return list(self.body.find_all("geom"))
