"""Success rates of the scripted experts, without images.

    python benchmarks/experts.py --json experts.json
    python benchmarks/experts.py --only bowl_on_rack --first-seed 1000 --seeds 100 --workers 2
    python benchmarks/experts.py --slip 0.02
    python benchmarks/experts.py --only gym_aloha_transfer_cube --seeds 20 --time-limit 8
    python benchmarks/experts.py --only kuka_pick --table-height 0.1 --json high_table.json
    python benchmarks/experts.py --start-spread 1 --strict --missed-grasps 1 --seeds 20
    python benchmarks/experts.py --start-spread 1 --lost-grasps 1 --seeds 20 --json lost_grasps.json
    python benchmarks/experts.py --start-spread 1 --strict --seeds 20 --json varied_starts.json
    python benchmarks/experts.py --start-spread 1 --strict --plain --seeds 20 --json plain.json
    python benchmarks/experts.py --only kuka_pick kuka_place --embodiment menagerie:ur5e --seeds 20
    python benchmarks/experts.py --only kuka_pick kuka_place --distractors 1 --json distractors.json

Names: experts/<task>, the share of successes; beside it the count with its Wilson 95 % interval,
the mean length of successful episodes in seconds and its coefficient of variation, the seeds that
failed with the stage that they reached, and the settings.

An existing file is continued: its results of a task count for the first seeds, the others are run,
and the file is rewritten after every five seeds. So the command may be stopped at any time.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

from measurement import parser_of, row, write_rows
from tqdm import tqdm

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.rollout.world_interface import World
from stringline.sim.statistics.intervals import Rate
from stringline.sim.tasks.task_registry import TASKS
from stringline.sim.worlds.world_registry import THIRD_PARTY_TASKS, make_any_expert, open_world

PREFIX = "experts/"
PART = 5  # Seeds between two writings.


@dataclass(frozen=True)
class Attempt:
    """The outcome of the expert on one seed."""

    seed: int
    success: bool
    stage: str
    seconds: float
    error: str


@dataclass(frozen=True)
class Tally:
    """Counts of the expert of a task on some seeds.

    Attributes:
        trials: Number of seeds.
        successes: Number of successes.
        total_s: Sum of the lengths of successful episodes.
        squares: Sum of the squares of these lengths.
        failed: The other seeds, plain data.
    """

    trials: int = 0
    successes: int = 0
    total_s: float = 0.0
    squares: float = 0.0
    failed: tuple[Mapping[str, object], ...] = ()

    @classmethod
    def of(cls, found: Sequence[Attempt]) -> Self:
        """Counts attempts."""
        lengths = [one.seconds for one in found if one.success]
        failed = tuple(
            {"seed": one.seed, "stage": one.stage, "error": one.error}
            for one in found
            if not one.success
        )
        return cls(
            len(found), len(lengths), sum(lengths), sum(length**2 for length in lengths), failed
        )

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Self:
        """Reads an entry of a file."""
        rate = entry["rate"]
        mean = entry["seconds"] or 0.0
        varied = entry["length_variation"] or 0.0
        successes = rate["successes"]
        squares = successes * mean**2 * (1 + varied**2)
        return cls(rate["trials"], successes, successes * mean, squares, tuple(entry["failed"]))

    def __add__(self, other: "Tally") -> "Tally":
        """Returns the sum of both counts."""
        return Tally(
            self.trials + other.trials,
            self.successes + other.successes,
            self.total_s + other.total_s,
            self.squares + other.squares,
            self.failed + other.failed,
        )

    @property
    def rate(self) -> Rate:
        """Successes of trials."""
        return Rate(self.successes, self.trials)

    @property
    def mean_s(self) -> float | None:
        """Mean length of successful episodes; None without any."""
        return self.total_s / self.successes if self.successes else None

    @property
    def variation(self) -> float | None:
        """Standard deviation of these lengths as a share of their mean; None without any."""
        if self.mean_s is None:
            return None
        return math.sqrt(max(self.squares / self.successes - self.mean_s**2, 0.0)) / self.mean_s

    def entry(self, task: str, settings: Mapping[str, object]) -> dict[str, object]:
        """Returns the line of results of a task."""
        return row(
            f"{PREFIX}{task}",
            self.rate.value,
            "share",
            None,
            rate=self.rate.to_dict(),
            seconds=self.mean_s,
            length_variation=self.variation,
            failed=list(self.failed),
            settings=dict(settings),
        )

    def line(self, task: str) -> str:
        """Returns the printed line of a task, with its failures below it."""
        took = (
            "" if self.mean_s is None else f"{self.mean_s:5.1f} s, varied by {self.variation:.0%}"
        )
        failures = [
            f"    seed {one['seed']} ended at {one['stage']!r}. {one['error']}"
            for one in self.failed
        ]
        return "\n".join([f"{task:20s} {self.rate!s:28s} {took}", *failures])


def attempt(
    world: World,
    seed: int,
    disturbances: Mapping[str, float],
    options: dict[str, float],
    *,
    varied: bool,
) -> Attempt:
    """Runs the expert on one seed, with the disturbances of `record_episode`."""
    task = world.task
    expert = make_any_expert(task.name, varied=varied)
    recording = record_episode(world, expert, seed, options=options, **disturbances)
    return Attempt(
        seed, recording.success, task.stages[recording.stage], world.time, recording.error
    )


def attempts(
    task: str,
    seeds: Sequence[int],
    *,
    time_limit_s: float,
    disturbances: Mapping[str, float],
    options: dict[str, float],
    varied: bool,
    embodiment: str | None = None,
) -> list[Attempt]:
    """Runs the expert of a task on seeds, in this process."""
    world = open_world(task, cameras=(), time_limit_s=time_limit_s, embodiment=embodiment)
    try:
        return [attempt(world, seed, disturbances, options, varied=varied) for seed in seeds]
    finally:
        world.close()


def read(
    file: Path | None, settings: Mapping[str, object], tasks: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Returns the entries of a file by task; empty without a file.

    Raises:
        ValueError: One of `tasks` was measured with other settings.
    """
    entries = json.loads(file.read_text()) if file is not None and file.exists() else []
    found = {entry["name"].removeprefix(PREFIX): entry for entry in entries}
    for task in tasks:
        if task in found and (others := found[task]["settings"]) != settings:
            raise ValueError(
                f"{task} in {file} was measured with {others}; the settings are now "
                f"{dict(settings)}. Choose another file."
            )
    return found


