"""Stored evaluations, and checks that they can be compared."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stringline.policies.execution.execution import RECEDING
from stringline.sim.evaluation.results import RESULTS, EpisodeResult, read_results
from stringline.sim.robots.arm_appearance import PRIMITIVES, ROBOT_MODEL
from stringline.sim.worlds.world_versions import VERSIONS

# Settings of the policy and its execution; the others are the conditions of the measurement.
POLICY_KEYS = ("checkpoint", "execute_steps", "execution", "emulated_hardware")
# Conditions that results name only if they are others.
USUAL = {ROBOT_MODEL: PRIMITIVES}


@dataclass(frozen=True)
class StoredTask:
    """The results file of one policy on one task: its first line, and its results by seed.

    Attributes:
        entry: Name of the entry of the suite, if another one has the same task and options.
    """

    path: Path
    about: Mapping[str, Any]
    results: Mapping[int, EpisodeResult]
    entry: str = ""

    @property
    def task(self) -> str:
        """Name of the task."""
        return str(self.about.get("task"))

    @property
    def name(self) -> str:
        """Name and options of the task, unique in an evaluation."""
        name = condition_name(self.task, self.about.get("options") or {})
        return f"{name} ({self.entry})" if self.entry else name

    def differences(self, other: "StoredTask") -> list[str]:
        """Returns the conditions that differ, as sentences; keys of only one file do not count."""
        common = [key for key in self.about if key in other.about and key not in POLICY_KEYS]
        return [
            f"{key} is {self.about[key]!r} in {self.path} and {other.about[key]!r} in {other.path}"
            for key in common
            if self.about[key] != other.about[key]
        ]

    def only_seeds(self, seeds: Iterable[int]) -> "StoredTask":
        """Returns the results of these seeds, which have results."""
        return replace(self, results={seed: self.results[seed] for seed in seeds})

    def first_seeds(self, count: int) -> "StoredTask":
        """Returns the results of the smallest seeds."""
        if count > len(self.results):
            raise ValueError(
                f"{self.path} has results of {len(self.results)} seeds; {count} are requested."
            )
        return self.only_seeds(sorted(self.results)[:count])


@dataclass(frozen=True)
class StoredEvaluation:
    """The stored results of one policy, by its name in the comparison, on at least one task."""

    name: str
    tasks: tuple[StoredTask, ...]

    def only_seeds(self, seeds: Mapping[str, Iterable[int]]) -> "StoredEvaluation":
        """Returns the results of these seeds of each task, by the name of the task."""
        return replace(self, tasks=tuple(task.only_seeds(seeds[task.name]) for task in self.tasks))


def condition_name(task: str, options: Mapping[str, Any]) -> str:
    """Returns the name of a task under options in comparisons."""
    return " ".join([task, *(f"{name}={value}" for name, value in options.items())])


def is_evaluation(path: Path) -> bool:
    """Returns whether a path holds results of an evaluation."""
    return bool(_files(path))


def read_evaluation(name: str, path: Path) -> StoredEvaluation:
    """Reads a stored evaluation: the output folder of a task or a suite, or a results file."""
    tasks = [stored for _, stored in _tasks(_files(path))]
    if not tasks:
        raise ValueError(
            f"{path} holds no results of an evaluation ({RESULTS} with at least one episode)."
        )
    return StoredEvaluation(name, _distinct(tasks))


def requested_results(name: str, seeds: Mapping[Path, Iterable[int]]) -> StoredEvaluation:
    """Reads the results of these seeds in each folder of a task; other results stay unread."""
    tasks = [stored.only_seeds(seeds[folder]) for folder, stored in _tasks(seeds)]
    return StoredEvaluation(name, _distinct(tasks))


def _distinct(tasks: Sequence[StoredTask]) -> tuple[StoredTask, ...]:
    """Returns the tasks of an evaluation; those of equal names get the entry of the suite.

    Such entries differ in seeds, time limit or images per second alone.
    """
    counts = Counter(task.name for task in tasks)
    return tuple(
        replace(task, entry=task.path.parent.name) if counts[task.name] > 1 else task
        for task in tasks
    )


def _tasks(folders: Iterable[Path]) -> Iterator[tuple[Path, StoredTask]]:
    """Yields the results of each folder or file that has some."""
    for folder in folders:
        file = folder if folder.is_file() else folder / RESULTS
        about, results = read_results(file)
        if results:
            yield folder, StoredTask(file, {**USUAL, **about}, results)


def common_tasks(
    runs: Sequence[StoredEvaluation],
) -> tuple[list[tuple[StoredTask, ...]], list[str]]:
    """Finds the tasks of all evaluations under the same conditions and on the same seeds.

    Returns:
        The results of all evaluations for each common task; and sentences on the omitted tasks.

    Raises:
        ValueError: Conditions or seeds differ, or there is no common task.
    """
    common: list[tuple[StoredTask, ...]] = []
    omitted: list[str] = []
    for task in runs[0].tasks:
        partners = [_partner(task, runs[0], run) for run in runs[1:]]
        if missing := [
            run.name for run, partner in zip(runs[1:], partners, strict=True) if partner is None
        ]:
            omitted.append(f"{task.name}: {', '.join(missing)} has no results.")
            continue
        common.append((task, *(partner for partner in partners if partner is not None)))
    for run in runs[1:]:
        used = {partner.path for row in common for partner in row}
        extra = [
            task
            for task in run.tasks
            if task.path not in used and not any(_agree(task, first) for first in runs[0].tasks)
        ]
        omitted += [f"{task.name}: {runs[0].name} has no results." for task in extra]
    if not common:
        raise ValueError(
            f"{' and '.join(run.name for run in runs)} have no common task. {' '.join(omitted)}"
        )
    for first, *others in common:
        for other in others:
            _check_seeds(first, other)
    return common, omitted


def condition_notes(names: Sequence[str], tasks: Sequence[Sequence[StoredTask]]) -> list[str]:
    """Returns sentences on incomplete episodes, and on settings of the policies that differ."""
    notes = []
    for task in tasks:
        for name, stored in zip(names, task, strict=True):
            if incomplete := sum(bool(result.error) for result in stored.results.values()):
                notes.append(
                    f"{stored.name}: {incomplete} episodes of {name} were not completed and count "
                    f"as failed."
                )
    steps = [str(task.about.get("execute_steps")) for task in tasks[0]]
    notes += _differing("Actions between two plans", names, steps)
    executions = [task.about.get("execution") or {"name": RECEDING} for task in tasks[0]]
    texts = [" ".join(str(value) for value in execution.values()) for execution in executions]
    notes += _differing("Execution", names, texts)
    notes += _unknown_versions([stored for task in tasks for stored in task])
    checkpoints = [task.about.get("checkpoint") for task in tasks[0]]
    if len(set(checkpoints)) == 1 and checkpoints[0] is not None:
        notes.append("All policies are the same checkpoint.")
    return notes


def _unknown_versions(files: Sequence[StoredTask]) -> list[str]:
    """Returns notes on results of earlier code, which lack versions that other results have."""
    known = [key for key in VERSIONS if any(key in stored.about for stored in files)]
    lacking = {stored.path: [key for key in known if key not in stored.about] for stored in files}
    return [
        f"{path} does not tell its version of {', '.join(keys)}."
        for path, keys in lacking.items()
        if keys
    ]


def _differing(label: str, names: Sequence[str], values: Sequence[str]) -> list[str]:
    """Returns a note with the value of each policy, if the values differ."""
    if len(set(values)) == 1:
        return []
    listed = (f"{name} {value}" for name, value in zip(names, values, strict=True))
    return [f"{label}: {', '.join(listed)}."]


def _agree(first: StoredTask, second: StoredTask) -> bool:
    return first.task == second.task and not first.differences(second)


def _partner(task: StoredTask, owner: StoredEvaluation, run: StoredEvaluation) -> StoredTask | None:
    """Returns the same task of another evaluation; raises an error if only conditions differ."""
    for other in run.tasks:
        if _agree(task, other):
            return other
    for other in run.tasks:
        if other.task == task.task and not any(_agree(mine, other) for mine in owner.tasks):
            raise ValueError(
                f"{task.task} was evaluated under different conditions: "
                f"{'; '.join(task.differences(other))}."
            )
    return None


def _check_seeds(first: StoredTask, second: StoredTask) -> None:
    if set(first.results) == set(second.results):
        return
    least = min(len(first.results), len(second.results))
    equal = sorted(first.results)[:least] == sorted(second.results)[:least]
    hint = f" The first {least} are the same: seeds={least} compares those." if equal else ""
    raise ValueError(
        f"{first.name} was evaluated on different seeds: {_span(first)} in {first.path}, "
        f"{_span(second)} in {second.path}.{hint}"
    )


def _span(task: StoredTask) -> str:
    return f"{len(task.results)} from {min(task.results)} to {max(task.results)}"


def _files(path: Path) -> list[Path]:
    for single in (path, path / RESULTS):
        if single.is_file():
            return [single]  # Folders below the results of a single task hold repeated episodes.
    return sorted(path.glob(f"*/{RESULTS}"))
