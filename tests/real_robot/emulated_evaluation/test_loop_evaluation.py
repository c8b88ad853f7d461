"""The expert's recorded actions through the real protocol: nearly the same motion, same success."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray
from tests.real_robot.demonstrations import Replay, demonstrate, largest_difference
from tests.sim.menagerie_files import write_aloha

from stringline import ALOHA, ActionChunk, Contract, LoopEvaluation, TaskSettings
from stringline.datasets.contract.contract import Observation
from stringline.policies.execution.execution import ChunkExecutor, Execution
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.emulated_evaluation.loop_evaluation import open_lock_step_robot
from stringline.real_robot.execution.lock_step import LockStepRobot
from stringline.real_robot.safety.reasons import Mode
from stringline.sim.experts.hand_over_experts import HandOverBananaExpert
from stringline.sim.robots.arm_appearance import RobotModel

Vector = NDArray[np.float64]

TASK = TaskSettings("hand_over_banana", image_size=64, time_limit_s=12.0)
CONTRACT = ALOHA.contract([], 50.0)
SEED = 3


class Knowing:
    """A policy that plans the recorded actions of each seed."""

    def __init__(
        self, actions: Mapping[int, NDArray[np.float32]], contract: Contract = CONTRACT
    ) -> None:
        self.contract, self.actions = contract, actions
        self.sessions: list[Replay] = []

    def session(self, seed: int) -> Replay:
        self.sessions.append(Replay(self.actions[seed]))
        return self.sessions[-1]


@pytest.fixture(scope="module")
def demonstration() -> tuple[NDArray[np.float32], list[Vector]]:
    """Actions of the expert, and the joints in the direct simulation of them."""
    return demonstrate("hand_over_banana", HandOverBananaExpert(), SEED)


@pytest.fixture(scope="module")
def robot() -> Iterator[LockStepRobot]:
    with ExitStack() as stack:
        yield open_lock_step_robot(stack, CONTRACT, TASK)


@pytest.mark.slow
def test_the_wire_changes_little(
    demonstration: tuple[NDArray[np.float32], list[Vector]], robot: LockStepRobot
) -> None:
    actions, joints = demonstration
    episode = robot.run(Replay(actions), SEED, execute_steps=24)
    assert episode.success
    assert episode.stage_name == "success"
    assert not episode.fault
    revolute = np.concatenate([ALOHA.revolute_joints[arm] for arm in ALOHA.arms])
    difference = largest_difference(joints, episode.positions[:: robot.cycles_per_action])
    # Targets are interpolated on the wire and steps in the direct run: half an action's time, at up
    # to 2.8 rad/s.
    assert difference[revolute].max() < 0.03


class Looking(Knowing):
    """Notes the appearance of the arms of running emulators at each plan."""

    def session(self, seed: int) -> Replay:
        lines = [child.cmdline() for child in psutil.Process().children()]
        self.drawn = {
            json.loads(line[line.index("--settings") + 1])["robot_model"]
            for line in lines
            if "--settings" in line
        }
        return super().session(seed)


class EnoughError(Exception):
    """Ends an episode."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("execution", "execute_steps", "asked_at"),
    [
        (Execution("receding_horizon", delay_s=0.1), 12, [0.0, 0.24, 0.48]),
        (Execution("temporal_ensembling"), 10, [0.0, 0.2, 0.4, 0.6]),
        (Execution("real_time_chunking", delay_s=0.1), 12, [0.0, 0.24, 0.48]),
        (Execution("stop_and_go", delay_s=0.06), 12, [0.0, 0.24, 0.54]),
    ],
)
def test_every_execution_plans_at_its_times_and_moves_the_arms(
    demonstration: tuple[NDArray[np.float32], list[Vector]],
    robot: LockStepRobot,
    execution: Execution,
    execute_steps: int,
    asked_at: list[float],
) -> None:
    policy = Knowing({SEED: demonstration[0]})
    session = ChunkExecutor(policy, SEED, execution, execute_steps=execute_steps)
    states: list[DeviceState] = []

    def until(state: DeviceState, seconds: float) -> None:
        states.append(state)
        if seconds >= 0.7:
            raise EnoughError

    with pytest.raises(EnoughError):
        robot.run(session, SEED, execute_steps=execution.replan_after(execute_steps), report=until)
    (asked,) = policy.sessions
    assert asked.asked_at == asked_at
    accepts_prefix = execution.name == "real_time_chunking"
    assert [prefix is not None for prefix in asked.prefix] == [accepts_prefix] * len(asked_at)
    assert np.abs(states[-1].command - states[0].command).max() > 0.05
    held = [cycle for cycle, state in enumerate(states) if state.mode is Mode.HOLD]
    if (
        execution.name == "stop_and_go"
    ):  # The arms hold while they wait for a plan that is 60 ms late.
        assert held[0] in (24, 25)
        assert 11 <= len(held) <= 14
    else:
        assert held == []


