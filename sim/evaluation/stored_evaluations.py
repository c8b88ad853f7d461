"""Finished evaluations as they lie on the disk, and whether they may be compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stringline.sim.evaluation.results import RESULTS, EpisodeResult, read_results
from stringline.sim.robots.robot_model import PRIMITIVES, ROBOT_MODEL

# What is measured, rather than what it is measured on.
MEASURED = ("checkpoint", "execute_steps", "execution", "wire")


@dataclass(frozen=True)
class FinishedTask:
    """The results of one policy on one task.

    Attributes:
        path: Their file.
        about: What was evaluated, from the head of the file.
        results: By seed.
    """

    path: Path
    about: Mapping[str, Any]
    results: Mapping[int, EpisodeResult]

    @property
    def task(self) -> str:
        """Name of the task."""
        return str(self.about.get("task"))

    @property
    def name(self) -> str:
        """The task with its options, as a reader would say it."""
        return " ".join(
            [
                self.task,
                *(f"{name}={value}" for name, value in (self.about.get("options") or {}).items()),
            ]
        )

    def differences(self, other: "FinishedTask") -> list[str]:
        """Says in which settings, beside what is measured, the other one differs; what only one of them knows is left out."""
        shared = [key for key in self.about if key in other.about and key not in MEASURED]
        return [
            f"{key} is {self.about[key]!r} in {self.path} and {other.about[key]!r} in {other.path}"
            for key in shared
            if self.about[key] != other.about[key]
        ]

    def first_seeds(self, count: int) -> "FinishedTask":
        """Returns what is known of the smallest seeds only.

        Raises:
            ValueError: There are not that many.
        """
        if count > len(self.results):
            raise ValueError(
                f"{self.path} has results of {len(self.results)} seeds; {count} are asked for."
            )
        return FinishedTask(
            self.path,
            self.about,
            {seed: self.results[seed] for seed in sorted(self.results)[:count]},
        )


@dataclass(frozen=True)
class FinishedRun:
    """The results of one policy on all its tasks.

    Attributes:
        name: What to call it.
        tasks: At least one.
    """

    name: str
    tasks: tuple[FinishedTask, ...]


def is_finished(path: Path) -> bool:
    """Says whether there are results of an evaluation."""
    return bool(_files(path))


def read_run(name: str, path: Path) -> FinishedRun:
    """Reads what an evaluation has written.

    Args:
        name: What to call it.
        path: The folder of its output, of a single task or of a suite; or a file of results.

    Raises:
        ValueError: There are no results, or they cannot be read.
    """
    tasks = []
    for file in _files(path):
        about, results = read_results(file)
        if results:
            tasks.append(FinishedTask(file, {ROBOT_MODEL: PRIMITIVES, **about}, results))
    if not tasks:
        raise ValueError(
            f"{path} holds no results of an evaluation ({RESULTS} with at least one episode)."
        )
    return FinishedRun(name, tuple(tasks))


def same_tasks(runs: Sequence[FinishedRun]) -> tuple[list[tuple[FinishedTask, ...]], list[str]]:
    """Finds what all runs were measured on, under the same conditions and on the same seeds.

    Returns:
        For each task that all of them have, the results of each; and sentences on the tasks that
        are left out because one of them has no results there.

    Raises:
        ValueError: The conditions or the seeds differ, or nothing is shared; the message names both
            values.
    """
    shared: list[tuple[FinishedTask, ...]] = []
    left_out: list[str] = []
    for task in runs[0].tasks:
        partners = [_partner(task, runs[0], run) for run in runs[1:]]
        if missing := [
            run.name for run, partner in zip(runs[1:], partners, strict=True) if partner is None
        ]:
            left_out.append(f"{task.name}: {', '.join(missing)} has no results there.")
            continue
        shared.append((task, *(partner for partner in partners if partner is not None)))
    for run in runs[1:]:
        used = {partner.path for row in shared for partner in row}
        extra = [
            task
            for task in run.tasks
            if task.path not in used and not any(_agree(task, first) for first in runs[0].tasks)
        ]
        left_out += [f"{task.name}: {runs[0].name} has no results there." for task in extra]
    if not shared:
        raise ValueError(
            f"{' and '.join(run.name for run in runs)} were not measured on any common task. "
            f"{' '.join(left_out)}"
        )
    for first, *others in shared:
        for other in others:
            _check_seeds(first, other)
    return shared, left_out


def _agree(first: FinishedTask, second: FinishedTask) -> bool:
    return first.task == second.task and not first.differences(second)


def _partner(task: FinishedTask, owner: FinishedRun, run: FinishedRun) -> FinishedTask | None:
    """Returns the task of another run under the same conditions; refuses one that is only nearly the same."""
    for other in run.tasks:
        if _agree(task, other):
            return other
    for other in run.tasks:
        if other.task == task.task and not any(_agree(mine, other) for mine in owner.tasks):
            raise ValueError(
                f"{task.task} was measured under different conditions: "
                f"{'; '.join(task.differences(other))}."
            )
    return None


def _check_seeds(first: FinishedTask, second: FinishedTask) -> None:
    if set(first.results) == set(second.results):
        return
    least = min(len(first.results), len(second.results))
    common = sorted(first.results)[:least] == sorted(second.results)[:least]
    hint = f" The first {least} are the same: seeds={least} compares those." if common else ""
    raise ValueError(
        f"{first.name} was measured on different seeds: {_span(first)} in {first.path}, "
        f"{_span(second)} in {second.path}.{hint}"
    )


def _span(task: FinishedTask) -> str:
    return f"{len(task.results)} from {min(task.results)} to {max(task.results)}"


def _files(path: Path) -> list[Path]:
    for single in (path, path / RESULTS):
        if single.is_file():
            return [single]  # Of a single task; folders below it are none of its business.
    return sorted(path.glob(f"*/{RESULTS}"))
