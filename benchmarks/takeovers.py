"""Success rates of experts that take over from a spoiled execution, at any state of it.

    python benchmarks/takeovers.py --json takeovers.json
    python benchmarks/takeovers.py --tasks bowl_on_rack --seeds 50 --first 100

A plain expert acts first; then its execution is spoiled in one of three ways, in turn by the seed:

    stopped     nothing is spoiled: the arms are taken over in the middle of a motion
    wandering   for a second the executed joint targets are disturbed by 0.05 to 0.15 rad, drawn
    opened      the gripper that holds something opens for 0.4 s

The time of it is drawn by the seed from the whole episode. Then the task's varied expert takes over
and has twice the time limit of the task. Episodes in which an object has left the table are
counted apart: nothing can continue them. Names are `takeovers/<task>` and `takeovers/<task>/<way>`;
the value is the share of successes, `interval` its 95 % Wilson interval.
"""

import time
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from measurement import Row, parser_of, row, write_rows

from stringline.datasets.command.choices import CONFIGS, completed
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.sim.collection.demonstration import ornstein_uhlenbeck
from stringline.sim.environment.environment import TaskEnvironment, make_environment
from stringline.sim.experts.expert_registry import make_correcting_expert
from stringline.sim.experts.skills import Scene
from stringline.sim.statistics.intervals import wilson
from stringline.sim.tasks.task_registry import TASKS

WAYS = ("stopped", "wandering", "opened")
LATEST_S = 30.0
TIMES = 2  # Time of the expert, in time limits of the task.
WANDERING_S = 1.0
WANDERING_RAD = (0.05, 0.15)
OPENED_S = 0.4
FLOOR = "on the floor"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one takeover."""

    way: str
    success: bool
    time_s: float
    taken_s: float
    reason: str = ""


def spoil(world: TaskEnvironment, seed: int, way: str, share: float) -> Vector | None:
    """Runs a plain expert until the takeover; returns its last targets, or None after success."""
    rng = np.random.default_rng([seed, WAYS.index(way)])
    latest = min(world.time_limit_s / 2, LATEST_S)
    end = share * rng.uniform(0.3, latest)
    noise = ornstein_uhlenbeck(rng, 0.0, 1 / world.contract.control_hz, world.embodiment)
    if way == "wandering":
        revolute = np.array([joint.kind == "revolute" for joint in world.embodiment.joints])
        deviation = rng.uniform(*WANDERING_RAD) * revolute
    expert = make_correcting_expert(world.task.name, varied=False)
    world.begin(seed)
    expert.reset(world, rng)
    scene = Scene(world, world.task)
    opened: dict[str, float] = {}
    value = np.zeros(len(world.start))
    keep = np.exp(-1 / world.contract.control_hz / 0.25)
    while True:
        action = expert.act(world).copy()
        if way == "wandering" and world.time > end - WANDERING_S:
            value = keep * value + np.sqrt(1 - keep**2) * deviation * rng.standard_normal(
                len(value)
            )
            action += value
        if way == "opened" and world.time >= end:
            holding = [arm for arm in world.embodiment.arms if scene.held(arm)]
            if holding and not opened:
                opened[holding[0]] = world.time + OPENED_S
        for arm in opened:
            action[world.embodiment.grippers[arm]] = 1.0
        result = world.advance(np.clip(action, world.embodiment.lower, world.embodiment.upper))
        if result.success or result.expired:
            return None
        done = world.time >= (min(opened.values(), default=np.inf) if way == "opened" else end)
        if done:
            return action


def take_over(world: TaskEnvironment, seed: int, way: str) -> Outcome:
    """Spoils an episode, lets the expert take over, and returns the outcome."""
    limit = world.time_limit_s
    for number in range(6):
        try:
            targets = spoil(world, seed, way, 0.6**number)
        except OutOfReachError:
            continue
        if targets is not None:
            break
    else:
        return Outcome(way, success=False, time_s=0.0, taken_s=0.0, reason="never spoiled")
    begun = world.time
    world.time_limit_s = begun + TIMES * limit
    expert = make_correcting_expert(world.task.name)
    expert.take_over(world, np.random.default_rng(seed), targets)
    reason = ""
    success = False
    scene = Scene(world, world.task)
    while not success:
        if fallen := scene.fallen():
            reason = f"{fallen} {FLOOR}"
            break
        try:
            result = world.advance(expert.act(world))
        except OutOfReachError as error:
            reason = str(error)
            break
        success = result.success
        if result.expired:
            reason = f"time limit at stage {result.stage}"
            break
    world.time_limit_s = limit
    return Outcome(way, success, begun, world.time - begun, "" if success else reason)


def measure(task: str, seeds: range) -> list[Row]:
    """Measures a task, prints its failures and returns its rows."""
    limit = float(completed(CONFIGS, f"task/{task}")["time_limit_s"])
    found: dict[int, Outcome] = {}
    with closing(make_environment(task, cameras=(), time_limit_s=limit)) as world:
        for seed in seeds:
            start = time.process_time()
            outcome = take_over(world, seed, WAYS[seed % len(WAYS)])
            found[seed] = outcome
            if not outcome.success:
                print(
                    f"  {task} seed {seed} {outcome.way} at {outcome.time_s:.1f} s: {outcome.reason} "
                    f"({time.process_time() - start:.1f} s)",
                    flush=True,
                )
    rows = []
    for way in ("", *WAYS):
        chosen = [each for each in found.values() if way in ("", each.way)]
        fallen = sum(each.reason.endswith(FLOOR) for each in chosen)
        counted = len(chosen) - fallen
        if not counted:
            continue
        successes = sum(each.success for each in chosen)
        name = f"takeovers/{task}{'/' * bool(way)}{way}"
        low, high = wilson(successes, counted)
        rows.append(
            row(
                name,
                successes / counted,
                "share",
                successes=successes,
                episodes=counted,
                on_the_floor=fallen,
                interval=[low, high],
            )
        )
        print(
            f"{name:<42} {successes}/{counted} [{100 * low:.0f}, {100 * high:.0f}] %; on the floor {fallen}",
            flush=True,
        )
    return rows


def main() -> None:
    """Prints the table and writes it on request."""
    parser = parser_of(__doc__)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    for task in given.tasks:
        if task not in TASKS:
            parser.error(str(unknown_name("task", task, TASKS)))
    lines: list[Row] = []
    for task in given.tasks:
        lines += measure(task, range(given.first, given.first + given.seeds))
        write_rows(lines, given.json)


if __name__ == "__main__":
    main()
