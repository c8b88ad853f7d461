"""Suites: lists of tasks, with variations and fixed seeds, for evaluations.

Command lines of training, evaluation and comparison choose a suite or a list of tasks.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from stringline.datasets.command.choices import CONFIGS, choice_names, completed
from stringline.datasets.contract.argument_checks import COUNT, POSITIVE, WHOLE, unknown_name
from stringline.datasets.files.limits import read_yaml
from stringline.sim.tasks.task_registry import is_remote_task, is_user_task
from stringline.sim.worlds.task_settings import TaskSettings

EVALUATION_SEED = 1_000_000
FIXED_BY_CHECKPOINT = ("task.cameras", "task.image_size", "task.control_hz")
KEYS = ("task", "variation", "options", "seeds", "first_seed", "time_limit_s", "frame_hz")
OF_ALL_TASKS = ("task.python=", "task.answer_s=")
"""Overrides for all environments of a suite that run in another interpreter."""
_TASK_KEYS = ("time_limit_s", "frame_hz")


def evaluation_seeds(count: int, first: int = EVALUATION_SEED) -> list[int]:
    """Returns the seeds of evaluations, far above those of collections: no policy has seen them."""
    return list(range(first, first + count))


@dataclass(frozen=True)
class SuiteEntry:
    """One entry of a suite.

    Attributes:
        task: Name of the task, as in `configs/task`, or `module:Class`.
        seeds: Distinct seeds.
        variation: Name of the variation; empty for the plain task.
        options: Changes of the world.
        changes: Settings of the task that differ from its file: `time_limit_s`, `frame_hz`,
            `embodiment`.
        counted: Whether the seeds are given by their number instead of a list.
    """

    task: str
    seeds: tuple[int, ...]
    variation: str
    options: Mapping[str, Any]
    changes: Mapping[str, float | str]
    counted: bool = True

    @classmethod
    def parse(cls, plain: object, where: str) -> Self:
        """Reads an entry, a mapping with `task` and other keys of `KEYS`.

        `where` names the entry in error messages.
        """
        if not isinstance(plain, Mapping):
            raise ValueError(
                f"{where} is {plain!r}; allowed: a mapping such as {{task: hand_over_banana, "
                f"seeds: 50}}."
            )
        for key in plain:
            if key not in KEYS:
                raise unknown_name(f"setting of a suite's entry ({where})", str(key), KEYS)
        if not isinstance(task := plain.get("task"), str):
            raise ValueError(f"{where} lacks its task; add task: hand_over_banana.")
        options = plain.get("options") or {}
        if not isinstance(options, Mapping):
            raise ValueError(
                f"{where}: options is {options!r}; allowed: a mapping such as {{table_height: "
                f"0.02}}."
            )
        variation = str(
            plain.get("variation") or ",".join(f"{name}={value}" for name, value in options.items())
        )
        if not re.fullmatch(r"[\w=.,+-]*", variation):
            raise ValueError(
                f"{where}: variation is {variation!r}; allowed: letters, digits and _ = . , + -, "
                f"because it names a folder."
            )
        seeds = _seeds(plain.get("seeds", 50), plain.get("first_seed"), where)
        changes: dict[str, float | str] = {
            key: _positive(plain[key], f"{where}: {key}") for key in _TASK_KEYS if key in plain
        }
        return cls(
            task,
            seeds,
            variation,
            dict(options),
            changes,
            counted=isinstance(plain.get("seeds", 50), int),
        )

    @property
    def name(self) -> str:
        """Task and variation, joined by a dot: unique in the suite, and the folder of results."""
        return f"{self.task}.{self.variation}" if self.variation else self.task

    def settings(self) -> TaskSettings:
        """Returns the settings of the task with the options and changes of this entry.

        Raises:
            ValueError: The task is unknown.
        """
        plain = _settings_of(self.task)
        options = {**(plain.get("options") or {}), **self.options}
        return TaskSettings.of({**plain, **self.changes, "options": options})


def _settings_of(task: str) -> dict[str, Any]:
    """Returns the settings of a task of `configs/task`, or of the class of a user."""
    if is_user_task(task):
        return {"name": task}
    if not is_remote_task(task) and task not in (known := choice_names(CONFIGS, "task")):
        raise unknown_name("task", task, known)
    return completed(CONFIGS, f"task/{task}")


@dataclass(frozen=True)
class Suite:
    """A list of entries with distinct names."""

    name: str
    entries: tuple[SuiteEntry, ...]

    @classmethod
    def parse(cls, name: str, plain: object) -> Self:
        """Reads a suite: a mapping whose only key `entries` is a list of entries.

        Raises:
            ValueError: The suite is not such a mapping, or two entries have the same name.
        """
        listed = plain.get("entries") if isinstance(plain, Mapping) and len(plain) == 1 else None
        if not isinstance(listed, list):
            raise ValueError(
                f"The suite {name} is not a mapping of 'entries' to a list, such as entries: "
                f"[{{task: fmb_1, seeds: 50}}]."
            )
        entries = tuple(
            SuiteEntry.parse(entry, f"entry {number} of the suite {name}")
            for number, entry in enumerate(listed, 1)
        )
        if not entries:
            raise ValueError(f"The suite {name} has no entry.")
        counts = Counter(entry.name for entry in entries)
        if repeated := [entry for entry, count in counts.items() if count > 1]:
            raise ValueError(
                f"The suite {name} has {repeated[0]} twice; give each its own `variation: NAME`."
            )
        return cls(name, entries)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a suite from a YAML file.

        Raises:
            ValueError: The file is missing, expands to too much, or holds no suite.
        """
        if not path.is_file():
            raise ValueError(f"There is no suite file {str(path)!r}.")
        return cls.parse(path.stem, read_yaml("The suite file", path))

    def with_rules(self, rule: Callable[[str], Mapping[str, Any]]) -> Self:
        """Returns the suite with the options that `rule` returns for the name of a task.

        Options that an entry has stay as they are.
        """
        entries = tuple(
            replace(entry, options={**rule(entry.task), **entry.options}) for entry in self.entries
        )
        return replace(self, entries=entries)

    def with_embodiments(self, arm: Callable[[str], str | None]) -> Self:
        """Returns the suite with the arm that `arm` returns for the name of a task; None: usual."""
        entries = tuple(
            entry
            if (chosen := arm(entry.task)) is None
            else replace(entry, changes={**entry.changes, "embodiment": chosen})
            for entry in self.entries
        )
        return replace(self, entries=entries)

    def with_interpreter(self, python: str | None, answer_s: float) -> Self:
        """Returns the suite with the interpreter of its environments that run in another one."""
        entries = tuple(
            replace(entry, changes={**entry.changes, "python": python, "answer_s": answer_s})
            if python is not None and is_remote_task(entry.task)
            else entry
            for entry in self.entries
        )
        return replace(self, entries=entries)

    def with_seeds(
        self,
        count: int | None,
        first: int | None,
        *,
        of_lists: tuple[int | None, int | None] | None = None,
    ) -> Self:
        """Returns the suite with `count` seeds from `first` in each entry; None means unchanged.

        For entries with a list of seeds, `of_lists` are both, if given; the first ones of the list
        are kept.
        """
        counts = (count, first)
        entries = tuple(
            _with_seeds(entry, *(counts if entry.counted else of_lists or counts))
            for entry in self.entries
        )
        return replace(self, entries=entries)


