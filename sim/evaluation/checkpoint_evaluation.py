"""Evaluation of a checkpoint on tasks and suites, with the cameras and rates of its training.

The outcomes are means over tasks, and changes under variations.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch

from stringline.datasets.contract.argument_checks import COUNT, WHOLE
from stringline.datasets.files.atomic import FULL_DISK, write_file
from stringline.policies.checkpoints.load import CPU, open_policy
from stringline.policies.checkpoints.training_record import RecordedExecution, TrainingRecord
from stringline.policies.chunks.chunk import Policy
from stringline.policies.execution.execution import Execution
from stringline.sim.environment.sensing import common_image_size
from stringline.sim.evaluation.results import (
    RESULTS,
    EpisodeResult,
    OtherEvaluationError,
    Summary,
    difference,
    read_results,
)
from stringline.sim.evaluation.runner import Evaluation
from stringline.sim.evaluation.suites import EVALUATION_SEED, Suite, SuiteEntry, evaluation_seeds
from stringline.sim.rendering.rendering import Rendering, check_rendering
from stringline.sim.robots.arm_appearance import (
    PRIMITIVES,
    ROBOT_MODEL,
    RobotModel,
    check_robot_model,
)
from stringline.sim.rollout.cluster import Cluster
from stringline.sim.statistics.intervals import Interval
from stringline.sim.statistics.paired import MacroMean, Pairs, difference_interval, points
from stringline.sim.worlds.task_settings import TaskSettings
from stringline.sim.worlds.world_registry import instruction_of, open_world
from stringline.sim.worlds.world_versions import result_versions, task_options

logger = logging.getLogger(__name__)

SEEDS = 50


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings of a checkpoint's evaluation that are the same for all tasks.

    Attributes:
        checkpoint: Folder, name of a shipped checkpoint, or address of a policy server.
        execute_steps: Control periods between two plans; if None, whole chunks.
        execution: Blending and delay of plans; by default a receding horizon without delay.
        workers: Number of parallel worlds; 0 takes one per processor.
        videos: Whether to record every episode.
        cluster: Where the worlds run; if None, processes of this machine.
        robot_model: Meshes of the arms.
        device: Where the policy computes: `cpu`, `cuda`, or `cuda:<number>`.
        plan_batch: Observations of parallel worlds that the policy answers at once; above 1,
            rounding depends on the number of worlds.
    """

    checkpoint: str | Path
    execute_steps: int | None
    execution: Execution = field(default_factory=Execution)
    workers: int = 2
    videos: bool = True
    cluster: Cluster | None = None
    robot_model: RobotModel = PRIMITIVES
    device: str = CPU
    plan_batch: int = 1


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(RunSettings):
    """The settings of `stringline-eval`, as in `configs/eval.yaml`.

    Attributes:
        output: Folder of results, videos and report.
        task: The single task; ignored for a suite.
        seeds: Number of seeds; if None, 50, or those of the suite.
        first_seed: First seed; if None, 1000000, or those of the suite.
        suite_file: File of a suite of the user.
        tasks: Names of several tasks in place of a suite; empty: a suite or a single task.
        rendering: Rendering of the report's videos: `fast` shows images of the policy only,
            `pretty` also films of the workcell. Results do not depend on it.
    """

    checkpoint: str
    output: Path
    task: TaskSettings
    seeds: int | None = None
    first_seed: int | None = None
    suite_file: str | None = None
    tasks: tuple[str, ...] = ()
    rendering: Rendering = "fast"

    def __post_init__(self) -> None:
        """Checks what only the report needs, after hours."""
        check_rendering(self.rendering)

    def task_seeds(self) -> list[int]:
        """Returns the seeds of an evaluation on a single task.

        Raises:
            ValueError: `seeds` or `first_seed` is out of range.
        """
        count = SEEDS if self.seeds is None else self.seeds
        first = EVALUATION_SEED if self.first_seed is None else self.first_seed
        COUNT.check(seeds=count)
        WHOLE.check(first_seed=first)
        return evaluation_seeds(count, first)


