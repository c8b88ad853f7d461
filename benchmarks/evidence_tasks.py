"""Cells of one policy for the twelve tasks of ALOHA, after table 5 of STRING (arXiv 2502.02562).

A policy with instructions is trained on demonstrations of all tasks, each task drawn equally often,
and evaluated on each task. Encodings differ: none, RoPE-Mixed, Cayley-STRING in attention only, as
published, and with relative values. `grippers` and `grippers_noisy_learned` have the frames, places
and actions of `evidence_places.py` and relative values; `learned` has learned places in patches and
relative values with a basis per head. The demonstrations of choices that end with
`_plain` are those of plain experts from the home pose, and so are the starts of their evaluation.

Differences from the paper: scripted instead of teleoperated demonstrations, three RGB-D cameras
instead of four RGB cameras, an image encoder that is trained from scratch instead of SigLIP, and 25
episodes per task instead of 10 per checkpoint.

`medium` has the demonstrations of `small`, 1.75 times its windows, and smaller batches
(docs/lab/twelve-tasks.md, "Learned places and small batches on one task"). `large` is for a GPU.
Its stores have 78 GB; on an H200 with 16 cores, trainings took 8 to 13 minutes, up to three at a
time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import yaml
from evidence_cells import (
    CAMERAS,
    ENCODINGS,
    EXPERTS,
    GRIPPERS,
    GRIPPERS_NOISY_LEARNED,
    HOME_START,
    LEARNED_PLACES,
    experts_of,
)
from evidence_recipe import (
    COMPILED,
    EARLY,
    EVALUATED,
    FIRST_SEED,
    ROOT,
    RUNS,
    Cell,
    Scale,
    task_options,
    varied_rule,
)

CAMPAIGN = "aloha12"
SUITE = ROOT / "configs" / "suite" / f"{CAMPAIGN}.yaml"
# The most informative first.
COMPARED = ("cayley_values", "none", "rope_mixed", "cayley")
CHOICES = {
    **{name: ENCODINGS[name].split() for name in COMPARED},
    "grippers": ["encoder=cayley_per_head", *GRIPPERS],
    "grippers_noisy_learned": ["encoder=cayley_per_head", *GRIPPERS_NOISY_LEARNED],
    "learned": ["encoder=cayley_per_head", LEARNED_PLACES],
}
CHOICES |= {
    f"{name}_plain": CHOICES[name] for name in CHOICES if name not in ("rope_mixed", "cayley")
}
STARTS = 25  # Episodes per task.
# Episodes are demonstrations per task.
SCALES = {
    "small": Scale(100, 8000, 48),
    "medium": Scale(100, 28000, 24),
    "large": Scale(150, 7250, 256),
}
DEMONSTRATIONS = {"small": "small", "medium": "small", "large": "large"}  # Their stores.
COLLECTED = ["first_seed=10000", "lost_grasps=0.2"]
STORED = ["task.cameras=[overhead,wrist_left,wrist_right]"]  # Those that the policies read.
# Plain experts fit parts under smaller disturbances; of starts with up to 0.03 rad, they solve in
# time 17 of 146 (single_insertion), 100 of 318 (fmb_1) and 96 of 312 (fmb_2).
FITTED_NOISE = {"single_insertion": 0.005, "double_insertion": 0.005, "fmb_1": 0.01, "fmb_2": 0.01}
TRAINER = {"small": COMPILED, "medium": COMPILED, "large": ["trainer=gpu"]}
TRAINED = [
    "policy=diffusion",
    CAMERAS,
    "dataset=mixture",
    "dataset.equal_tasks=true",
    "instruction=task",
    *EARLY,
]


@dataclass(frozen=True)
class TasksCell(Cell):
    """One training of one choice on all tasks.

    Attributes:
        encoding: One of `CHOICES`.
        seed: Seed of the training.
        scale: One of `SCALES`.
    """

    encoding: str
    seed: int
    scale: str
    seeds: ClassVar[int] = STARTS
    largest_checkpoint: ClassVar[int] = 30 * 2**20

    @property
    def name(self) -> str:
        """Path of the cell, which never changes."""
        return f"{CAMPAIGN}/{self.encoding}/{self.seed}/{self.scale}"

    @property
    def folder(self) -> Path:
        """Folder of its files."""
        return RUNS / self.name

    @property
    def recipe(self) -> dict[str, object]:
        """Settings of collection, training and evaluation, plain data."""
        return asdict(SCALES[self.scale]) | {
            "collect": self._collected(),
            **({"fitted_noise": FITTED_NOISE} if experts_of(self.encoding) else {}),
            "train": self._trained,
            "eval": EVALUATED,
        }

    def _collected(self, task: str = "") -> list[str]:
        experts = EXPERTS.get(experts_of(self.encoding), [])
        quiet = [f"noise_rad={FITTED_NOISE[task]}"] if experts and task in FITTED_NOISE else []
        start = HOME_START if experts else {}
        rule = task_options({**varied_rule(task), **start})
        return [*COLLECTED, *rule, *STORED, *experts, *quiet]

    @property
    def _trained(self) -> list[str]:
        return [*TRAINED, *CHOICES[self.encoding], *TRAINER[self.scale]]

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yields the commands of the cell: a collection per task, the training, the evaluation."""
        scale = SCALES[self.scale]
        end = f"{experts_of(self.encoding)}_{DEMONSTRATIONS[self.scale]}"
        stores = {task: RUNS / CAMPAIGN / f"{task}{end}" for task in tasks()}
        for task, store in stores.items():
            episodes = f"episodes={scale.episodes}"
            yield "collect", [f"task={task}", f"output={store}", episodes, *self._collected(task)]
        paths = ", ".join(f"{{path: {store}}}" for store in stores.values())
        yield (
            "train",
            [
                *self._trained,
                f"dataset.stores=[{paths}]",
                f"output={self.checkpoint.parent}",
                f"trainer.steps={scale.steps}",
                f"trainer.batch_size={scale.batch}",
                f"trainer.seed={self.seed}",
            ],
        )
        yield (
            "eval",
            [
                f"suite={CAMPAIGN}{'_home' if experts_of(self.encoding) else ''}",
                f"checkpoint={self.checkpoint}",
                f"output={self.evaluation}",
                f"seeds={STARTS}",
                f"first_seed={FIRST_SEED}",
                "workers=0",  # One per core: without effect on the results.
                *EVALUATED,
            ],
        )

    def about(self) -> dict[str, object]:
        """Returns the fields of the cell, plain data."""
        return {"campaign": CAMPAIGN, **asdict(self)}

    def results(self) -> Mapping[str, Path]:
        """Returns the file of the episodes of each task."""
        end = ".home" if experts_of(self.encoding) else ""
        return {task: self.evaluation / f"{task}{end}" / "results.jsonl" for task in tasks()}


def tasks() -> list[str]:
    """Returns the names of the tasks."""
    entries = yaml.safe_load(SUITE.read_text(encoding="utf-8"))["entries"]
    return [entry["task"] for entry in entries]


def tasks_cells(scale: str) -> list[TasksCell]:
    """Returns the cells of a scale: the reference twice, then each choice, then further seeds."""
    cells = [TasksCell(COMPARED[0], seed, scale) for seed in (0, 1)]
    return list(
        dict.fromkeys(
            [*cells, *(TasksCell(each, seed, scale) for seed in range(3) for each in CHOICES)]
        )
    )