def _with_seeds(entry: SuiteEntry, count: int | None, first: int | None) -> SuiteEntry:
    count = len(entry.seeds) if count is None else count
    if entry.counted:
        first = entry.seeds[0] if first is None else first
        return replace(entry, seeds=_seeds(count, first, entry.name))
    if first is not None or count > len(entry.seeds):
        raise ValueError(
            f"{entry.name} has a list of {len(entry.seeds)} seeds; allowed: at most "
            f"seeds={len(entry.seeds)}, and no first_seed."
        )
    return replace(entry, seeds=entry.seeds[:count])


def _seeds(value: object, first: object, where: str) -> tuple[int, ...]:
    first = EVALUATION_SEED if first is None else first
    if isinstance(value, int) and isinstance(first, int) and value in COUNT and first in WHOLE:
        return tuple(evaluation_seeds(value, first))
    listed = value if isinstance(value, list) and all(seed in WHOLE for seed in value) else []
    if listed and len(set(listed)) == len(listed):
        return tuple(listed)
    raise ValueError(
        f"{where}: seeds is {value!r}, first_seed {first!r}; allowed: a number of at least 1 and "
        f"a first seed of at least 0, or a list of distinct seeds."
    )


def _positive(value: object, where: str) -> float:
    if isinstance(value, int | float) and value in POSITIVE:
        return float(value)
    raise ValueError(f"{where} is {value!r}; allowed: numbers above 0.")