def test_an_impossible_execution_is_refused_before_a_robot_is_started() -> None:
    policy = Knowing({1: np.zeros((2, 14), np.float32)})
    with pytest.raises(
        ValueError, match="a delay cannot be measured: give execution.delay_s in seconds"
    ):
        LoopEvaluation(policy, TASK, execute_steps=24, execution=Execution(delay_s="measured"))
    with pytest.raises(ValueError, match="execute_steps must be an integer"):
        LoopEvaluation(policy, TASK, execute_steps=0)
    with pytest.raises(
        ValueError, match="There is no robot.model 'menagery'. Did you mean 'menagerie'"
    ):
        LoopEvaluation(policy, TASK, execute_steps=24, robot_model=cast("RobotModel", "menagery"))
    with pytest.raises(ValueError, match=r"workers must be an integer of at least 1 \(got 0\)"):
        LoopEvaluation(policy, TASK, execute_steps=24, workers=0)

    class Plain:
        contract = CONTRACT

        def session(self, seed: int) -> "Plain":
            return self

        def plan(self, observation: Observation) -> ActionChunk:
            raise AssertionError

    evaluation = LoopEvaluation(
        Plain(), TASK, execute_steps=24, execution=Execution("real_time_chunking", delay_s=0.1)
    )
    with pytest.raises(
        ValueError, match="Plain supports no action prefix, which real-time chunking needs"
    ):
        evaluation.run([1])


@pytest.mark.slow
def test_results_are_kept_and_an_evaluation_continues(
    demonstration: tuple[NDArray[np.float32], list[Vector]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_aloha(tmp_path / "aloha")
    monkeypatch.setenv("MENAGERIE_ROOT", str(tmp_path))
    # The arms stay where they are: seconds of the expert are measured above.
    policy = Looking({seed: np.tile(demonstration[0][:1], (2, 1)) for seed in (1, 2, 3)})
    late = Execution("real_time_chunking", delay_s=0.1)
    brief = replace(TASK, time_limit_s=0.4)
    evaluation = LoopEvaluation(
        policy, brief, execute_steps=12, execution=late, workers=2, robot_model="menagerie"
    )
    first = evaluation.run([1, 2], tmp_path / "wire.jsonl")
    assert [
        (result.seed, result.success, result.stage_name, result.time_s) for result in first
    ] == [
        (1, False, "start", 0.4),
        (2, False, "start", 0.4),
    ]
    assert [result.plans for result in first] == [2, 2]
    about, *lines = (tmp_path / "wire.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert json.loads(about)["about"]["execution"] == {"name": "real_time_chunking", "delay_s": 0.1}
    assert json.loads(about)["about"]["robot_model"] == "menagerie"
    assert "menagerie" in policy.drawn
    assert evaluation.run([2, 1], tmp_path / "wire.jsonl") == first[::-1]
    assert evaluation.run([1, 2, 3], tmp_path / "wire.jsonl")[:2] == first


def test_a_policy_for_another_rate_is_refused() -> None:
    policy = Knowing({}, ALOHA.contract([], 30.0))
    with pytest.raises(ValueError, match="control_hz: 30.0 is required, 50.0 is offered"):
        LoopEvaluation(policy, TASK, execute_steps=24)
