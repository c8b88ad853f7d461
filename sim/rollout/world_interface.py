"""What recording and experts need of a world beyond `Simulation`: so they run in worlds that we did not write, too."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.sim.rollout.rollout import HasStages, Simulation


class RecordedTask(HasStages, Protocol):
    """A task with a name, that knows how far an episode has come."""

    @property
    def name(self) -> str:
        """As in the configuration."""
        ...

    @property
    def instruction(self) -> str:
        """What a person would say."""
        ...

    @property
    def stage(self) -> int:
        """The furthest stage of this episode."""
        ...


class HasState(Protocol):
    """A physics whose state can be kept."""

    def get_state(self) -> Array:
        """Returns positions and speeds of everything in it."""
        ...


@runtime_checkable
class World(Simulation, Protocol):
    """A simulated world with a body in it; `TaskEnvironment` is one, and so is `peers.world.PeerWorld`."""

    @property
    def task(self) -> RecordedTask:
        """What is to be done."""
        ...

    @property
    def embodiment(self) -> Embodiment:
        """The body; cameras that it has no mount on the `world` for are taken to move."""
        ...

    @property
    def physics(self) -> HasState:
        """What the world consists of."""
        ...

    @property
    def time(self) -> float:
        """Seconds since the episode began."""
        ...

    @property
    def time_limit_s(self) -> float:
        """When an episode is cut off."""
        ...

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Looks whether an episode can begin with them.

        Raises:
            ValueError: An option is unknown or out of range.
        """
