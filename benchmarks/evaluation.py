"""Overhead of the evaluation runner over bare stepping, and episodes per minute by workers.

    python benchmarks/evaluation.py --json evaluation.json
    python benchmarks/evaluation.py --episodes 10 --seconds 15 --workers 1 2 4 --ray 1 2

The world is that of the hand-over with four RGB-D cameras at 128 pixels. The policy moves the arms
a little around their pose; its own small time is measured and subtracted.

Names:
    runner_overhead
        Share of time that the runner adds: the time of an episode in an evaluation with one worker
        process, over bare stepping of the same world, with the same actions and images, in one
        process; minus 1. Episodes of both are interleaved, and both worlds exist before the clock
        starts; the median over episodes; peer `none`.
    runner_overhead/cpu
        The same in processor time of both processes of the runner; ratio of sums. Neighbours on a
        shared machine disturb it less, and it excludes waiting.
    runner_start
        Seconds until the worker process has built its world; peer `none`.
    episodes_per_minute/<workers>
        By number of processes, from the start of the first episode; peer `1`, ratio of rates.
    episodes_per_minute/ray_<n>
        The same by n actors of a Ray cluster on this machine, where Ray is installed.
"""

import argparse
import importlib.util
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import psutil
from measurement import Row, parser_of, row, write_rows
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Contract, Observation
from stringline.policies.chunks.chunk import ActionChunk, Session
from stringline.sim.environment.environment import TaskEnvironment, make_environment
from stringline.sim.evaluation.runner import Evaluation
from stringline.sim.evaluation.suites import evaluation_seeds
from stringline.sim.rollout.cluster import Cluster, LocalCluster, RayCluster
from stringline.sim.rollout.rollout import due_actions

EXECUTE_STEPS, CHUNK = 24, 48


class Still:
    """A policy of random moves that records episode starts, its own time and executed actions.

    Args:
        contract: Contract of the world.
        between: Called between two episodes with the seed and the actions of the ended one; its
            time does not count.
    """

    def __init__(
        self,
        contract: Contract,
        between: Callable[[int, list[NDArray[np.float64]]], None] | None = None,
    ) -> None:
        self.contract = contract
        self._between = between
        self.first = self.begun = self.own = 0.0
        self.cpu_begun = self.cpu_own = 0.0
        self.seconds = list[float]()
        self.cpu_seconds = list[float]()
        self.seed = -1
        self.actions = list[NDArray[np.float64]]()
        self._worker: psutil.Process | None = None

    def session(self, seed: int) -> Session:
        """Ends the last episode and begins another one."""
        if self.seed >= 0 and self._between is not None:
            self.seconds.append(time.perf_counter() - self.begun - self.own)
            self.cpu_seconds.append(self._processor_time() - self.cpu_begun - self.cpu_own)
            self._between(self.seed, self.actions)
        self.seed = seed
        self.actions = []
        self.own = self.cpu_own = 0.0
        self.begun = time.perf_counter()
        self.cpu_begun = self._processor_time()
        self.first = self.first or self.begun
        return StillSession(self, np.random.default_rng(seed))

    def _processor_time(self) -> float:
        """Returns the processor seconds of this process and of its worker, if there is one."""
        self._worker = self._worker or next(iter(psutil.Process().children()), None)
        times = self._worker.cpu_times() if self._worker and self._between else None
        return time.process_time() + (times.user + times.system if times else 0.0)


class StillSession:
    """An episode of `Still`."""

    def __init__(self, policy: Still, rng: np.random.Generator) -> None:
        self._policy = policy
        self._rng = rng

    def plan(self, observation: Observation) -> ActionChunk:
        """Plans `CHUNK` steps."""
        start, cpu_start, now = time.perf_counter(), time.process_time(), float(observation["time"])
        steps = self._rng.normal(0.0, 0.003, (CHUNK, len(observation["joints/position"]))).astype(
            np.float32
        )
        period = 1.0 / self._policy.contract.control_hz
        chunk = ActionChunk(
            np.arange(CHUNK, dtype=np.float64) * period + now,
            observation["joints/position"] + np.cumsum(steps, axis=0),
        )
        self._policy.actions += due_actions(chunk, now, period, EXECUTE_STEPS)
        self._policy.own += time.perf_counter() - start
        self._policy.cpu_own += time.process_time() - cpu_start
        return chunk


