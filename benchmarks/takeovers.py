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

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from measurement import Row, parser_of, row, write_rows

from stringline.datasets.command.choices import CONFIGS, completed
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.sim.collection.demonstration import NOISE_SECONDS
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


class Wandering:
    """A disturbance (J,) of the joints of arms, rad, of a process as in `ornstein_uhlenbeck`."""

    def __init__(self, world: TaskEnvironment, rng: np.random.Generator) -> None:
        revolute = np.array([joint.kind == "revolute" for joint in world.embodiment.joints])
        self._deviation = rng.uniform(*WANDERING_RAD) * revolute
        self._keep = np.exp(-1 / world.contract.control_hz / NOISE_SECONDS)
        self._rng = rng
        self._value = np.zeros(len(revolute))

    def next(self) -> Vector:
        """Returns the disturbance of the next control period."""
        drawn = self._deviation * self._rng.standard_normal(len(self._value))
        self._value = self._keep * self._value + np.sqrt(1 - self._keep**2) * drawn
        return self._value


def spoil(world: TaskEnvironment, seed: int, way: str, share: float) -> Vector | None:
    """Runs a plain expert until the takeover; returns its last targets, or None after success."""
    rng = np.random.default_rng([seed, WAYS.index(way)])
    end = share * rng.uniform(0.3, min(world.time_limit_s / 2, LATEST_S))
    wandering = Wandering(world, rng) if way == "wandering" else None
    expert = make_correcting_expert(world.task.name, varied=False)
    world.begin(seed)
    expert.reset(world, rng)
    scene = Scene(world, world.task)
    opened: dict[str, float] = {}
    while True:
        action = expert.act(world).copy()
        if wandering is not None and world.time > end - WANDERING_S:
            action += wandering.next()
        if way == "opened" and world.time >= end and not opened:
            holding = [arm for arm in world.embodiment.arms if scene.held(arm)]
            opened = {arm: world.time + OPENED_S for arm in holding[:1]}
        for arm in opened:
            action[world.embodiment.grippers[arm]] = 1.0
        action = np.clip(action, world.embodiment.lower, world.embodiment.upper)
        result = world.advance(action)
        if result.success or result.expired:
            return None
        if world.time >= (min(opened.values(), default=np.inf) if way == "opened" else end):
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
    found: list[Outcome] = []
    with closing(make_environment(task, cameras=(), time_limit_s=limit)) as world:
        for seed in seeds:
            found.append(outcome := take_over(world, seed, WAYS[seed % len(WAYS)]))
            if not outcome.success:
                where = f"{task}, seed {seed}, {outcome.way} at {outcome.time_s:.1f} s"
                print(f"  {where}: {outcome.reason}", flush=True)
    ways = {f"takeovers/{task}": found} | {
        f"takeovers/{task}/{way}": [each for each in found if each.way == way] for way in WAYS
    }
    return [summary(name, outcomes) for name, outcomes in ways.items() if outcomes]


def summary(name: str, outcomes: Sequence[Outcome]) -> Row:
    """Returns and prints the row of some outcomes; objects on the floor are counted apart."""
    counted = [each for each in outcomes if not each.reason.endswith(FLOOR)]
    fallen = len(outcomes) - len(counted)
    successes = sum(each.success for each in counted)
    low, high = wilson(successes, len(counted))
    shown = f"{successes}/{len(counted)} [{100 * low:.0f}, {100 * high:.0f}] %"
    print(f"{name:<42} {shown}; on the floor {fallen}", flush=True)
    return row(
        name,
        successes / max(len(counted), 1),
        "share",
        successes=successes,
        episodes=len(counted),
        on_the_floor=fallen,
        interval=[low, high],
    )


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
