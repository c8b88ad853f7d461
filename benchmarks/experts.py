"""How often the scripted experts succeed, without pictures: the upper bound for what a policy can learn from them.

    python benchmarks/experts.py --json experts.json
    python benchmarks/experts.py --only bowl_on_rack --first-seed 1000 --seeds 100 --workers 2
    python benchmarks/experts.py --slip 0.02
    python benchmarks/experts.py --only gym_aloha_transfer_cube --seeds 20 --time-limit 8

Names: experts/<task>, the share of successes; beside it the count with its Wilson 95 % interval, the mean length of successful
episodes in seconds and its coefficient of variation, and the seeds that failed with the stage that they reached.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from tqdm import tqdm

from stringline.datasets.intervals import Rate
from stringline.datasets.names import unknown_name
from stringline.sim.experts.expert import EXPERTS
from stringline.sim.peers.catalogue import PEER_TASKS
from stringline.sim.record import record_episode
from stringline.sim.world import World
from stringline.sim.worlds import make_any_expert, open_any_world

# This folder holds a file named like Python's own package `encodings`, which a child process would import instead.
sys.path = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]


@dataclass(frozen=True)
class Attempt:
    """How the expert did on one seed."""

    seed: int
    success: bool
    stage: str
    seconds: float
    trouble: str


def attempt(world: World, seed: int, slip_m: float, noise_rad: float, options: dict[str, float]) -> Attempt:
    """Runs the expert on one seed."""
    task = world.task
    expert = make_any_expert(task.name)
    recording = record_episode(world, expert, seed, slip_m=slip_m, noise_rad=noise_rad, options=options)
    return Attempt(seed, recording.success, task.stages[recording.stage], world.time, recording.trouble)


def attempts(
    task: str, seeds: Sequence[int], *, time_limit_s: float, slip_m: float, noise_rad: float, options: dict[str, float]
) -> list[Attempt]:
    """Runs the expert of a task on seeds, in this process."""
    world = open_any_world(task, cameras=(), time_limit_s=time_limit_s)
    try:
        return [attempt(world, seed, slip_m, noise_rad, options) for seed in seeds]
    finally:
        world.close()


def measure(task: str, seeds: Sequence[int], pool: ProcessPoolExecutor, run: partial[list[Attempt]]) -> list[Attempt]:
    """Runs the expert of a task on seeds, in processes."""
    parts = [seeds[start : start + 5] for start in range(0, len(seeds), 5)]
    found: list[Attempt] = []
    with tqdm(total=len(seeds), desc=task, disable=None) as progress:
        for part in pool.map(partial(run, task), parts):
            found += part
            progress.update(len(part))
    return found


def entry(task: str, found: Sequence[Attempt]) -> dict[str, object]:
    """Returns what is to be said about a task."""
    rate = Rate(sum(one.success for one in found), len(found))
    lengths = np.array([one.seconds for one in found if one.success])
    varied = float(lengths.std() / lengths.mean()) if len(lengths) else None
    failed = [{"seed": one.seed, "stage": one.stage, "trouble": one.trouble} for one in found if not one.success]
    return {
        "name": f"experts/{task}",
        "value": rate.value,
        "unit": "share",
        "peer": None,
        "ratio": None,
        "rate": rate.to_dict(),
        "seconds": float(lengths.mean()) if len(lengths) else None,
        "length_variation": varied,
        "failed": failed,
    }


def main() -> None:
    """Prints one line per task and, if asked, writes them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--only", nargs="+", default=[], help="these tasks")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds")
    parser.add_argument("--slip", type=float, default=0.0, help="how far a held thing slips, metres")
    parser.add_argument("--noise", type=float, default=0.0, help="disturbance of the executed targets, rad")
    parser.add_argument("--table-height", type=float, default=0.0, help="metres")
    given = parser.parse_args()
    for name in given.only:
        if name not in (*EXPERTS, *PEER_TASKS):
            parser.error(str(unknown_name("task", name, [*EXPERTS, *PEER_TASKS])))
    options = {"table_height": given.table_height} if given.table_height else {}
    run = partial(attempts, time_limit_s=given.time_limit, slip_m=given.slip, noise_rad=given.noise, options=options)
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    entries: list[dict[str, object]] = []
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        for task in given.only or EXPERTS:
            found = measure(task, seeds, pool, run)
            entries.append(entry(task, found))
            lengths = [one.seconds for one in found if one.success]
            took = f"{np.mean(lengths):5.1f} s, varied by {np.std(lengths) / np.mean(lengths):.0%}" if lengths else ""
            print(f"{task:20s} {Rate(len(lengths), len(found))!s:28s} {took}", flush=True)
            for one in found:
                if not one.success:
                    print(f"    seed {one.seed} ended at {one.stage!r}. {one.trouble}", flush=True)
            if given.json is not None:
                given.json.write_text(json.dumps(entries, indent=2) + "\n")


if __name__ == "__main__":
    main()
