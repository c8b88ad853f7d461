"""The plan of an experiment: its recipes, trainings and data, and the commands of each.

The folder of an experiment has a record of its plan, with which the same command continues it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from stringline.datasets.command.application import hydra_value
from stringline.datasets.command.choices import CONFIGS, choice_names
from stringline.datasets.contract.argument_checks import COUNT, WHOLE, unknown_name
from stringline.datasets.files.atomic import write_file
from stringline.datasets.store.store import EpisodeStore
from stringline.sim.evaluation.suites import Suite
from stringline.sim.experiments.recipes import (
    TrainingRecipe,
    check_command,
    names_data,
    overrides_of,
    parse_recipes,
)
from stringline.sim.rollout.jobs import Job
from stringline.sim.tasks.task_registry import is_remote_task, is_user_task


@dataclass(frozen=True)
class Cell:
    """One training of a recipe: its seed, the folder of its job, and its round of corrections.

    Round 0 is the training on demonstrations; `rounds` is the number of those that follow.
    """

    recipe: str
    seed: int
    folder: Path
    round: int = 0
    rounds: int = 0

    @property
    def label(self) -> str:
        """The recipe, and the round if there are several."""
        return f"{self.recipe}, round {self.round}" if self.rounds else self.recipe

    @property
    def name(self) -> str:
        """Name in messages."""
        return f"{self.label}, training {self.seed}"

    @property
    def place(self) -> Path:
        """Folder of the round."""
        return self.folder / f"round_{self.round}" if self.round else self.folder

    @property
    def training(self) -> Path:
        """Output of `stringline-train`."""
        return self.place / "training"

    @property
    def evaluation(self) -> Path:
        """Output of `stringline-eval`."""
        return self.place / "evaluation"

    def corrections(self, task: str) -> Path:
        """Store of the corrections with which the round begins."""
        return self.place / "corrections" / _folder_name(task)

    def at(self, number: int) -> "Cell":
        """Returns another round of the same training."""
        return replace(self, round=number)


@dataclass(frozen=True)
class ExperimentPlan:
    """The settings of `configs/experiment.yaml`.

    Attributes:
        recipes: At least one, with distinct names.
        trainings: Number of trainings of each recipe; their seeds are 0, 1, ...
        output: Folder of the experiment.
        tasks: Tasks to collect and to evaluate on.
        suite: Name or YAML file of a suite to evaluate on, in place of the tasks.
        stores: Existing stores; without any, demonstrations of each task are collected.
        episodes: Number of demonstrations of each task.
        collect: Overrides of each `stringline-collect`.
        train: Overrides of each `stringline-train`.
        evaluate: Overrides of each `stringline-eval`.
        seeds: Number of starts of an evaluation; if None, 50, or those of the suite.
        first_seed: First of these seeds; if None, 1000000.
        workers: Parallel simulations of a command.
        videos: Whether evaluations record videos.
        python: Interpreter of the environments that run in another one.
        rounds: Rounds after each training: the expert corrects its policy, and the training goes
            on with all corrections so far.
        corrections: Corrected episodes of each task in a round.
        correct: Overrides of `stringline-collect` in rounds.
        retrain: Overrides of `stringline-train` in rounds.
    """

    recipes: tuple[TrainingRecipe, ...]
    trainings: int
    output: Path
    tasks: tuple[str, ...]
    suite: str | None
    stores: tuple[str, ...]
    episodes: int
    collect: tuple[str, ...]
    train: tuple[str, ...]
    evaluate: tuple[str, ...]
    seeds: int | None
    first_seed: int | None
    workers: int
    videos: bool
    python: str | None = None
    rounds: int = 0
    corrections: int = 50
    correct: tuple[str, ...] = ()
    retrain: tuple[str, ...] = ()

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Reads and checks the settings, before anything runs.

        Raises:
            ValueError: A setting is wrong, or a recipe has an override that does not exist.
        """
        stores = plain["dataset"]["path"]
        plan = cls(
            recipes=parse_recipes(plain["recipes"], plain["recipes_file"]),
            trainings=plain["trainings"],
            output=Path(str(plain["output"])).absolute(),
            tasks=tuple(map(str, plain["tasks"])),
            suite=plain["suite_name"],
            stores=tuple(map(str, stores if isinstance(stores, list) else [stores] * bool(stores))),
            episodes=plain["episodes"],
            collect=overrides_of(plain["collect"], "collect"),
            train=overrides_of(plain["train"], "train"),
            evaluate=overrides_of(plain["evaluate"], "evaluate"),
            seeds=plain["seeds"],
            first_seed=plain["first_seed"],
            workers=plain["workers"],
            videos=plain["videos"],
            python=plain["python"],
            rounds=plain["rounds"],
            corrections=plain["corrections"],
            correct=overrides_of(plain["correct"], "correct"),
            retrain=overrides_of(plain["retrain"], "retrain"),
        )
        plan.check()
        return plan

    def check(self) -> None:
        """Raises a ValueError for settings that cannot be run."""
        COUNT.check(trainings=self.trainings, episodes=self.episodes, corrections=self.corrections)
        WHOLE.check(workers=self.workers, rounds=self.rounds)
        if self.seeds is not None:
            COUNT.check(seeds=self.seeds)
        self._check_tasks()
        for store in self.stores:
            EpisodeStore.open(store)
        check_command("stringline-collect", self.collect, "collect")
        check_command("stringline-train", self.train, "train")
        check_command("stringline-eval", self.evaluate, "evaluate")
        check_command("stringline-collect", self.correct, "correct")
        check_command("stringline-train", self.retrain, "retrain")
        if self.rounds and not self.tasks:
            raise ValueError(
                "rounds needs the task in which the expert corrects: task=NAME, in place of suite."
            )
        for recipe in self.recipes:
            where = f"The recipe {recipe.name!r}"
            check_command("stringline-train", recipe.train, where)
            check_command("stringline-collect", recipe.collect, where)
            self._check_data(recipe)

    def _check_tasks(self) -> None:
        known = {kind: choice_names(CONFIGS, kind) for kind in ("task", "suite")}
        for task in self.tasks:
            if not (is_user_task(task) or is_remote_task(task)) and task not in known["task"]:
                raise unknown_name("task", task, known["task"])
        if len(set(self.tasks)) < len(self.tasks):
            raise ValueError(f"task is [{','.join(self.tasks)}]; each task can be named once.")
        if self.suite is None and not self.tasks:
            raise ValueError(
                "The evaluation needs a task: task=NAME, task=[NAME,NAME] or suite=NAME."
            )
        if self.suite is not None and self.suite.endswith((".yaml", ".yml")):
            for entry in Suite.read(Path(self.suite)).entries:
                entry.settings()
        elif self.suite is not None and self.suite not in known["suite"]:
            raise unknown_name("suite", self.suite, known["suite"])

    def _check_data(self, recipe: TrainingRecipe) -> None:
        chosen = names_data((*self.train, *recipe.train))
        if chosen and (recipe.collect or self.stores):
            raise ValueError(
                f"The recipe {recipe.name!r} has its own data, so collect and dataset.path of the "
                f"experiment have no effect on it. Omit one of them."
            )
        if chosen and self.rounds:
            raise ValueError(
                f"The recipe {recipe.name!r} has its own data, which rounds cannot join with "
                f"corrections. Omit rounds, or name the data by dataset.path of the experiment."
            )
        if self.stores and (recipe.collect or self.collect):
            raise ValueError("dataset.path names the data, so collect has no effect. Omit one.")
        if not (chosen or self.stores or self.tasks):
            raise ValueError(
                f"The recipe {recipe.name!r} has no data: dataset.path=STORE uses a store, and "
                f"task=NAME collects demonstrations."
            )

    def cells(self) -> list[Cell]:
        """Returns all cells; the first trainings of all recipes come first."""
        return [
            Cell(recipe.name, seed, self._folder(recipe) / str(seed), number, self.rounds)
            for seed in range(self.trainings)
            for recipe in self.recipes
            for number in range(self.rounds + 1)
        ]

    def collections(self) -> list[Job]:
        """Returns the jobs that record demonstrations: of each task, once for equal settings."""
        jobs: dict[Path, Job] = {}
        for recipe in self.recipes:
            for task, folder in self.collected(recipe).items():
                command = self.collect_command(recipe, task)
                name = f"demonstrations of {task}"
                name += f" for {recipe.name}" if recipe.collect else ""
                jobs[folder] = Job(name, (command,), folder, Path.cwd())
        return list(jobs.values())

    def job(self, cell: Cell) -> Job:
        """Returns the job of a cell: training and evaluation, after those of the rounds before."""
        commands = [
            command
            for number in range(cell.round + 1)
            for command in self.round_commands(cell.at(number))
        ]
        return Job(cell.name, tuple(commands), cell.folder, Path.cwd())

    def round_commands(self, cell: Cell) -> tuple[tuple[str, ...], ...]:
        """Returns the commands of a round: corrections, training, and evaluation."""
        corrections = [self.correct_command(cell, task) for task in self.tasks if cell.round]
        return (*corrections, self.train_command(cell), self.eval_command(cell))

    def correct_command(self, cell: Cell, task: str) -> tuple[str, ...]:
        """Returns the command in which the expert corrects the policy of the round before."""
        return (
            "stringline-collect",
            _task(task),
            f"policy={_path(cell.at(cell.round - 1).training / 'checkpoint')}",
            f"episodes={self.corrections}",
            f"first_seed={FIRST_SEED_OF_ROUNDS * cell.round}",
            f"workers={self.workers}",
            *self.correct,
            f"output={_path(cell.corrections(task))}",
        )

    def train_command(self, cell: Cell) -> tuple[str, ...]:
        """Returns the command of a training; in a round it goes on with the policy before."""
        recipe = self._recipe(cell.recipe)
        overrides = (*self.train, *recipe.train)
        if cell.round:
            before = cell.at(cell.round - 1).training / "checkpoint"
            overrides = (
                *overrides,
                f"initialise_from={_path(before)}",
                "keep_normalisation=true",
                *([] if any(map(_is_share, self.retrain)) else [f"{SHARE_OF_CORRECTIONS}0.5"]),
                *self.retrain,
            )
        return (
            "stringline-train",
            *self.data(recipe, cell),
            *overrides,
            f"trainer.seed={cell.seed}",
            f"output={_path(cell.training)}",
        )

    def eval_command(self, cell: Cell) -> tuple[str, ...]:
        """Returns the command of an evaluation."""
        numbers = {"seeds": self.seeds, "first_seed": self.first_seed, "workers": self.workers}
        return (
            "stringline-eval",
            f"checkpoint={_path(cell.training / 'checkpoint')}",
            *self.measured(),
            *self._interpreter(),
            *(f"{key}={value}" for key, value in numbers.items() if value is not None),
            f"videos={str(self.videos).lower()}",
            *self.evaluate,
            f"output={_path(cell.evaluation)}",
        )

    def collect_command(self, recipe: TrainingRecipe, task: str) -> tuple[str, ...]:
        """Returns the command that records the demonstrations of a task."""
        return (
            "stringline-collect",
            _task(task),
            *self._interpreter(),
            f"episodes={self.episodes}",
            f"workers={self.workers}",
            *self.collect,
            *recipe.collect,
            f"output={_path(self.collected(recipe)[task] / 'store')}",
        )

    @property
    def suite_file(self) -> Path:
        """The suite of several tasks."""
        return self.output / "tasks.yaml"

    def _interpreter(self) -> tuple[str, ...]:
        """Returns the override with the interpreter of the tasks, if there is one."""
        return () if self.python is None else (f"task.python={hydra_value(self.python)}",)

    def _recipe(self, name: str) -> TrainingRecipe:
        return next(recipe for recipe in self.recipes if recipe.name == name)

    def _folder(self, recipe: TrainingRecipe) -> Path:
        return self.output / "recipes" / recipe.name

    def collected(self, recipe: TrainingRecipe) -> dict[str, Path]:
        """Returns the folders of the demonstrations to collect, by task."""
        if names_data((*self.train, *recipe.train)) or self.stores:
            return {}
        common = self.output / "demonstrations"
        own = self._folder(recipe) / "demonstrations"
        folder = own if recipe.collect else common
        return {task: folder / _folder_name(task) for task in self.tasks}

    def data(self, recipe: TrainingRecipe, cell: Cell | None = None) -> tuple[str, ...]:
        """Returns the overrides that choose the data of a training.

        In a round these are also the corrections so far.
        """
        if names_data((*self.train, *recipe.train)):
            return ()
        paths = [folder / "store" for folder in self.collected(recipe).values()]
        paths = paths or [*map(Path, self.stores)]
        if cell is not None:
            rounds = map(cell.at, range(1, cell.round + 1))
            paths += [each.corrections(task) for each in rounds for task in self.tasks]
        stores = [_path(path) for path in paths]
        if len(stores) == 1:
            return (f"dataset.path={stores[0]}",)
        listed = ",".join(f"{{path:{store}}}" for store in stores)
        return ("dataset=mixture", f"dataset.stores=[{listed}]")

    def measured(self) -> tuple[str, ...]:
        """Returns the overrides that choose the tasks of an evaluation."""
        if self.suite is not None:
            is_file = self.suite.endswith((".yaml", ".yml"))
            return (f"suite_file={_path(Path(self.suite))}" if is_file else f"suite={self.suite}",)
        first, *others = self.tasks
        return (f"suite_file={_path(self.suite_file)}" if others else _task(first),)


