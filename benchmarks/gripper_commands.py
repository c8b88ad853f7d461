"""Success of recorded demonstrations whose openings are replaced by open and close commands.

    python benchmarks/gripper_commands.py --json gripper_commands.json
    python benchmarks/gripper_commands.py --only plate_on_rack --seeds 20 --opened 0.4

The expert solves each seed without images. Its actions are executed again on the same seed, as
recorded and as open and close commands: encoded and decoded in chunks by `OpenClose`. Whether the
commands suffice, how fast the fingers close and with which force are the choices:

    openings       as recorded
    commands       open and close at the speed of the simulated drive
    robot_speed    the same at the speed limit of the gripper, as the safety filter has it
    force_N        the same with a limited force

Names: gripper_commands/<task>/<variant>, the share of successes; beside it the count with its
Wilson 95 % interval and the seeds that failed.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from measurement import Row, parser_of, row, write_rows
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Contract
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.loading.window_settings import gripper_places, with_commands
from stringline.policies.action_spaces.space import ContractActions, OpenClose
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.environment.environment import TaskEnvironment, make_environment
from stringline.sim.statistics.intervals import Rate
from stringline.sim.tasks.task_registry import TASKS
from stringline.sim.worlds.world_registry import make_any_expert

Actions = NDArray[np.float64]
CHUNK = 48
USUAL = ("kuka_pick", "kuka_place", "hand_over_banana", "bowl_on_rack", "mug_on_plate")
FORCES_N = (20.0, 10.0)
AFTERWARDS = 50  # Repetitions of the last action: success may take longer than for the expert.


def commands(actions: Actions, contract: Contract, opened: float = 1.0) -> Actions:
    """Returns actions (T, A) encoded and decoded in chunks, with that target when opening."""
    arms = ContractActions(contract=contract)
    space = OpenClose(contract=contract, arms=arms, opened=opened)
    found = with_commands(actions, contract)
    chunks = [
        torch.from_numpy(found[start : start + CHUNK])[None]
        for start in range(0, len(found), CHUNK)
    ]
    decoded = [space.decode(space.encode(each, {}), {})[0] for each in chunks]
    return torch.cat(decoded).numpy()


def at_robot_speed(actions: Actions, contract: Contract, embodiment: Embodiment) -> Actions:
    """Returns actions (T, A) whose openings keep to the speed limits of the grippers."""
    result = actions.copy()
    for place in gripper_places(contract):
        most = embodiment.joints[place].velocity / contract.control_hz
        for step in range(1, len(result)):
            change = np.clip(actions[step, place] - result[step - 1, place], -most, most)
            result[step, place] = result[step - 1, place] + change
    return result


def executed(env: TaskEnvironment, seed: int, actions: Actions, force: float | None = None) -> bool:
    """Executes actions (T, J) on a seed, with grippers of a limited force in N."""
    env.begin(seed, {})
    largest = np.full(len(env.embodiment.joints), np.inf)
    if force is not None:
        largest[list(env.embodiment.grippers.values())] = force
    env.task.robot.limit_efforts(env.physics, largest)
    for action in (*actions, *np.repeat(actions[-1:], AFTERWARDS, axis=0)):
        result = env.advance(action)
        if result.success or result.expired:
            return result.success
    return False


def outcomes(env: TaskEnvironment, seed: int, opened: float) -> dict[str, bool]:
    """Returns the success of each variant on a seed that the expert solves; else none."""
    env.task.robot.limit_efforts(env.physics, np.full(len(env.embodiment.joints), np.inf))
    recorded = record_episode(env, make_any_expert(env.task.name), seed)
    if not recorded.success:
        return {}
    actions = recorded.arrays["action"].astype(np.float64)
    given = commands(actions, env.contract, opened)
    slow = at_robot_speed(given, env.contract, env.embodiment)
    variants: Mapping[str, Callable[[], bool]] = {
        "openings": lambda: executed(env, seed, actions),
        "commands": lambda: executed(env, seed, given),
        "robot_speed": lambda: executed(env, seed, slow),
        **{
            f"force_{force:g}_N": lambda force=force: executed(env, seed, given, force)
            for force in FORCES_N
        },
    }
    return {name: run() for name, run in variants.items()}


def rows_of(task: str, seeds: Sequence[int], opened: float) -> list[Row]:
    """Returns the results of a task, and prints them."""
    env = make_environment(task, cameras=(), time_limit_s=60.0)
    found = {seed: outcomes(env, seed, opened) for seed in seeds}
    env.close()
    solved = {seed: each for seed, each in found.items() if each}
    result = []
    for name in next(iter(solved.values()), {}):
        failed = [seed for seed, each in solved.items() if not each[name]]
        rate = Rate(len(solved) - len(failed), len(solved))
        print(f"{task:20s} {name:14s} {rate!s:28s} failed: {failed or 'none'}", flush=True)
        about = {"rate": rate.to_dict(), "failed": failed, "opened": opened}
        result.append(row(f"gripper_commands/{task}/{name}", rate.value, "share", None, **about))
    return result


def arguments() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="+", default=USUAL, help="these tasks")
    parser.add_argument("--first-seed", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--opened", type=float, default=1.0, help="target of an opening gripper")
    return parser


def main() -> None:
    """Prints a line per task and variant, and writes them on request."""
    parser = arguments()
    given = parser.parse_args()
    for name in given.only:
        if name not in TASKS:
            parser.error(str(unknown_name("task", name, TASKS)))
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    results = list[Row]()
    for task in given.only:
        results += rows_of(task, seeds, given.opened)
        write_rows(results, given.json)


if __name__ == "__main__":
    main()