class CheckpointEvaluation:
    """Runs a checkpoint on tasks, each with its results in a folder of its own.

    Args:
        settings: The settings that are the same for all tasks.
        warn: Whether to log a warning for settings that differ from the checkpoint's record.

    Attributes:
        policy: The policy of the checkpoint.
        digest: Digest of the checkpoint.
        record: Record of its training.
    """

    def __init__(self, settings: RunSettings, *, warn: bool = True) -> None:
        torch.set_num_threads(1)  # The parallel simulations use the other processors.
        self._settings = settings
        self.policy, self.digest = open_policy(settings.checkpoint, device=settings.device)
        check_robot_model(settings.robot_model)
        self.record = TrainingRecord.read(settings.checkpoint)
        self._warn = self.record.warn if warn else lambda chosen: None
        execution = RecordedExecution(settings.execution, settings.execute_steps)
        self._warn({"robot.model": settings.robot_model, **execution.options()})

    def run(self, task: TaskSettings, seeds: Sequence[int], folder: Path) -> list[EpisodeResult]:
        """Runs the episodes that have no result in the folder yet; returns a result per seed.

        A policy with instructions gets that of its training on the task, or else that of the task.
        Cameras, size of images and rate of actions are those of the checkpoint.
        """
        settings = self._settings
        self._warn(task_options(task))
        chosen = _as_trained(task, self.policy)
        own = instruction_of(task.name, task.options, task.embodiment, task.interpreter)
        evaluation = Evaluation(
            self.policy,
            partial(
                open_world,
                task.name,
                cameras=chosen.cameras,
                image_size=chosen.image_size,
                control_hz=chosen.control_hz,
                frame_hz=task.frame_hz,
                time_limit_s=task.time_limit_s,
                robot_model=settings.robot_model,
                embodiment=task.embodiment,
                interpreter=task.interpreter,
            ),
            execute_steps=settings.execute_steps,
            execution=settings.execution,
            instruction=self.record.tasks.get(task.name) or own,
            workers=settings.workers,
            options=task.options,
            videos=folder / "videos" if settings.videos else None,
            cluster=settings.cluster,
            plan_batch=settings.plan_batch,
        )
        return evaluation.run(seeds, folder / RESULTS, self.about(task))

    def about(self, task: TaskSettings) -> dict[str, Any]:
        """Returns, as plain JSON, the settings on which the results of a task depend."""
        settings = self._settings
        model = settings.robot_model
        return {
            "execute_steps": settings.execute_steps,
            "options": dict(task.options),
            **settings.execution.about(),
            "task": task.name,
            "checkpoint": self.digest,
            "time_limit_s": task.time_limit_s,
            "frame_hz": task.frame_hz,
            **({} if model == PRIMITIVES else {ROBOT_MODEL: model}),
            **({} if task.embodiment is None else {"embodiment": task.embodiment}),
            **result_versions(task.name, task.options, task.embodiment, task.interpreter),
        }


def _as_trained(task: TaskSettings, policy: Policy) -> TaskSettings:
    """Returns the task with the cameras, the size of images and the rate of a policy's training."""
    contract = policy.contract
    return replace(
        task,
        cameras=tuple(camera.name for camera in contract.cameras),
        image_size=common_image_size(contract.cameras),
        control_hz=contract.control_hz,
    )


@dataclass(frozen=True)
class EntryOutcome:
    """The outcome of an entry: one result per seed, or the reason of its failure."""

    entry: SuiteEntry
    results: Sequence[EpisodeResult] = ()
    failure: str = ""

    @property
    def summary(self) -> Summary | None:
        """Statistics of the results, if any."""
        return Summary.of(self.results) if self.results else None

    def to_dict(self) -> dict[str, Any]:
        """Returns the outcome as plain JSON."""
        entry = self.entry
        summary = self.summary
        return {
            "name": entry.name,
            "task": entry.task,
            "variation": entry.variation,
            "options": dict(entry.options),
            **entry.changes,
            "seeds": list(entry.seeds),
            **({"failure": self.failure} if summary is None else {"summary": summary.to_dict()}),
        }


@dataclass(frozen=True)
class Change:
    """How a variation changes the success of one checkpoint, on the starts of both entries.

    Attributes:
        pairs: Outcomes of the plain task and of the variation on the same seeds.
    """

    entry: str
    task: str
    variation: str
    pairs: Pairs

    @property
    def interval(self) -> Interval:
        """95 % interval of the paired difference, variation less plain task."""
        return difference_interval(self.pairs)