def step_bare(
    world: TaskEnvironment, seed: int, actions: Sequence[NDArray[np.float64]]
) -> tuple[float, float]:
    """Returns the time of an episode without a runner, by the clock and of the processor.

    Actions are the same; images are rendered when they are due.
    """
    start, cpu_start = time.perf_counter(), time.process_time()
    world.begin(seed)
    for number, action in enumerate(actions):
        if world.frame_due or number % EXECUTE_STEPS == 0:
            world.observe()
        result = world.advance(action)
        if result.success or result.expired:
            break
    return time.perf_counter() - start, time.process_time() - cpu_start


def measure_overhead(
    make: Callable[[], TaskEnvironment], episodes: int
) -> tuple[float, float, float]:
    """Returns overheads in wall and processor time, and seconds until a worker's first episode."""
    world, bare = make(), list[tuple[float, float]]()
    policy = Still(
        world.contract, lambda seed, actions: bare.append(step_bare(world, seed, actions))
    )
    start = time.perf_counter()
    # The first episode is a warm-up, and the start of a successor shows the end of an episode.
    Evaluation(policy, make, execute_steps=EXECUTE_STEPS, workers=1).run(
        evaluation_seeds(episodes + 2)
    )
    world.close()
    ratios = [ours / alone for ours, (alone, _) in zip(policy.seconds, bare, strict=True)]
    cpu = sum(policy.cpu_seconds[1:]) / sum(alone for _, alone in bare[1:])
    return statistics.median(ratios[1:]) - 1.0, cpu - 1.0, policy.first - start


def measure_rate(
    make: Callable[[], TaskEnvironment],
    contract: Contract,
    cluster: Cluster,
    workers: int,
    episodes: int,
) -> float:
    """Returns episodes per minute, from the start of the first one to the end of the last one."""
    policy = Still(contract)
    evaluation = Evaluation(
        policy, make, execute_steps=EXECUTE_STEPS, workers=workers, cluster=cluster
    )
    evaluation.run(evaluation_seeds(episodes * workers))
    return 60.0 * episodes * workers / (time.perf_counter() - policy.first)


def run(arguments: argparse.Namespace) -> list[Row]:
    """Measures everything."""
    make = partial(make_environment, "hand_over_banana", time_limit_s=arguments.seconds)
    overhead, cpu, start = measure_overhead(make, arguments.episodes)
    rows = [
        row("runner_overhead", overhead, "share"),
        row("runner_overhead/cpu", cpu, "share"),
        row("runner_start", start, "s"),
    ]
    world = make()
    world.close()
    rates = {
        str(count): measure_rate(make, world.contract, LocalCluster(), count, arguments.episodes)
        for count in arguments.workers
    }
    if importlib.util.find_spec("ray"):
        for count in arguments.ray:
            rates[f"ray_{count}"] = measure_rate(
                make, world.contract, RayCluster(), count, arguments.episodes
            )
    peer = str(arguments.workers[0])
    return rows + [
        row(f"episodes_per_minute/{name}", rate, "episodes/min", peer, rate / rates[peer])
        for name, rate in rates.items()
    ]


def main() -> None:
    """Prints the table and writes it on request."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--episodes",
        type=int,
        default=24,
        help="for the overhead, and per worker for rates",
    )
    parser.add_argument("--seconds", type=float, default=15.0, help="simulated time of an episode")
    everything = sorted({1, os.cpu_count() or 1})
    parser.add_argument(
        "--workers", type=int, nargs="+", default=everything, help="the first number is the peer"
    )
    parser.add_argument("--ray", type=int, nargs="*", default=everything)
    arguments = parser.parse_args()
    rows = run(arguments)
    for entry in rows:
        beside = "" if entry["ratio"] is None else f"{entry['ratio']:.3f} x {entry['peer']}"
        print(f"{entry['name']:<28} {entry['value']:>10.3f} {entry['unit']:<14}{beside}")
    write_rows(rows, arguments.json)


if __name__ == "__main__":
    main()
