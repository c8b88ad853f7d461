"""What a process that holds a world is told, and what it says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from stringline.datasets.contract.contract import Array, Contract
from stringline.policies.chunks.chunk import ActionChunk
from stringline.sim.rollout.rollout import Arrival, Rollout, Simulation

MakeWorld = Callable[[], Simulation]


@dataclass(frozen=True)
class Job:
    """One episode to run.

    Attributes:
        seed: Of the world.
        execute_steps: See `roll_out`.
        options: Of the task.
        video: Whether to video it.
    """

    seed: int
    execute_steps: int | None
    options: Mapping[str, float]
    video: bool = False


class Errand(Protocol):
    """Work for a world that needs no answers; it is pickled, and so is what it returns."""

    def run(self, world: Simulation) -> object:
        """Does it."""


@dataclass(frozen=True)
class Ready:
    """A worker has built its world."""

    contract: Contract
    stages: tuple[str, ...]


@dataclass(frozen=True)
class Asked:
    """A worker waits for the answer to an observation."""

    observation: dict[str, Array]


@dataclass(frozen=True)
class Ended:
    """An episode is over.

    Attributes:
        rollout: How it went.
        video: An MP4 file, where one was asked for: so that no two machines need to share a disk.
    """

    rollout: Rollout
    video: bytes | None = None


@dataclass(frozen=True)
class Returned:
    """An errand is done."""

    result: object


@dataclass(frozen=True)
class Failed:
    """A worker met an error and is of no more use."""

    error: Exception
    trace: str


@dataclass(frozen=True)
class Lost:
    """A worker is gone, and with it what it was doing; another one takes its place.

    Attributes:
        reason: What is known about its end, a sentence.
    """

    reason: str


Command = Job | Errand | ActionChunk | Arrival
Message = Ready | Asked | Ended | Returned | Failed | Lost


class RemoteTracebackError(Exception):
    """The trace of an error in a worker, as text; the cause of the error where it is raised again."""
