"""What every prop is: an entity from primitives that stands free in an arena."""

from dm_control import composer, mjcf

from stringline.datasets.embodiments.mjcf_parts import PROP, SCENERY

# Friction of a dry plastic or peel: sliding, torsional (m), rolling (m). The rolling part lets
# round things come to rest.
FRICTION = (0.7, 0.02, 0.005)
# Contacts of five time steps, damped twice as much as needed: where a thing is wedged between
# walls, stiffer and springier ones, and more sliding friction, make it rattle for ever.
CONTACT: dict[str, object] = {
    "contype": PROP,
    "conaffinity": SCENERY | PROP,
    "condim": 6,
    "friction": FRICTION,
    "solref": (0.01, 2),
    "solimp": (0.95, 0.99, 0.001),
}
# Of things with flat faces only: what cannot roll needs no friction against rolling, and costs half
# the time.
FLAT_CONTACT: dict[str, object] = {**CONTACT, "condim": 4}


class Prop(composer.Entity):
    """A thing to handle; subclasses add shapes to `body`.

    Attributes:
        reach: Distance of its farthest point from its origin, metres.
        body: Carries all shapes.
    """

    reach: float

    def _begin(self, name: str, reach: float) -> None:
        self._root = mjcf.RootElement(model=name)
        self.reach = reach
        self.body = self._root.worldbody.add("body", name="body")

    @property
    def name(self) -> str:
        """Of the model, and of the group of its shapes in contacts."""
        return str(self._root.model)

    @property
    def mjcf_model(self) -> mjcf.RootElement:
        """The model to attach."""
        return self._root

    @property
    def shapes(self) -> list[mjcf.Element]:
        """All its shapes."""
        return list(self.body.find_all("geom"))