@dataclass(frozen=True)
class SuiteStatistics:
    """Statistics over the entries of a suite.

    Attributes:
        mean: Mean success of the plain tasks; None with fewer than two of them.
        changes: Of each variation whose plain task was evaluated on common seeds.
        mean_changes: Mean change over the tasks, by variation, if there are two tasks.
    """

    mean: MacroMean | None
    changes: tuple[Change, ...]
    mean_changes: dict[str, MacroMean]

    @classmethod
    def of(cls, outcomes: Sequence[EntryOutcome]) -> Self:
        """Compares the entries that have results."""
        done = [outcome for outcome in outcomes if outcome.results]
        plain = {each.entry.task: each for each in done if not each.entry.variation}
        rates = [each.summary.rate for each in plain.values() if each.summary]
        found = [
            _change(plain[each.entry.task], each)
            for each in done
            if each.entry.variation and each.entry.task in plain
        ]
        changes = tuple(change for change in found if change.pairs.count)
        return cls(
            MacroMean.of_rates(rates) if len(rates) > 1 else None,
            changes,
            {
                name: MacroMean.of_differences(pairs)
                for name in dict.fromkeys(change.variation for change in changes)
                if len(pairs := [c.pairs for c in changes if c.variation == name]) > 1
            },
        )

    def texts(self) -> dict[str, str]:
        """Returns the statistics as text by name."""
        found = {} if self.mean is None else {f"mean of {self.mean.tasks} tasks": str(self.mean)}
        found |= {
            f"{each.entry} less {each.task}": (
                f"{points(each.pairs.difference, each.interval)} on {each.pairs.count} starts"
            )
            for each in self.changes
        }
        return found | {
            f"mean of {name} less plain": f"{points(mean.value, mean.interval)}, {mean.tasks} tasks"
            for name, mean in self.mean_changes.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Returns the statistics as plain JSON."""
        return {
            "mean": None if self.mean is None else self.mean.to_dict(),
            "changes": {
                each.entry: {
                    "seeds": each.pairs.count,
                    "difference": each.pairs.difference,
                    "low": each.interval.low,
                    "high": each.interval.high,
                }
                for each in self.changes
            },
            "mean_changes": {name: mean.to_dict() for name, mean in self.mean_changes.items()},
        }


def _change(plain: EntryOutcome, varied: EntryOutcome) -> Change:
    before = {result.seed: result.success for result in plain.results}
    after = {result.seed: result.success for result in varied.results}
    seeds = sorted(before.keys() & after.keys())
    pairs = Pairs.of([before[seed] for seed in seeds], [after[seed] for seed in seeds])
    return Change(varied.entry.name, varied.entry.task, varied.entry.variation, pairs)


def run_suite(
    suite: Suite, evaluation: CheckpointEvaluation, output: Path, settings: Mapping[str, Any]
) -> list[EntryOutcome]:
    """Runs the episodes of a suite that have no result yet; returns an outcome per entry.

    The output has a folder for each entry, and `summary.json`, which is written after each entry
    and begins with the settings, plain JSON.

    Raises:
        OtherEvaluationError: The folder holds results of another evaluation; no episode was run.
        NoSpaceError: The disk is full; finished results are stored.
    """
    _check_folders(suite, evaluation, output)
    outcomes: list[EntryOutcome] = []
    for number, entry in enumerate(suite.entries, 1):
        logger.info(
            "%s (%d of %d), %d seeds", entry.name, number, len(suite.entries), len(entry.seeds)
        )
        outcomes.append(_run_entry(entry, evaluation, output / entry.name))
        output.mkdir(parents=True, exist_ok=True)
        summary = {
            "settings": dict(settings),
            "suite": suite.name,
            "entries": [outcome.to_dict() for outcome in outcomes],
            "statistics": SuiteStatistics.of(outcomes).to_dict(),
        }
        write_file(output / "summary.json", json.dumps(summary, indent=1).encode())
    return outcomes


def _run_entry(entry: SuiteEntry, evaluation: CheckpointEvaluation, folder: Path) -> EntryOutcome:
    try:
        return EntryOutcome(entry, evaluation.run(entry.settings(), entry.seeds, folder))
    except OtherEvaluationError:
        raise
    except Exception as error:  # An error of one task must not stop the others.
        if isinstance(error, OSError) and error.errno in FULL_DISK:
            raise
        logger.debug("Traceback of the error:", exc_info=True)
        reason = " ".join(str(error).split()) or type(error).__name__
        if not isinstance(error, (ValueError, RuntimeError)):
            reason = f"{type(error).__name__}: {reason}"
        logger.error("%s FAILED: %s", entry.name, reason)
        return EntryOutcome(entry, failure=reason)


def _check_folders(suite: Suite, evaluation: CheckpointEvaluation, output: Path) -> None:
    """Raises an error for a folder with results of another evaluation."""
    if (output / RESULTS).exists():
        raise OtherEvaluationError(
            f"{output} holds the evaluation of a single task. Choose another folder: output=..."
        )
    for entry in suite.entries:
        file = output / entry.name / RESULTS
        there = read_results(file)[0] if file.exists() else {}
        here = evaluation.about(entry.settings())
        known = {key: value for key, value in there.items() if key in here}
        if known and known != here:
            raise OtherEvaluationError(
                f"{file} holds results of another evaluation ({difference(known, here)}). Choose "
                f"another folder: output=..."
            )
