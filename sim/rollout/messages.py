"""Messages between the main process and the worker processes that hold simulated worlds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from stringline.datasets.contract.contract import Array, Contract
from stringline.policies.chunks.chunk import ActionChunk
from stringline.sim.rollout.rollout import DelayedChunk, Rollout
from stringline.sim.rollout.world_interface import Simulation

MakeWorld = Callable[[], Simulation]


@dataclass(frozen=True)
class EpisodeJob:
    """An episode to run, with the arguments of `run_episode`."""

    seed: int
    execute_steps: int | None
    options: Mapping[str, Any]
    video: bool = False


class WorldTask(Protocol):
    """Work on a world that needs no plans; the object and its result are pickled."""

    def run(self, world: Simulation) -> object:
        """Does the work."""


@dataclass(frozen=True)
class WorkerReady:
    """A worker has built its world."""

    contract: Contract
    stages: tuple[str, ...]


@dataclass(frozen=True)
class PlanRequest:
    """A worker waits for the plan for an observation."""

    observation: dict[str, Array]


@dataclass(frozen=True)
class EpisodeEnd:
    """An episode has ended.

    The video is the content of an MP4 file, because the machines of a cluster may have no common
    disk.
    """

    rollout: Rollout
    video: bytes | None = None


@dataclass(frozen=True)
class TaskResult:
    """A `WorldTask` has ended."""

    result: object


@dataclass(frozen=True)
class WorkerFailed:
    """A worker met an error and cannot continue."""

    error: Exception
    trace: str


@dataclass(frozen=True)
class WorkerLost:
    """A worker has died during its work; `reason` is a sentence. Another worker replaces it."""

    reason: str


Command = EpisodeJob | WorldTask | ActionChunk | DelayedChunk
Message = WorkerReady | PlanRequest | EpisodeEnd | TaskResult | WorkerFailed | WorkerLost


class RemoteTracebackError(Exception):
    """The traceback of an error in a worker, as text; the cause of the error in this process."""