TASKS = "tasks"


def with_suites(arguments: Sequence[str]) -> list[str]:
    """Returns a command line in the form that Hydra reads.

    `suite=PATH.yaml` becomes `suite_file=PATH.yaml`, because Hydra would look for the path among
    the shipped suites. `task=[NAME,NAME]` becomes `tasks=[NAME,NAME]`, because of several choices
    of a group Hydra merges all and keeps the last.
    """
    return [_for_hydra(argument) for argument in arguments]


def _for_hydra(argument: str) -> str:
    key, _, value = argument.partition("=")
    if key == "suite" and value.endswith((".yaml", ".yml")):
        return f"suite_file={value}"
    if key == "task" and value.startswith("["):
        return f"{TASKS}={value}"
    return argument


def chosen_suite(
    plain: Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    of_lists: Mapping[str, int] | None = None,
) -> Suite | None:
    """Returns the suite of the settings on the chosen seeds; None for a single task.

    Args:
        plain: The settings: at most one of `suite` (a mapping), `suite_file` and `tasks` (names),
            and `seeds` and `first_seed`; what is null or missing is not chosen.
        overrides: The command line, `key=value`.
        of_lists: `seeds` and `first_seed` of entries with a list of seeds, where they are not those
            of `plain`; missing ones change nothing. If None, those of `plain`.

    Raises:
        ValueError: There are two of them, or settings of a single task beside one; the suite is not
            valid, or a task is unknown.
    """
    given = [name for name in ("suite", "suite_file", TASKS) if plain.get(name) is not None]
    if not given:
        return None
    if len(given) > 1:
        raise ValueError(f"Both {given[0]} and {given[1]} are given; allowed: one of them.")
    for override in overrides:
        if override.startswith(OF_ALL_TASKS):
            continue
        if override.lstrip("+~").startswith(("task=", "task.", "shift=", "looks=")):
            raise ValueError(
                f"{override} is for a single task, but each entry of a suite has its own settings. "
                f"Omit {override} or the suite."
            )
    suite = _suite(plain, overrides)
    for entry in suite.entries:
        entry.settings()  # An unknown task is found before anything runs.
    lists = plain if of_lists is None else of_lists
    return suite.with_seeds(
        plain.get("seeds"),
        plain.get("first_seed"),
        of_lists=(lists.get("seeds"), lists.get("first_seed")),
    )


def check_overrides(overrides: Sequence[str]) -> None:
    """Raises a ValueError if an override `key=value` sets cameras, size of images or rate."""
    for override in overrides:
        if override.lstrip("+~").partition("=")[0] in FIXED_BY_CHECKPOINT:
            raise ValueError(
                f"{override} has no effect here: a checkpoint is evaluated with the cameras, the "
                f"size of images and the rate of actions of its training. Omit it."
            )


def suite_of_training(settings: Mapping[str, Any], overrides: Sequence[str]) -> Suite | None:
    """Returns the suite of the evaluations during training; None for a single task or none.

    Of entries with a list of seeds, only the command line changes the seeds.

    Args:
        settings: Those of `stringline-train`.
        overrides: The command line, `key=value`.

    Raises:
        ValueError: See `chosen_suite`.
    """
    evaluation = settings["evaluation"]
    given = {override.lstrip("+").partition("=")[0] for override in overrides}
    of_lists = {
        name: evaluation[name] for name in ("seeds", "first_seed") if f"evaluation.{name}" in given
    }
    return chosen_suite({**settings, **evaluation}, overrides, of_lists=of_lists)


def _suite(plain: Mapping[str, Any], overrides: Sequence[str]) -> Suite:
    if plain.get("suite_file") is not None:
        return Suite.read(Path(plain["suite_file"]))
    if (tasks := plain.get(TASKS)) is not None:
        if not isinstance(tasks, list):
            raise ValueError(f"tasks is {tasks!r}; allowed: a list such as [fmb_1,fmb_2].")
        return Suite.parse(TASKS, {"entries": [{"task": task} for task in tasks]})
    names = [name for key, _, name in (o.partition("=") for o in overrides) if key == "suite"]
    return Suite.parse((names or ["given"])[0], plain["suite"])
