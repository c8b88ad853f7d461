"""The interfaces of worlds for rollouts, recording and experts."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.embodiments.embodiment import Embodiment


class WorldLostError(RuntimeError):
    """The world of an episode has failed; the next episode begins in a new one."""


class StepOutcome(Protocol):
    """The result of one action."""

    @property
    def success(self) -> bool:
        """Whether the task is done."""
        ...

    @property
    def stage(self) -> int:
        """The furthest stage so far."""
        ...

    @property
    def time(self) -> float:
        """Seconds since the start of the episode."""
        ...

    @property
    def expired(self) -> bool:
        """Whether the episode is cut off."""
        ...

    @property
    def unstable(self) -> bool:
        """Whether the physics became unstable."""
        ...


class HasStages(Protocol):
    """A task with named stages."""

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages; the last one is success."""
        ...


class Simulation(Protocol):
    """The part of a world that an episode needs; `TaskEnvironment` has it."""

    @property
    def contract(self) -> Contract:
        """Observations and actions."""
        ...

    @property
    def task(self) -> HasStages:
        """The task."""
        ...

    @property
    def frame_due(self) -> bool:
        """Whether the cameras deliver a new frame in this period."""
        ...

    def begin(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Begins the episode of a seed."""
        ...

    def advance(self, action: NDArray[np.float64]) -> StepOutcome:
        """Applies one action for one control period."""
        ...

    def observe(self, cameras: bool = True) -> dict[str, Array]:
        """Returns one observation of the contract."""
        ...

    def close(self) -> None:
        """Releases graphics and physics."""
        ...


@runtime_checkable
class HasBodyPositions(Protocol):
    """A world whose motion can be drawn again from the positions of its joints."""

    def body_positions(self) -> NDArray[np.float64]:
        """Returns the positions (nq,) of all joints, objects included, in MuJoCo's order."""
        ...


@runtime_checkable
class HasDraws(Protocol):
    """A world whose episodes draw options from ranges, and looks."""

    @property
    def drawn(self) -> Mapping[str, Any]:
        """What this episode has drawn, by option, as plain JSON; empty without ranges and looks."""
        ...


class RecordedTask(HasStages, Protocol):
    """A task with a name, an instruction and the current stage."""

    @property
    def name(self) -> str:
        """Name in the configuration."""
        ...

    @property
    def instruction(self) -> str:
        """Instruction in natural language."""
        ...

    @property
    def stage(self) -> int:
        """The furthest stage of this episode."""
        ...


class HasState(Protocol):
    """A physics with a state that can be stored."""

    def get_state(self) -> Array:
        """Returns the positions and velocities of all bodies."""
        ...


@runtime_checkable
class World(Simulation, Protocol):
    """A simulated robot in its world; see `TaskEnvironment` and `ThirdPartyEnvironment`."""

    @property
    def task(self) -> RecordedTask:
        """The task."""
        ...

    @property
    def embodiment(self) -> Embodiment:
        """The embodiment; a camera without a mount on the `world` counts as moving."""
        ...

    @property
    def physics(self) -> HasState:
        """The physics."""
        ...

    @property
    def time(self) -> float:
        """Seconds since the start of the episode."""
        ...

    @property
    def start(self) -> NDArray[np.float64]:
        """Joints (J,) at the start of the episode, rad and openings."""
        ...

    @property
    def time_limit_s(self) -> float:
        """Longest episode, seconds."""
        ...

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raises a ValueError if an option is unknown or out of range."""
        ...
