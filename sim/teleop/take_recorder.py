"""Recording of a person's takes into an episode store, each of which is kept or discarded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.files.atomic import NoSpaceError
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.episode_writer import EpisodeWriter
from stringline.datasets.store.store import EpisodeStore
from stringline.sim.collection.collection_state import Recipe

SOURCE = "teleoperation"


class TakeRecorder:
    """Records the takes of one session.

    The store at `path` is made if it does not exist; recipe, contract, instruction and stages are
    those of the world. `kept` are the names of the kept episodes.

    Raises:
        ValueError: The folder is not a store, or cannot be written.
        NoSpaceError: The disk is full.
    """

    def __init__(
        self,
        path: str | Path,
        recipe: Recipe,
        contract: Contract,
        instruction: str,
        stages: tuple[str, ...],
    ) -> None:
        self._recipe = recipe
        self._contract = contract
        self._instruction = instruction
        self._stages = stages
        self.store = _writable_store(Path(path), self._attributes(0))
        self.kept = list[str]()
        self.store.remove_leftovers()
        self._writer: EpisodeWriter | None = None
        self._steps = 0

    @property
    def open(self) -> bool:
        """Whether a take is being recorded, or is over and neither kept nor discarded."""
        return self._writer is not None

    @property
    def steps(self) -> int:
        """Length of the open take, control periods."""
        return self._steps if self.open else 0

    def free_seed(self, first: int) -> int:
        """Returns the first seed from `first` on without an episode of this task in the store."""
        taken = self.store.seeds(self._recipe.task)
        seed = first
        while seed in taken:
            seed += 1
        return seed

    def begin(self, seed: int, drawn: Mapping[str, Any] | None = None) -> None:
        """Opens a take of a seed with what it has drawn; an open take is discarded."""
        self.discard()
        self._writer = self.store.writer(self._attributes(seed, drawn))
        self._steps = 0

    def add(self, observation: Mapping[str, Array], action: Array) -> None:
        """Appends a step: an observation and the action (A,) that followed it.

        Raises:
            ValueError: The step does not fit the contract; the take is discarded.
            NoSpaceError: The disk is full; the take is discarded.
        """
        assert self._writer is not None, "call begin first"
        try:
            self._writer.step(observation, action)
        except (ValueError, OSError):
            self.discard()
            raise
        self._steps += 1

    def keep(self, success: bool) -> str:
        """Adds the open take to the store, atomically, and returns the episode's name.

        Raises:
            ValueError: There is no take, or it has no step.
            OSError: The episode cannot be written; the take is discarded.
        """
        if self._writer is None or not self._steps:
            raise ValueError("There is no take to keep: nothing has been recorded.")
        with self._writer as writer:  # Leaving it without a commit discards the take.
            self._writer = None
            name = writer.commit(success)
        self.kept.append(name)
        return name

    def discard(self) -> bool:
        """Deletes the open take; returns whether there was one."""
        writer = self._writer
        self._writer = None
        if writer is not None:
            writer.discard()
        return writer is not None

    def _attributes(self, seed: int, drawn: Mapping[str, Any] | None = None) -> EpisodeAttributes:
        extra: dict[str, Any] = {"recipe": self._recipe.described(), "stages": list(self._stages)}
        if drawn:
            extra["drawn"] = dict(drawn)
        return EpisodeAttributes(
            self._contract, self._recipe.task, seed, None, SOURCE, self._instruction, extra
        )


def _writable_store(path: Path, attributes: EpisodeAttributes) -> EpisodeStore:
    """Opens or makes a store, and writes to it, so that errors appear before the first take."""
    try:
        store = EpisodeStore.create(path)
        store.writer(attributes).discard()
    except NoSpaceError:
        raise
    except OSError as error:
        raise ValueError(
            f"The store {path} cannot be written ({error.strerror}). Choose another folder: "
            "store=..."
        ) from error
    return store
