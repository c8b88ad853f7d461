"""Keyposes beside the grasps and releases that the contacts of the simulation show.

    python benchmarks/keypose_events.py --seeds 10
    python benchmarks/keypose_events.py --human-like --seeds 20 --json events.json

An arm holds an object while both pads touch it. A grasp is the beginning and a release the end of
such a time; a gap in it in which the gripper does not travel is none, as in a second grasp. An
event of a recording is true if it is the closing of the arm that then grasps, or the opening of the
arm that then releases. `found` is the share of the true events that the recordings' keyposes have,
`true` the share of the keyposes that are true. The stop at the end of an arm that holds something
is not counted.
"""

import argparse
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.arm_commands import JointCommands
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.loading.keyposes import (
    Keyposes,
    Motion,
    commanded_motion,
    find_keyposes,
)
from stringline.datasets.loading.window_settings import KeyposeSettings
from stringline.sim.collect import collecting_expert
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.environment.environment import TaskEnvironment, make_environment
from stringline.sim.experts.expert_registry import Expert
from stringline.sim.statistics.intervals import Rate
from stringline.sim.tasks.task_registry import TASKS

LEAST_S = 0.3  # Shortest time for which an object is held.
EARLY_S = 0.4  # A contact may begin this long before the event that makes it ...
LATE_S = 0.8  # ... or this long after its end.
CHANGE = 0.02  # Smallest change of an opening between the ends of an event.


class Watched:
    """An expert that notes which arms hold something at each step.

    Attributes:
        held: Of each step so far, whether each arm (N,) holds something.
    """

    def __init__(self, expert: Expert[Any]) -> None:
        self._expert = expert
        self.held: list[NDArray[np.bool_]] = []

    def reset(self, env: TaskEnvironment, rng: np.random.Generator) -> None:
        """Begins an episode."""
        self.held = []
        self._expert.reset(env, rng)

    def act(self, env: TaskEnvironment) -> Vector:
        """Returns the next action (J,)."""
        contacts = env.task.contact_state(env.physics)
        arms = env.embodiment.arms
        self.held.append(
            np.array([any(contacts.held(arm, name) for name in env.task.props) for arm in arms])
        )
        return self._expert.act(env)


@dataclass(frozen=True)
class Event:
    """An event of an arm: a grasp or a release, and the steps of its beginning and its end.

    A true grasp lasts from the first contact to that of the last grasp in the same place.
    """

    arm: int
    grasp: bool
    start: int
    end: int


def true_events(held: NDArray[np.bool_], motion: Motion) -> Iterator[Event]:
    """Yields the grasps and releases of a recording with `held` (T, N)."""
    travel_m = KeyposeSettings().travel_m
    for arm in range(held.shape[1]):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], held[:, arm].astype(np.int8), [0]))))
        times = [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
        joined: list[tuple[int, int, int]] = []
        for begin, end in times:
            if joined:
                way = motion.pose[joined[-1][2] - 1 : begin + 1, arm, :3, 3]
                if np.linalg.norm(way - way[0], axis=-1).max() < travel_m:
                    joined[-1] = (joined[-1][0], begin, end)
                    continue
            joined.append((begin, begin, end))
        for begin, last, end in joined:
            if end - begin >= motion.steps(LEAST_S):
                yield Event(arm, True, begin, last)
                if end < len(held):
                    yield Event(arm, False, end, end)


def found_events(keyposes: Keyposes) -> Iterator[Event]:
    """Yields the strokes of grippers among the keyposes of a recording."""
    for row, arm in np.argwhere(keyposes.acting):
        change = keyposes.after[row, arm] - keyposes.before[row, arm]
        if abs(change) > CHANGE:
            start, end = int(keyposes.start[row]), int(keyposes.end[row])
            yield Event(int(arm), bool(change < 0), start, end)


def matches(true: list[Event], found: list[Event], control_hz: float) -> int:
    """Returns how many true events are found, each by another one."""
    left = list(found)
    count = 0
    for event in true:
        for other in left:
            same = (other.arm, other.grasp) == (event.arm, event.grasp)
            early = event.end >= other.start - EARLY_S * control_hz
            if same and early and event.start <= other.end + LATE_S * control_hz:
                left.remove(other)
                count += 1
                break
    return count


def measure(task: str, seeds: range, *, human_like: bool) -> dict[str, Any]:
    """Returns the counts of a task over the successful episodes of some seeds."""
    counts = {"episodes": 0, "true": 0, "found": 0, "matched": 0}
    with closing(make_environment(task, cameras=(), time_limit_s=60.0)) as world:
        for seed in seeds:
            watched = Watched(collecting_expert(task, varied=True, human_like=human_like))
            recording = record_episode(world, watched, seed)
            if not recording.success:
                continue
            hz = world.contract.control_hz
            motion = commanded_motion(
                recording.arrays["action"], JointCommands(world.embodiment), hz
            )
            true = list(true_events(np.array(watched.held), motion))
            found = list(found_events(find_keyposes(motion)))
            counts["episodes"] += 1
            counts["true"] += len(true)
            counts["found"] += len(found)
            counts["matched"] += matches(true, found, hz)
    return {"task": task, **counts}


def main() -> None:
    """Measures some tasks and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(TASKS), help="names of tasks")
    parser.add_argument("--seeds", type=int, default=10, help="episodes of each task")
    parser.add_argument("--human-like", action="store_true", help="motion as of a person")
    parser.add_argument("--json", help="file for the counts")
    given = parser.parse_args()
    rows = []
    for task in given.only:
        row = measure(task, range(given.seeds), human_like=given.human_like)
        rows.append(row)
        print(
            f"{task:24} {row['episodes']:3} episodes   found {Rate(row['matched'], row['true'])}"
            f"   true {Rate(row['matched'], row['found'])}",
            flush=True,
        )
    if given.json:
        with open(given.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
