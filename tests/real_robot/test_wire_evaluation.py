"""The expert's recorded actions through the wire: the same world, nearly the same motion, the same success."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline.datasets.contract import Contract, Observation
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.policies.chunk import ActionChunk
from stringline.real_robot.lock_step import largest_difference
from stringline.real_robot.wire_evaluation import WireEvaluation, open_lock_step_robot
from stringline.sim.evaluation import open_world
from stringline.sim.experts.hand_over_banana import HandOverBananaExpert

Vector = NDArray[np.float64]

TASK = {"name": "hand_over_banana", "image_size": 64, "control_hz": 50.0, "frame_hz": 12.5, "time_limit_s": 12.0, "options": {}}
CONTRACT = ALOHA.contract([], 50.0)
SEED = 3


class Replay:
    """A policy that knows what to do at which time of which seed."""

    def __init__(self, actions: Mapping[int, NDArray[np.float32]], contract: Contract = CONTRACT) -> None:
        self.contract, self.actions = contract, actions

    def session(self, seed: int) -> "ReplaySession":
        return ReplaySession(self.actions[seed])


class ReplaySession:
    def __init__(self, actions: NDArray[np.float32]) -> None:
        self.actions = actions

    def plan(self, observation: Observation) -> ActionChunk:
        now = float(observation["time"])
        steps = np.minimum(round(now * 50) + np.arange(48), len(self.actions) - 1)
        return ActionChunk(now + 0.02 * np.arange(48, dtype=np.float64), self.actions[steps])


@pytest.fixture(scope="module")
def demonstration() -> tuple[NDArray[np.float32], list[Vector]]:
    """Actions of the expert, and the joints in the direct simulation of them."""
    world, expert = open_world("hand_over_banana", cameras=()), HandOverBananaExpert()
    world.begin(SEED)
    expert.reset(world, np.random.default_rng(SEED))
    actions, joints = [], []
    while True:
        actions.append(np.asarray(expert.act(world), np.float32))
        joints.append(world.state()["joints/position"].astype(np.float64))
        result = world.advance(actions[-1])
        if result.success or result.expired:
            break
    world.close()
    assert result.success
    return np.stack(actions), joints


def test_the_wire_changes_little(demonstration: tuple[NDArray[np.float32], list[Vector]]) -> None:
    actions, joints = demonstration
    with ExitStack() as stack:
        robot = open_lock_step_robot(stack, CONTRACT, TASK)
        episode = robot.run(ReplaySession(actions), SEED, execute_steps=24)
    assert episode.success
    assert episode.stage_name == "success"
    assert not episode.fault
    hinges = np.concatenate([ALOHA.hinges[arm] for arm in ALOHA.arms])
    difference = largest_difference(joints, episode.positions[:: robot.cycles_per_action])
    # Targets are interpolated on the wire and steps in the direct run: half an action's time, at up to 2.8 rad/s.
    assert difference[hinges].max() < 0.03


def test_results_are_kept_and_an_evaluation_continues(
    demonstration: tuple[NDArray[np.float32], list[Vector]], tmp_path: Path
) -> None:
    # The arms stay where they are: seconds of the expert are measured above.
    policy = Replay({seed: np.tile(demonstration[0][:1], (2, 1)) for seed in (1, 2, 3)})
    evaluation = WireEvaluation(policy, TASK | {"time_limit_s": 0.4}, execute_steps=12, workers=2)
    first = evaluation.run([1, 2], tmp_path / "wire.jsonl")
    assert [(result.seed, result.success, result.stage_name, result.time_s) for result in first] == [
        (1, False, "start", 0.4),
        (2, False, "start", 0.4),
    ]
    assert [result.plans for result in first] == [2, 2]
    assert len((tmp_path / "wire.jsonl").read_text().splitlines()) == 3
    assert evaluation.run([2, 1], tmp_path / "wire.jsonl") == first[::-1]
    assert evaluation.run([1, 2, 3], tmp_path / "wire.jsonl")[:2] == first


def test_a_policy_for_another_rate_is_refused() -> None:
    policy = Replay({}, ALOHA.contract([], 30.0))
    with pytest.raises(ValueError, match="control_hz: 30.0 is asked for, 50.0 is offered"):
        WireEvaluation(policy, TASK, execute_steps=24)
