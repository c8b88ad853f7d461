"""Costs of simulation: a step with four cameras, an image, the physics alone, collection.

    python benchmarks/simulation.py --json simulation.json
    python benchmarks/simulation.py --only step --tasks hand_over_banana fmb_1 --rounds 5

Names:
    step/4x128_rgbd/<task>  one control period of 20 ms: its physics, judging it, and four cameras
    of 128x128 pixels, colour and
        depth; ms of processor time, the mean over an episode of the task's expert (the recorded
        actions are replayed), the best of the rounds; peer `none`. Every step draws, though cameras
        usually deliver at a quarter of that rate.
    step/4x128_rgbd  the worst of the tasks; it is to stay below 8 ms. physics/<task>  physics steps
    of 2 ms per second of processor time in the same episode without images, judging included;
        peer `none`.
    image/480x640  images per second of processor time, ours with depth in the same pass; peer
    `gym_aloha` 0.1.3, the
        default rendering of its TransferCube, which has no depth; ratio of rates, the median over
        interleaved rounds.
    collect/<workers>  demonstrations per minute by the clock with four cameras, starting the
    workers included; peer `1`, ratio
        of rates.

All but collect runs on one processor (its affinity is set), and processor time counts all threads,
so that threads of the software renderer hide nothing. `wall` beside a figure is the same by the
clock.
"""

import argparse
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
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.files.atomic import write_file
from stringline.sim.collect import collect
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.tasks.task_registry import TASKS, make_task

# This folder holds a file named like Python's own package `encodings`, which a child process would
# import instead.
FOLDER = Path(__file__).resolve().parent
sys.path = [entry for entry in sys.path if Path(entry).resolve() != FOLDER]

PARTS = ("collect", "step", "image")
IMAGE = (480, 640)
CONTROL_HZ, TIME_LIMIT_S = 50.0, 30.0
Row = dict[str, object]


@dataclass(frozen=True)
class Times:
    """What something took, in seconds.

    Attributes:
        processor: Of all threads together.
        wall: By the clock.
    """

    processor: float
    wall: float


def timed(run: Callable[[], object]) -> Times:
    """Runs something once."""
    processor, wall = time.process_time(), time.perf_counter()
    run()
    return Times(time.process_time() - processor, time.perf_counter() - wall)


def best(run: Callable[[], object], rounds: int) -> Times:
    """Runs something some times and returns the least of each kind of time."""
    found = [timed(run) for _ in range(rounds)]
    return Times(min(times.processor for times in found), min(times.wall for times in found))


def expert_actions(task: str, steps: int) -> NDArray[np.float32]:
    """Returns the first `steps` actions (T, 14) of the expert in the episode of seed 0."""
    with closing(
        TaskEnvironment(
            make_task(task), cameras=(), time_limit_s=min(TIME_LIMIT_S, steps / CONTROL_HZ)
        )
    ) as world:
        return np.asarray(record_episode(world, make_expert(task), 0).arrays["action"])


def replay(world: TaskEnvironment, actions: NDArray[np.float32], *, look: bool) -> None:
    """Runs the episode of seed 0 again, looking at every step of it or at none."""
    world.begin(0)
    for action in actions:
        world.advance(action)
        if look:
            world.observe()


def measure_steps(tasks: Sequence[str], rounds: int, steps: int) -> Iterator[Row]:
    """Yields the lines `step` and `physics`."""
    worst = -math.inf, ""
    for task in tasks:
        actions = expert_actions(task, steps)
        with closing(
            TaskEnvironment(make_task(task), frame_hz=CONTROL_HZ, time_limit_s=TIME_LIMIT_S)
        ) as world:
            replay(world, actions[:10], look=True)  # Opens the graphics.
            seen = best(partial(replay, world, actions, look=True), rounds)
            blind = best(partial(replay, world, actions, look=False), rounds)
        each = 1e3 / len(actions)
        yield row(f"step/4x128_rgbd/{task}", each * seen.processor, "ms", wall=each * seen.wall)
        substeps = len(actions) / CONTROL_HZ / world.task.physics_timestep
        yield row(
            f"physics/{task}", substeps / blind.processor, "steps/cpu-s", wall=substeps / blind.wall
        )
        worst = max(worst, (each * seen.processor, task))
    yield row("step/4x128_rgbd", worst[0], "ms", task=worst[1])


def measure_image(rounds: int) -> Row:
    """Returns the line `image`.

    Raises:
        SystemExit: The peer is not installed.
    """
    if find_spec("gym_aloha") is None:
        raise SystemExit(
            'gym_aloha is not installed: pip install "stringline[third-party]", or omit `image`.'
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


def row(
    name: str,
    value: float,
    unit: str,
    *,
    peer: str = "none",
    ratio: float | None = None,
    **more: object,
) -> Row:
    """Returns a line of the table."""
    return {"name": name, "value": value, "unit": unit, "peer": peer, "ratio": ratio, **more}


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
    """Prints the table and, if asked, writes it."""
    cores = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument(
        "--only", nargs="+", default=list(PARTS), choices=PARTS, help="`step` includes `physics`"
    )
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), help="for step and physics")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--steps", type=int, default=100_000, help="at most, of an expert's episode"
    )
    parser.add_argument("--collect-task", default="hand_over_banana")
    parser.add_argument(
        "--workers",
        type=int,
        nargs="+",
        default=[2**power for power in range(len(cores).bit_length())],
    )
    parser.add_argument("--episodes", type=int, default=8, help="that each worker collects")
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
    os.sched_setaffinity(0, cores[-1:])  # Workers, which inherit it, come before.
    if "step" in given.only:
        lines += [show(line) for line in measure_steps(given.tasks, given.rounds, given.steps)]
    if "image" in given.only:
        lines.append(show(measure_image(given.rounds)))
    if given.json is not None:
        write_file(given.json, json.dumps(lines, indent=2).encode())


if __name__ == "__main__":
    main()