def arguments() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="these tasks")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds")
    parser.add_argument(
        "--slip", type=float, default=0.0, help="distance by which a held object slips, metres"
    )
    parser.add_argument(
        "--lost-grasps", type=float, default=0.0, help="share of seeds in which a gripper opens"
    )
    parser.add_argument(
        "--missed-grasps",
        type=float,
        default=0.0,
        help="share of seeds in which an arm is displaced near an object",
    )
    parser.add_argument(
        "--noise", type=float, default=0.0, help="disturbance of the executed targets, rad"
    )
    parser.add_argument("--table-height", type=float, default=0.0, help="metres")
    parser.add_argument(
        "--start-spread",
        type=float,
        help="share of the range of starts; by default that of the task",
    )
    parser.add_argument("--strict", action="store_true", help="strict success criterion")
    parser.add_argument(
        "--plain", action="store_true", help="experts that act in one way (varied=false)"
    )
    parser.add_argument("--embodiment", help="another arm, as task.embodiment")
    parser.add_argument("--distractors", type=float, default=0.0, help="strength, 0 to 1")
    return parser


def main() -> None:
    """Prints a few lines per task and writes them on request."""
    parser = arguments()
    given = parser.parse_args()
    chosen = {
        "table_height": given.table_height or None,
        "distractors": given.distractors or None,
        "start_spread": given.start_spread,
        "strict": given.strict or None,
    }
    options = {name: value for name, value in chosen.items() if value is not None}
    disturbances = {
        "slip_m": given.slip,
        "lost_grasps": given.lost_grasps,
        "missed_grasps": given.missed_grasps,
        "noise_rad": given.noise,
    }
    settings = {
        "first_seed": given.first_seed,
        "time_limit_s": given.time_limit,
        **disturbances,
        "options": options,
        "varied": not given.plain,
        **({} if given.embodiment is None else {"embodiment": given.embodiment}),
    }
    work = partial(
        attempts,
        time_limit_s=given.time_limit,
        disturbances=disturbances,
        options=options,
        varied=not given.plain,
        embodiment=given.embodiment,
    )
    try:
        for name in given.only:
            if name not in (*TASKS, *THIRD_PARTY_TASKS):
                raise unknown_name("task", name, [*TASKS, *THIRD_PARTY_TASKS])
        entries = read(given.json, settings, given.only or TASKS)
    except ValueError as error:
        parser.error(str(error))
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        for task in given.only or TASKS:
            tally = Tally.read(entries[task]) if task in entries else Tally()
            seeds = range(given.first_seed + tally.trials, given.first_seed + given.seeds)
            parts = [seeds[start : start + PART] for start in range(0, len(seeds), PART)]
            found = pool.map(partial(work, task), parts)
            for part in tqdm(
                found, total=len(parts), desc=task, unit=f"{PART} seeds", disable=None
            ):
                tally += Tally.of(part)
                entries[task] = tally.entry(task, settings)
                write_rows(list(entries.values()), given.json)
            print(tally.line(task), flush=True)


if __name__ == "__main__":
    main()
