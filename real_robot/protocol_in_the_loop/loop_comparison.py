"""A checkpoint on the same seeds directly in simulation and through the wire, and some of them by the clock."""

import math
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from stringline.policies.chunks.chunk import Policy
from stringline.policies.execution.execution import Execution
from stringline.policies.execution.instructed import Instructed
from stringline.real_robot.protocol_in_the_loop.loop_evaluation import WireEvaluation
from stringline.real_robot.protocol_in_the_loop.real_time_runner import (
    LiveArms,
    demand_fit,
    live_emulator,
)
from stringline.sim.evaluation.checkpoint_evaluation import CheckpointEvaluation
from stringline.sim.evaluation.results import RESULTS, EpisodeResult
from stringline.sim.robots.robot_model import PRIMITIVES
from stringline.sim.statistics.intervals import Rate
from stringline.sim.statistics.paired import Pairs, difference_interval, mcnemar
from stringline.sim.tasks.task_catalogue import make_task

MARGIN = 0.1  # Of the difference of the rates, as far as its interval may reach.


class WireComparison:
    """One checkpoint, both ways; what is finished is kept, and not run again.

    Args:
        settings: Those of `configs/deploy.yaml`, resolved; emulated, by the clock.
        workers: Worlds or robots at a time.
        output: Folder where results are kept.

    Raises:
        ValueError: The checkpoint cannot be read, or plans cannot be executed like that.
        RemoteError: No policy server answers.
    """

    def __init__(self, settings: Mapping[str, Any], workers: int, output: Path) -> None:
        self._settings = settings
        self._workers = workers
        self._output = output
        self._task = settings["task"]
        self._execution = Execution.of(settings["execution"])
        self._steps = settings["execute_steps"]
        model = settings["robot"].get("model", PRIMITIVES)
        self._evaluation = CheckpointEvaluation(
            settings["checkpoint"],
            execute_steps=self._steps,
            execution=self._execution,
            workers=workers,
            videos=False,
            robot_model=model,
        )
        self._policy: Policy = Instructed(
            self._evaluation.policy, make_task(self._task["name"]).instruction
        )
        self._wire = WireEvaluation(
            self._policy,
            self._task,
            execute_steps=self._steps,
            execution=self._execution,
            workers=workers,
            transport=settings["robot"].get("transport"),
            robot_model=model,
        )

    def demand_clock(self) -> None:
        """Refuses a policy that `by_the_clock` could not run.

        Raises:
            ValueError: It is for other arms than the settings' robot has.
        """
        demand_fit(self._policy, self._settings["robot"])

    def both(self, seeds: Sequence[int]) -> tuple[list[EpisodeResult], list[EpisodeResult]]:
        """Runs what is not yet done, and returns the results, direct and through the wire."""
        direct = self._evaluation.run(self._task, seeds, self._output / "direct")
        return direct, self._wire.run(
            seeds, self._output / "wire" / RESULTS, self._evaluation.about(self._task)
        )

    def by_the_clock(self, seeds: Sequence[int]) -> tuple[dict[str, Any], list[str]]:
        """Runs seeds by the clock; returns what became of them, of time and of the wire, as plain JSON and in words."""
        with tempfile.TemporaryDirectory(prefix="stringline-wire-") as name:
            emulator = live_emulator(self._settings, self._policy, Path(name))
            with emulator, LiveArms(self._settings, self._policy, emulator, Path(name)) as arms:
                limit_s = float(self._task["time_limit_s"])
                results = [
                    arms.episode(seed, limit_s)
                    for seed in tqdm(seeds, desc="by the clock", unit="episode")
                ]
            rate = Rate(sum(result.success for result in results), len(results))
            answers = [answer for result in results for answer in result.episode.answer_ms]
            found = (
                rate.to_dict()
                | arms.watch.to_dict()
                | {"goals": arms.check.goals, "violations": arms.check.violations}
            )
            found["answer_median_ms"] = statistics.median(answers or [math.nan])
            found["successes_of"] = {str(result.seed): result.success for result in results}
        return found, [
            f"by the clock      {rate}; an answer took {found['answer_median_ms']:.0f} ms (median)",
            *arms.watch.lines(),
            f"{arms.check.goals} goals arrived, {arms.check.violations} outside limits.",
        ]

    def described(self) -> str:
        """Returns what is measured, in words."""
        task = self._task
        how = self._execution.described(self._steps)
        return (
            f"{self._settings['checkpoint']} ({self._evaluation.digest}), {task['name']}, "
            f"{task['time_limit_s']:g} s, {how}"
        )


def summary(
    direct: Sequence[EpisodeResult], wire: Sequence[EpisodeResult]
) -> tuple[dict[str, Any], list[str]]:
    """Returns how the same seeds went both ways, as plain JSON and in words."""
    pairs = Pairs.of([one.success for one in direct], [one.success for one in wire])
    low, high = difference_interval(pairs)
    inside = low > -MARGIN and high < MARGIN
    p = mcnemar(pairs)
    words = f"{'inside' if inside else 'NOT inside'} +-{100 * MARGIN:.0f}"
    lines = [
        f"direct            {pairs.first}",
        f"through the wire  {pairs.second}",
        (
            f"wire less direct  {100 * pairs.difference:+.0f} points [{100 * low:+.1f}, "
            f"{100 * high:+.1f}]: {words}"
        ),
        f"only direct {pairs.only_first}, only wire {pairs.only_second}, both {pairs.both}, "
        f"neither {pairs.neither}; "
        f"McNemar's exact test: p = {p:.2g}",
    ]
    found = {"direct": pairs.first.to_dict(), "wire": pairs.second.to_dict(), "pairs": vars(pairs)}
    return found | {
        "difference": pairs.difference,
        "low": low,
        "high": high,
        "p": p,
        "inside": inside,
    }, lines
