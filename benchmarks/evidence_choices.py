"""Cells that compare choices of one subject, each trained once per seed and measured in worlds."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from evidence_recipe import (
    EVALUATED,
    RUNS,
    Cell,
    Scale,
    measured,
    task_options,
    varied_rule,
)


@dataclass(frozen=True)
class ChoiceCell(Cell):
    """A choice in one world; the worlds of a choice share its checkpoint.

    Attributes:
        task: The task.
        choice: Name of the choice.
        seed: Seed of the training.
        scale: One of `scales`.
        world: One of `worlds`; empty without a shift.
        family: Name of the subject.
        scales: Sizes of data and training.
        worlds: Options of the task in each world.
    """

    task: str
    choice: str
    seed: int
    scale: str
    world: str = ""
    family: ClassVar[str]
    scales: ClassVar[Mapping[str, Scale]]
    worlds: ClassVar[Mapping[str, Mapping[str, object]]]

    @property
    @abstractmethod
    def store(self) -> Path:
        """The demonstrations, which choices that collect alike share."""

    @property
    @abstractmethod
    def collected(self) -> Sequence[str]:
        """Options of the collection."""

    @property
    @abstractmethod
    def trained(self) -> Sequence[str]:
        """Options of the training."""

    @property
    def start(self) -> Mapping[str, object]:
        """Options of the task that set the start of the arms; empty: varied starts."""
        return {}

    @property
    def name(self) -> str:
        """Path of the cell, which never changes."""
        world = f"/{self.world}" if self.world else ""
        return f"{self.family}/{self.task}/{self.choice}/{self.seed}/{self.scale}{world}"

    @property
    def folder(self) -> Path:
        """Folder of the files of its training."""
        return RUNS / self.family / self.task / self.choice / str(self.seed) / self.scale

    @property
    def evaluation(self) -> Path:
        """Folder of the evaluation."""
        return self.folder / "evaluation" / (self.world or "unshifted")

    @property
    def recipe(self) -> dict[str, object]:
        """Settings of collection, training and evaluation, plain data."""
        return asdict(self.scales[self.scale]) | {
            "collect": self._collected,
            "train": list(self.trained),
            "eval": [*EVALUATED, *self._evaluated],
        }

    @property
    def _collected(self) -> list[str]:
        return [*task_options({**varied_rule(self.task), **self.start}), *self.collected]

    @property
    def _evaluated(self) -> list[str]:
        options = {**varied_rule(self.task), **self.start, **self.worlds[self.world]}
        videos = ["videos=false"] if self.world else []
        return [*task_options(options), *videos]

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yields the commands of the cell; in a shifted world only what is missing."""
        scale = self.scales[self.scale]
        if not self.world or not self.checkpoint.exists():
            task, output = f"task={self.task}", f"output={self.store}"
            yield "collect", [task, output, f"episodes={scale.episodes}", *self._collected]
            yield (
                "train",
                [
                    *self.trained,
                    f"dataset.path={self.store}",
                    f"output={self.checkpoint.parent}",
                    f"trainer.steps={scale.steps}",
                    f"trainer.batch_size={scale.batch}",
                    f"trainer.seed={self.seed}",
                ],
            )
        shared = measured(self.task, self.checkpoint, self.evaluation)
        yield "eval", [*shared, *self._evaluated]

    def about(self) -> dict[str, object]:
        """Returns the fields of the cell, plain data."""
        return {"family": self.family, **asdict(self)}