def _task(name: str) -> str:
    """Returns the override that chooses a task."""
    return f"task.name={hydra_value(name)}" if is_user_task(name) else f"task={name}"


def _folder_name(task: str) -> str:
    return task.replace(":", ".")


def _path(path: Path) -> str:
    return hydra_value(str(path))


FIRST_SEED_OF_ROUNDS = 100_000  # Demonstrations begin at 10000, evaluations at 1000000.
SHARE_OF_CORRECTIONS = "dataset.corrections="


def _is_share(override: str) -> bool:
    return override.startswith(SHARE_OF_CORRECTIONS)


RECORD = "experiment.json"


def prepare(plan: ExperimentPlan) -> None:
    """Creates the folder of an experiment, or checks that it holds this experiment.

    Recipes, trainings, rounds and seeds of evaluations may be added.

    Raises:
        ValueError: A recipe or the evaluation differs from that of the folder.
    """
    file = plan.output / RECORD
    there = json.loads(file.read_text()) if file.is_file() else {}
    here = _record(plan)
    for name, recipe in here["recipes"].items():
        before = there.get("recipes", {}).get(name, recipe)
        if before != recipe:
            raise ValueError(
                f"The recipe {name!r} of {plan.output} was {_differing(before, recipe)}; now it is "
                f"{_differing(recipe, before)}. Trainings of different recipes are no replicates: "
                f"choose another name for it, or another output."
            )
    for name in ("evaluation", "rounds"):
        before = there.get(name)
        now = here.get(name)
        if before is not None and now is not None and before != now:
            raise ValueError(
                f"The {name.rstrip('s')}s of {plan.output} were {_text(before)}; now they are "
                f"{_text(now)}. Choose another output."
            )
    recipes = {**there.get("recipes", {}), **here["recipes"]}
    plan.output.mkdir(parents=True, exist_ok=True)
    write_file(file, json.dumps({**there, **here, "recipes": recipes}, indent=1).encode())
    write_tasks(plan)


