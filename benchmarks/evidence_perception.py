"""Cells of perception: encodings judged on classification, retrieval, detection and video.

The tasks are those of `evidence_perception_tasks.py` and `evidence_perception_studies.py`. All
cells of a task have the same number of steps.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from evidence_perception_studies import BUDGETS, CHOICES, INITIAL, REFERENCES, TASKS
from evidence_perception_tasks import FOLDER, Task
from evidence_recipe import RUNS, Question

from stringline.encoders.perception.paired_resampling import group_numbers


@dataclass(frozen=True)
class PerceptionCell(Question):
    """One training of one choice.

    Attributes:
        perception: One of `TASKS`.
        choice: One of `CHOICES` of the task.
        seed: Seed of the training.
        scale: `small`.
    """

    perception: str
    choice: str
    seed: int
    scale: str = "small"

    @property
    def name(self) -> str:
        """Path of the cell, which never changes."""
        return f"perception/{self.perception}/{self.choice}/{self.seed}/{self.scale}"

    @property
    def folder(self) -> Path:
        """Folder of its run."""
        return RUNS / self.name

    @property
    def checkpoint(self) -> Path:
        """The measured network."""
        return self.folder / "checkpoint"

    @property
    def recipe(self) -> dict[str, object]:
        """Settings of the store and of the training, plain data."""
        towers = {"initialise_from": self.towers.name} if self.towers else {}
        return {"made": list(self._task.made[1]), "train": self._trained, **towers}

    @property
    def _task(self) -> Task:
        return TASKS[self.perception]

    @property
    def towers(self) -> "PerceptionCell | None":
        """The cell that this one begins with."""
        begins = INITIAL.get((self.perception, self.choice))
        return PerceptionCell(*begins[0], self.seed, self.scale) if begins else None

    @property
    def _store(self) -> Path:
        """The store, which all cells of the same images share."""
        shared = [name for name, task in TASKS.items() if task.made == self._task.made]
        return FOLDER / f"{shared[0]}_images"

    @property
    def _trained(self) -> list[str]:
        steps, batch = BUDGETS[self.perception]
        return [
            f"task={self._task.head}",
            *self._task.trained,
            *CHOICES[self.perception][self.choice],
            "trainer.precision=bf16",
            f"trainer.steps={steps}",
            f"trainer.batch_size={batch}",
            f"trainer.seed={self.seed}",
        ]

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yields the commands of the cell: what is missing (towers, store), training, studies."""
        if self.towers and not self.towers.checkpoint.exists():
            yield from self.towers.commands()
        verb, options = self._task.made
        if not self._store.exists():
            where = (
                [f"path={FOLDER / 'node_modules'}", f"store={self._store}"]
                if verb == "data"
                else [f"output={self._store}"]
            )
            yield verb, [*options, *where]
        given = [*self._trained, f"images={self._store}", f"output={self.folder}"]
        if self.towers:
            given.append(f"initialise_from={self.towers.checkpoint}")
            given += INITIAL[self.perception, self.choice][1]
        yield "perceive", given
        for study in self._task.studies:
            yield "perceive", [*given, f"study={study}"]

    def checkpoint_for(self, other: Question) -> Path:
        """Returns the checkpoint that another cell begins with; ends the run if it is missing."""
        if not self.checkpoint.exists():
            raise SystemExit(f"{other.name} begins with {self.name}; run that first.")
        return self.checkpoint

    def about(self) -> dict[str, object]:
        """Returns the fields of the cell, plain data."""
        return asdict(self)

    def outcomes(self) -> dict[str, object]:
        """Returns the measures, the rows of the studies, and the values of each image."""
        found = json.loads((self.folder / "results.json").read_text(encoding="utf-8"))
        each = {
            name: [round(value, 4) for value in values] for name, values in found["each"].items()
        }
        return {
            "measures": found["measures"],
            "studies": found["studies"],
            "images": found["images"],
            "parameters": found["parameters"],
            "operations": found["operations"],
            "subsets": found["subsets"],
            "curve": found["curve"],
            "groups": group_numbers(found["test_groups"]).tolist(),
            "each": each,
        }


def perception_cells() -> list[PerceptionCell]:
    """Returns all cells, the most informative first: references, all choices, further seeds."""
    firsts = [PerceptionCell(task, REFERENCES[task], 0) for task in TASKS]
    once = [PerceptionCell(task, name, 0) for task, names in CHOICES.items() for name in names]
    thrice = [
        PerceptionCell(task, name, seed)
        for task, names in CHOICES.items()
        for seed in (1, 2)
        for name in names
    ]
    return list(dict.fromkeys([*firsts, *once, *thrice]))
