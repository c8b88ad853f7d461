"""Comparison of a checkpoint in simulation and through the real protocol, for `wire.py`."""

import math
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from tqdm import tqdm

from stringline.real_robot.deployment.deployment_settings import DeploymentSettings
from stringline.real_robot.emulated_evaluation.loop_evaluation import LoopEvaluation
from stringline.real_robot.emulated_evaluation.real_time_runner import (
    RealTimeRunner,
    check_embodiment,
    real_time_emulator,
)
from stringline.sim.evaluation.checkpoint_evaluation import CheckpointEvaluation, RunSettings
from stringline.sim.evaluation.results import RESULTS, EpisodeResult
from stringline.sim.robots.arm_appearance import RobotModel
from stringline.sim.statistics.intervals import Rate
from stringline.sim.statistics.paired import Pairs, difference_interval, mcnemar
from stringline.sim.tasks.task_registry import make_task

MARGIN = 0.1  # Bound of the interval of the difference of the rates.


class LoopComparison:
    """Runs one checkpoint both ways; finished episodes are kept and not repeated.

    The settings are those of an emulated deployment in real time; `workers` is the number of
    parallel worlds or robots.
    """

    def __init__(self, settings: DeploymentSettings, workers: int, output: Path) -> None:
        self._settings = settings
        self._output = output
        self._task = settings.task
        self._execution = settings.execution
        self._steps = settings.execute_steps
        model = cast("RobotModel", settings.robot.model)
        self._evaluation = CheckpointEvaluation(
            RunSettings(
                checkpoint=settings.checkpoint,
                execute_steps=self._steps,
                execution=self._execution,
                workers=workers,
                videos=False,
                robot_model=model,
            )
        )
        self._policy = self._evaluation.policy
        self._instruction = make_task(self._task.name).instruction
        self._loop = LoopEvaluation(
            self._policy,
            self._task,
            execute_steps=self._steps,
            execution=self._execution,
            instruction=self._instruction,
            workers=workers,
            transport=settings.robot.transport,
            robot_model=model,
        )

    def check_real_time(self) -> None:
        """Raises a ValueError if the policy is for another embodiment than that of the robot."""
        check_embodiment(self._policy, self._settings.robot)

    def run(self, seeds: Sequence[int]) -> tuple[list[EpisodeResult], list[EpisodeResult]]:
        """Runs what is missing; returns the results in simulation and through the protocol."""
        direct = self._evaluation.run(self._task, seeds, self._output / "direct")
        about = self._evaluation.about(self._task)
        return direct, self._loop.run(seeds, self._output / "wire" / RESULTS, about)

    def run_in_real_time(self, seeds: Sequence[int]) -> tuple[dict[str, Any], list[str]]:
        """Runs seeds in real time; returns rates, timing and violations as JSON and as text."""
        with tempfile.TemporaryDirectory(prefix="stringline-wire-") as name:
            folder = Path(name)
            emulator = real_time_emulator(self._settings, self._policy, folder)
            runner = RealTimeRunner(
                self._settings, self._policy, emulator, folder, instruction=self._instruction
            )
            with emulator, runner:
                results = [
                    runner.episode(seed, self._task.time_limit_s)
                    for seed in tqdm(seeds, desc="in real time", unit="episode")
                ]
        rate = Rate(sum(result.success for result in results), len(results))
        answers = [answer for result in results for answer in result.episode.answer_ms]
        found = (
            rate.to_dict()
            | runner.watch.to_dict()
            | {"goals": runner.check.goals, "violations": runner.check.violations}
        )
        found["answer_median_ms"] = statistics.median(answers or [math.nan])
        found["successes_of"] = {str(result.seed): result.success for result in results}
        return found, [
            f"in real time      {rate}; a plan took {found['answer_median_ms']:.0f} ms (median)",
            *runner.watch.lines(),
            f"{runner.check.goals} goals arrived, {runner.check.violations} outside limits.",
        ]

    def description(self) -> str:
        """Returns a description of checkpoint, task and execution."""
        return (
            f"{self._settings.checkpoint} ({self._evaluation.digest}), {self._task.name}, "
            f"{self._task.time_limit_s:g} s, {self._execution.described(self._steps)}"
        )


def summary(
    direct: Sequence[EpisodeResult], wire: Sequence[EpisodeResult]
) -> tuple[dict[str, Any], list[str]]:
    """Returns the paired comparison of the same seeds as plain JSON and as text."""
    pairs = Pairs.of([one.success for one in direct], [one.success for one in wire])
    low, high = difference_interval(pairs)
    inside = low > -MARGIN and high < MARGIN
    p = mcnemar(pairs)
    verdict = f"{'inside' if inside else 'NOT inside'} +-{100 * MARGIN:.0f}"
    interval = f"[{100 * low:+.1f}, {100 * high:+.1f}]"
    lines = [
        f"direct            {pairs.first}",
        f"real protocol     {pairs.second}",
        f"difference        {100 * pairs.difference:+.0f} points {interval}: {verdict}",
        (
            f"only direct {pairs.only_first}, only protocol {pairs.only_second}, both "
            f"{pairs.both}, neither {pairs.neither}; McNemar's exact test: p = {p:.2g}"
        ),
    ]
    found = {
        "direct": pairs.first.to_dict(),
        "wire": pairs.second.to_dict(),
        "pairs": vars(pairs),
        "difference": pairs.difference,
        "low": low,
        "high": high,
        "p": p,
        "inside": inside,
    }
    return found, lines
