"""Costs of simulation: a step with four cameras, an image, the physics alone, collection.

    python benchmarks/simulation.py --json simulation.json
    python benchmarks/simulation.py --only step --tasks hand_over_banana fmb_1 --rounds 5

Names:
    step/4x128_rgbd/<task>
        One control period of 20 ms: its physics, the success criterion, and four cameras of 128x128
        pixels, colour and depth. Milliseconds of processor time, the mean over an episode of the
        task's expert (the recorded actions are replayed), the best of the rounds; peer `none`.
        Every step renders, though cameras usually deliver at a quarter of that rate.
    step/4x128_rgbd
        The slowest task; the limit is 8 ms.
    step/4x128_rgbd/textured/<task>, step/4x128_rgbd/randomised/<task>
        The same in these looks, with the drawing of the textures at the start; peer `plain`, ratio
        of times, in rounds that alternate. The limit of `textured` is a ratio of 1.5.
    step/4x128_rgbd/textured, step/4x128_rgbd/randomised
        The task with the largest ratio.
    physics/<task>
        Physics steps of 2 ms per second of processor time in the same episode without images, with
        the success criterion; peer `none`.
    image/480x640
        Images per second of processor time, ours with depth in the same pass; peer `gym_aloha`
        0.1.3, the default rendering of its TransferCube, which has no depth; ratio of rates, the
        median over interleaved rounds.
    collect/<workers>
        Demonstrations per minute by the clock with four cameras, including the start of the
        workers; peer `1`, ratio of rates.

All but collect run on one processor (their affinity is set), and processor time counts all threads,
including those of the software renderer. `wall` is the same by the clock.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from measurement import FOLDER, Row, parser_of, row, write_rows
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.sim.collect import collect
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.looks.looks import OPTION, PLAIN, RANDOMISED, TEXTURED
from stringline.sim.tasks.task_registry import TASKS, make_task

TIERS = (TEXTURED, RANDOMISED)
LOOKS = (PLAIN, *TIERS)
PARTS = ("collect", "step", "image")
IMAGE = (480, 640)
CONTROL_HZ, TIME_LIMIT_S = 50.0, 30.0


@dataclass(frozen=True)
class Times:
    """Seconds of processor time of all threads, and seconds by the clock."""

    processor: float
    wall: float


def timed(run: Callable[[], object]) -> Times:
    """Runs a function once."""
    processor, wall = time.process_time(), time.perf_counter()
    run()
    return Times(time.process_time() - processor, time.perf_counter() - wall)


def best(run: Callable[[], object], rounds: int) -> Times:
    """Runs a function several times and returns the smallest time of each kind."""
    found = [timed(run) for _ in range(rounds)]
    return Times(min(times.processor for times in found), min(times.wall for times in found))


def alternating(runs: Sequence[Callable[[], object]], rounds: int) -> list[Times]:
    """Runs several functions in turn, and returns the smallest times of each."""
    found = [[timed(run) for run in runs] for _ in range(rounds)]
    return [
        Times(min(each.processor for each in times), min(each.wall for each in times))
        for times in zip(*found, strict=True)
    ]


def expert_actions(task: str, steps: int) -> NDArray[np.float32]:
    """Returns the first `steps` actions (T, 14) of the expert in the episode of seed 0."""
    with closing(
        TaskEnvironment(
            make_task(task), cameras=(), time_limit_s=min(TIME_LIMIT_S, steps / CONTROL_HZ)
        )
    ) as world:
        return np.asarray(record_episode(world, make_expert(task), 0).arrays["action"])


def replay(
    world: TaskEnvironment, actions: NDArray[np.float32], *, observe: bool, looks: str = PLAIN
) -> None:
    """Runs the episode of seed 0 again, with or without an observation at each step."""
    world.begin(0, {OPTION: looks})
    for action in actions:
        world.advance(action)
        if observe:
            world.observe()


def measure_steps(tasks: Sequence[str], rounds: int, steps: int) -> Iterator[Row]:
    """Yields the lines `step` and `physics`."""
    worst = -math.inf, ""
    dearest = dict.fromkeys(TIERS, (-math.inf, 0.0, ""))
    for task in tasks:
        actions = expert_actions(task, steps)
        with closing(
            TaskEnvironment(make_task(task), frame_hz=CONTROL_HZ, time_limit_s=TIME_LIMIT_S)
        ) as world:
            replay(world, actions[:10], observe=True)  # Creates the graphics context.
            runs = [partial(replay, world, actions, observe=True, looks=each) for each in LOOKS]
            seen, *tiers = alternating(runs, rounds)
            blind = best(partial(replay, world, actions, observe=False), rounds)
        each = 1e3 / len(actions)
        yield row(f"step/4x128_rgbd/{task}", each * seen.processor, "ms", wall=each * seen.wall)
        for tier, times in zip(TIERS, tiers, strict=True):
            ratio = times.processor / seen.processor
            name = f"step/4x128_rgbd/{tier}/{task}"
            value = each * times.processor
            yield row(name, value, "ms", peer=PLAIN, ratio=ratio, wall=each * times.wall)
            dearest[tier] = max(dearest[tier], (ratio, value, task))
        substeps = len(actions) / CONTROL_HZ / world.task.physics_timestep
        yield row(
            f"physics/{task}", substeps / blind.processor, "steps/cpu-s", wall=substeps / blind.wall
        )
        worst = max(worst, (each * seen.processor, task))
    yield row("step/4x128_rgbd", worst[0], "ms", task=worst[1])
    for tier, (ratio, value, task) in dearest.items():
        yield row(f"step/4x128_rgbd/{tier}", value, "ms", peer=PLAIN, ratio=ratio, task=task)


def measure_image(rounds: int) -> Row:
    """Returns the line `image`.

    Raises:
        SystemExit: The peer is not installed.
    """
    if find_spec("gym_aloha") is None:
        raise SystemExit(
            'gym_aloha is not installed. Run: pip install "stringline[third-party]", or omit image.'
        )
    environment = (
        {"MUJOCO_GL": "egl"} | os.environ if "DISPLAY" not in os.environ else dict(os.environ)
    )
    command = [sys.executable, "-P", str(FOLDER / "peer_images.py")]
    ours, theirs = list[Times](), list[Times]()
    with (
        closing(
            TaskEnvironment(make_task("hand_over_banana"), cameras=["overhead"], image_size=IMAGE)
        ) as world,
        subprocess.Popen(
            command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        ) as peer,
    ):
        world.begin(0)
        first = world.observe()["rgb/overhead"]
        for _ in range(4 * rounds):
            theirs.append(_peer_image(peer))
            ours.append(timed(world.observe))
        assert np.array_equal(world.observe()["rgb/overhead"], first)
        peer.communicate()
    ratio = statistics.median(b.processor / a.processor for a, b in zip(ours, theirs, strict=True))
    rate, wall = (
        1 / statistics.median(times)
        for times in zip(*((one.processor, one.wall) for one in ours), strict=True)
    )
    return row(
        f"image/{IMAGE[0]}x{IMAGE[1]}",
        rate,
        "images/cpu-s",
        peer="gym_aloha",
        ratio=ratio,
        wall=wall,
    )


def _peer_image(peer: subprocess.Popen[str]) -> Times:
    assert peer.stdin is not None
    assert peer.stdout is not None
    print(file=peer.stdin, flush=True)
    answer = json.loads(peer.stdout.readline())
    assert answer["shape"] == [*IMAGE, 3]
    return Times(answer["processor"], answer["wall"])


def measure_collection(task: str, workers: Sequence[int], episodes: int) -> Iterator[Row]:
    """Yields the lines `collect`."""
    alone: float | None = None
    for count in workers:
        with tempfile.TemporaryDirectory() as folder:
            run = partial(
                collect,
                Recipe(task=task, time_limit_s=TIME_LIMIT_S),
                Path(folder) / "store",
                episodes * count,
            )
            rate = 60 * episodes * count / timed(partial(run, workers=count)).wall
        alone = rate if count == 1 else alone
        yield row(
            f"collect/{count}",
            rate,
            "episodes/min",
            peer="1",
            ratio=None if alone is None else rate / alone,
        )


def show(line: Row) -> Row:
    """Prints a line."""
    beside = "" if line["ratio"] is None else f"   {line['ratio']:.2f} x {line['peer']}"
    wall = f"   by the clock {line['wall']:,.4g}" if "wall" in line else ""
    task = f"   {line['task']}" if "task" in line else ""
    print(
        f"{line['name']:<40} {line['value']:>12,.4g} {line['unit']:<15}{wall}{beside}{task}",
        flush=True,
    )
    return line


def main() -> None:
    """Prints the table and writes it on request."""
    cores = sorted(os.sched_getaffinity(0))
    parser = parser_of(__doc__)
    parser.add_argument(
        "--only", nargs="+", default=list(PARTS), choices=PARTS, help="`step` includes `physics`"
    )
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), help="for step and physics")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--steps", type=int, default=100_000, help="largest number of steps of an episode"
    )
    parser.add_argument("--collect-task", default="hand_over_banana")
    parser.add_argument(
        "--workers",
        type=int,
        nargs="+",
        default=[2**power for power in range(len(cores).bit_length())],
    )
    parser.add_argument("--episodes", type=int, default=8, help="episodes per worker")
    given = parser.parse_args()
    for task in (*given.tasks, given.collect_task):
        if task not in TASKS:
            parser.error(str(unknown_name("task", task, TASKS)))
    lines: list[Row] = []
    if "collect" in given.only:
        lines += [
            show(line)
            for line in measure_collection(given.collect_task, given.workers, given.episodes)
        ]
    os.sched_setaffinity(
        0, cores[-1:]
    )  # Collection comes before, since its workers would inherit this.
    if "step" in given.only:
        lines += [show(line) for line in measure_steps(given.tasks, given.rounds, given.steps)]
    if "image" in given.only:
        lines.append(show(measure_image(given.rounds)))
    write_rows(lines, given.json)


if __name__ == "__main__":
    main()
