"""Shared parts of all cells: their files, their evaluation seeds and their options."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "runs" / "evidence"
SEEDS, FIRST_SEED = 100, 1_000_000
# See docs/results.md for what early windows are good for.
EARLY = ["dataset.early_s=1.6", "dataset.early_factor=2.0"]
EVALUATED = ["execute_steps=24"]


def arithmetic(scale: str) -> list[str]:
    """Returns the precision option; chosen by processor, cells could not be compared."""
    return [] if scale == "large" else ["trainer.precision=no"]


@dataclass(frozen=True)
class Scale:
    """How much is collected and trained.

    Attributes:
        episodes: Demonstrations, of the seeds from 10,000 on.
        steps: Training steps.
        batch: Windows in a step.
    """

    episodes: int
    steps: int
    batch: int


class Question(Protocol):
    """One line of docs/results.jsonl."""

    @property
    def name(self) -> str:
        """Its path, stable for ever."""
        ...

    @property
    def checkpoint(self) -> Path:
        """What is measured."""
        ...

    @property
    def evaluation(self) -> Path:
        """The folder of its measurement."""
        ...

    @property
    def recipe(self) -> dict[str, object]:
        """How it is collected, trained and measured, plain data."""
        ...

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yields the commands that answer it, each with what it is given."""
        ...

    def about(self) -> dict[str, object]:
        """Returns what it asks, plain data."""
        ...


def demonstrations(task: str, scale: str) -> Path:
    """Returns the store of a task, which all cells of a scale train from."""
    return RUNS / task / f"demonstrations_{scale}"


def measured(task: str, checkpoint: Path, output: Path) -> list[str]:
    """Returns what stringline-eval is given for every cell."""
    return [
        f"task={task}",
        f"checkpoint={checkpoint}",
        f"output={output}",
        f"seeds={SEEDS}",
        f"first_seed={FIRST_SEED}",
        *EVALUATED,
    ]
