"""Shared parts of all cells: their files, their evaluation seeds and their options."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "runs" / "evidence"
SEEDS, FIRST_SEED = 100, 1_000_000
# docs/lab/demonstration.md has the reason for early windows.
EARLY = ["dataset.oversample_first_s=1.6", "dataset.oversample_factor=2.0"]
EVALUATED = ["execute_steps=24"]


def varied_rule(task: str) -> dict[str, object]:
    """Returns the options with varied starts, and on ALOHA the strict success criterion."""
    return {"start_spread": 1.0} | ({} if task.startswith("kuka") else {"strict": True})


def task_options(options: Mapping[str, object]) -> list[str]:
    """Returns options of a task as on a command line."""
    words = {True: "true", False: "false"}
    return [
        f"+task.options.{name}={words[value] if isinstance(value, bool) else value}"
        for name, value in options.items()
    ]


COMPILED = ["trainer.precision=bf16", "trainer.compile=true", "trainer.fused=true"]


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


class Question(ABC):
    """One line of docs/lab/results.jsonl.

    Attributes:
        largest_checkpoint: Largest size of the checkpoint, bytes.
    """

    largest_checkpoint: ClassVar[int] = 16 * 2**20

    @property
    @abstractmethod
    def name(self) -> str:
        """Path of the cell, which never changes."""

    @property
    @abstractmethod
    def checkpoint(self) -> Path:
        """The measured checkpoint."""

    @property
    @abstractmethod
    def recipe(self) -> dict[str, object]:
        """Settings of data, training and measurement, plain data."""

    @abstractmethod
    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yields the commands of the cell with their arguments."""

    @abstractmethod
    def about(self) -> dict[str, object]:
        """Returns the fields of the cell, plain data."""

    @abstractmethod
    def outcomes(self) -> dict[str, object]:
        """Returns what was measured, plain data; the files of the commands exist."""


class Cell(Question):
    """A policy and its evaluation.

    Attributes:
        seeds: Episodes of each task.
    """

    seeds: ClassVar[int] = SEEDS

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
        """Returns the file of the episodes of each task; "" is the name of a single task."""
        return {"": self.evaluation / "results.jsonl"}

    def outcomes(self) -> dict[str, object]:
        """Returns the outcomes of a single task, or those of each task under `tasks`."""
        found = {
            task: outcomes(file.read_text().splitlines(), self.seeds)
            for task, file in self.results().items()
        }
        measured: Mapping[str, object] = found.get("", {"tasks": found})
        return {"first_seed": FIRST_SEED, **measured}


def outcomes(lines: Sequence[str], seeds: int = SEEDS) -> dict[str, str]:
    """Returns success (0 or 1) and furthest stage of each seed as digits, in order of seeds."""
    by_seed = {result["seed"]: result for result in map(json.loads, lines) if "seed" in result}
    ordered = [by_seed[FIRST_SEED + index] for index in range(seeds)]
    return {
        "success": "".join(str(int(result["success"])) for result in ordered),
        "stages": "".join(str(result["stage"]) for result in ordered),
    }


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
