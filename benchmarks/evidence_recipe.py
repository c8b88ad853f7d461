"""Shared parts of all cells: their files, their evaluation seeds and their options."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "runs" / "evidence"
SEEDS, FIRST_SEED = 100, 1_000_000
# docs/results.md has the reason for early windows.
EARLY = ["dataset.early_s=1.6", "dataset.early_factor=2.0"]
EVALUATED = ["execute_steps=24"]


def arithmetic(scale: str) -> list[str]:
    """Returns the precision option; if it depended on the processor, cells would differ."""
    return [] if scale == "large" else ["trainer.precision=no"]


@dataclass(frozen=True)
class Scale:
    """Sizes of data and training.

    Attributes:
        episodes: Number of demonstrations, of the seeds from 10,000 on.
        steps: Training steps.
        batch: Windows per step.
    """

    episodes: int
    steps: int
    batch: int


class Question(Protocol):
    """One line of docs/results.jsonl.

    Attributes:
        seeds: Episodes of each task.
        largest_checkpoint: Largest size of the checkpoint, bytes.
    """

    seeds: ClassVar[int]
    largest_checkpoint: ClassVar[int]

    @property
    def name(self) -> str:
        """Path of the cell, which never changes."""

    @property
    def checkpoint(self) -> Path:
        """The evaluated checkpoint."""

    @property
    def evaluation(self) -> Path:
        """Folder of the evaluation."""

    @property
    def recipe(self) -> dict[str, object]:
        """Settings of collection, training and evaluation, plain data."""

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yields the commands of the cell with their arguments."""

    def about(self) -> dict[str, object]:
        """Returns the fields of the cell, plain data."""

    def results(self) -> Mapping[str, Path]:
        """Returns the file of the episodes of each task; "" is the name of a single task."""


class Cell(ABC):
    """What cells share; see `Question`."""

    seeds: ClassVar[int] = SEEDS
    largest_checkpoint: ClassVar[int] = 16 * 2**20

    @property
    @abstractmethod
    def folder(self) -> Path:
        """Folder of its files."""

    @property
    def checkpoint(self) -> Path:
        """The evaluated checkpoint."""
        return self.folder / "training" / "checkpoint"

    @property
    def evaluation(self) -> Path:
        """Folder of the evaluation."""
        return self.folder / "evaluation"

    def results(self) -> Mapping[str, Path]:
        """Returns the file of the episodes."""
        return {"": self.evaluation / "results.jsonl"}


def demonstrations(task: str, scale: str) -> Path:
    """Returns the store of a task, which all cells of a scale share."""
    return RUNS / task / f"demonstrations_{scale}"


def measured(task: str, checkpoint: Path, output: Path) -> list[str]:
    """Returns the arguments of stringline-eval that all cells share."""
    return [
        f"task={task}",
        f"checkpoint={checkpoint}",
        f"output={output}",
        f"seeds={SEEDS}",
        f"first_seed={FIRST_SEED}",
        "workers=0",  # One per core: without effect on the results.
        *EVALUATED,
    ]