def write_tasks(plan: ExperimentPlan) -> None:
    """Writes the suite of an experiment with several tasks."""
    if len(plan.tasks) > 1:
        entries = [{"task": task} for task in plan.tasks]
        write_file(plan.suite_file, json.dumps({"entries": entries}, indent=1).encode())


def _record(plan: ExperimentPlan) -> dict[str, Any]:
    """Returns what decides the results, as plain JSON."""
    recipes: dict[str, list[str]] = {}
    for recipe in plan.recipes:
        commands = [plan.collect_command(recipe, task) for task in plan.collected(recipe)]
        collected = [
            part
            for command in commands
            for part in command[1:]
            if not part.startswith(("workers=", "output=", "task.python="))
        ]
        data = collected or [*plan.data(recipe)]
        recipes[recipe.name] = [*data, *plan.train, *recipe.train]
    first = [] if plan.first_seed is None else [f"first_seed={plan.first_seed}"]
    tasks = [f"task=[{','.join(plan.tasks)}]"] if len(plan.tasks) > 1 else plan.measured()
    found: dict[str, Any] = {
        "recipes": recipes,
        "evaluation": [*tasks, *first, *plan.evaluate],
    }
    if plan.rounds:
        found["rounds"] = [f"corrections={plan.corrections}", *plan.correct, *plan.retrain]
    return found


def _differing(overrides: Sequence[str], others: Sequence[str]) -> str:
    """Returns the overrides that the others lack; all of them if only their order differs."""
    same = sorted(overrides) == sorted(others)
    return _text([each for each in overrides if same or each not in others])


def _text(overrides: Sequence[str]) -> str:
    return f"[{', '.join(overrides)}]"
