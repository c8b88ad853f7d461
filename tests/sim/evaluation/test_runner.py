"""Traces keep stages, openings, speeds and the first observation.

Evaluation in the world of a task: equal results for all workers and after interruptions.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.sim.in_process import InProcess

from stringline import ActionChunk, Camera, Contract, Evaluation, Session
from stringline.datasets.contract.contract import Observation, instruction_of
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.sim.environment.environment import make_environment
from stringline.sim.evaluation.results import EpisodeResult, command_acceleration
from stringline.sim.evaluation.runner import (
    Trace,
    read_first_observation,
    read_trace,
    trace_of_video,
    write_trace,
)
from stringline.sim.evaluation.suites import evaluation_seeds
from stringline.sim.rollout.rollout import Rollout
from stringline.sim.rollout.workers import RemoteTracebackError

STAGES = ("apart", "lifted", "placed", "success")


def rollout(steps: int) -> Rollout:
    """The left gripper opens evenly, the first joint jumps once by 0.1 rad."""
    actions = np.tile(ALOHA.home, (steps, 1))
    left, right = (index for index, joint in enumerate(ALOHA.joints) if joint.kind != "revolute")
    actions[:, left], actions[:, right] = np.linspace(0, 1, steps), 0.25
    actions[steps // 2 :, 0] += 0.1
    return Rollout(actions=list(actions), stage=3, stage_times={0: 0.02, 1: 1.5, 3: steps / 50})


@pytest.mark.parametrize("steps", [1, 7, 200, 733])
def test_round_trip(tmp_path: Path, steps: int) -> None:
    """A trace has at most 200 samples with all peaks; skipped stages and the first are omitted."""
    contract = ALOHA.contract([], 50.0)
    trace = Trace.of(rollout(steps), STAGES, contract)
    assert trace.names == STAGES
    assert trace.stages == {"lifted": 1.5, "success": steps / 50}
    assert len(trace.time) == len(trace.speed) == len(trace.openings["left"]) == min(steps, 200)
    assert trace.time[0] == 0
    assert (np.diff(trace.time) > 0).all()
    assert (np.diff(trace.openings["left"]) > 0).all()
    assert set(trace.openings["right"]) == {np.float32(0.25)}
    assert trace.speed.max() == pytest.approx(5.0 if steps > 1 else 0.0, rel=1e-4)
    path, seen = (
        trace_of_video(tmp_path / "5.mp4"),
        {"rgb/overhead": np.arange(12, dtype=np.uint8).reshape(2, 2, 3)},
    )
    assert path.name == "5.npz"
    assert read_trace(path) is None
    assert read_first_observation(path) is None
    write_trace(path, trace, seen)
    again = read_trace(path)
    assert again is not None
    assert again.names == trace.names
    assert dict(again.stages) == dict(trace.stages)
    for name in ("time", "speed"):
        np.testing.assert_array_equal(getattr(again, name), getattr(trace, name))
    assert {arm: course.tolist() for arm, course in again.openings.items()} == {
        arm: course.tolist() for arm, course in trace.openings.items()
    }
    first = read_first_observation(path)
    assert first is not None
    assert list(first) == ["rgb/overhead"]
    np.testing.assert_array_equal(first["rgb/overhead"], seen["rgb/overhead"])


ROOT = Path(__file__).parents[3]
WORLD = partial(
    make_environment, "hand_over_banana", cameras=("overhead",), image_size=32, time_limit_s=0.6
)


@pytest.fixture(scope="module")
def contract() -> Contract:
    """The contract of the world."""
    world = WORLD()
    contract = world.contract
    world.close()
    return contract


class Wander:
    """Moves at random near the arms, with an offset by the brightness of the image."""

    def __init__(self, contract: Contract, after: Callable[[], None] = lambda: None) -> None:
        self.contract, self.after, self.sessions = contract, after, list[int]()

    def session(self, seed: int) -> Session:
        """Begins an episode."""
        self.sessions.append(seed)
        return WanderSession(seed, self.after)


class WanderSession:
    """One episode of the policy."""

    def __init__(self, seed: int, after: Callable[[], None]) -> None:
        self.rng, self.after = np.random.default_rng(seed), after

    def plan(self, observation: Observation) -> ActionChunk:
        """Plans twelve steps."""
        self.after()
        step = (
            self.rng.normal(0.0, 0.01, (12, 14)) + float(observation["rgb/overhead"].mean()) * 1e-4
        )
        action = observation["joints/position"] + np.cumsum(step, axis=0).astype(np.float32)
        return ActionChunk(float(observation["time"]) + np.arange(12) / 50, action)


def outcome(results: list[EpisodeResult]) -> list[dict[str, object]]:
    """All fields except times of plans."""
    return [asdict(replace(result, inference_ms=0.0, inference_p95_ms=0.0)) for result in results]


@pytest.mark.slow
def test_stored_observations_have_the_instruction_that_the_policy_received(
    tmp_path: Path, contract: Contract
) -> None:
    """A report asks the policy again, and a policy of several tasks needs its instruction."""
    text = "put the mug on the plate"
    with closing(InProcess()) as here:
        Evaluation(
            Wander(contract),
            WORLD,
            execute_steps=10,
            instruction=text,
            cluster=here,
            videos=tmp_path,
        ).run([7])
    observation = read_first_observation(tmp_path / "7.npz")
    assert observation is not None
    assert instruction_of(observation) == text


@pytest.mark.slow
def test_any_number_of_workers_and_any_interruption(tmp_path: Path, contract: Contract) -> None:
    """One process, three workers and a continued run have equal results; videos exist."""
    seeds = evaluation_seeds(4)
    with closing(InProcess()) as here:
        one = Evaluation(Wander(contract), WORLD, execute_steps=10, cluster=here).run(seeds)
    assert [result.seed for result in one] == seeds
    assert len({result.acceleration for result in one}) == 4
    assert all((result.plans, result.time_s, result.success) == (3, 0.6, False) for result in one)

    asked: list[int] = []

    def stop_at_the_eighth_question() -> None:
        asked.append(1)
        if len(asked) == 8:
            raise KeyboardInterrupt

    file, videos, about = tmp_path / "results.jsonl", tmp_path / "videos", {"checkpoint": "x"}
    first = Wander(contract, stop_at_the_eighth_question)
    with pytest.raises(KeyboardInterrupt):
        Evaluation(first, WORLD, execute_steps=10, workers=1, videos=videos).run(seeds, file, about)
    second = Wander(contract)
    continued = Evaluation(second, WORLD, execute_steps=10, workers=3, videos=videos).run(
        seeds, file, about
    )
    assert outcome(continued) == outcome(one)
    assert set(second.sessions) == set(seeds[2:])
    assert sorted(video.name for video in videos.glob("*.mp4")) == [f"{seed}.mp4" for seed in seeds]
    assert sorted(trace.name for trace in videos.glob("*.npz")) == [f"{seed}.npz" for seed in seeds]
    third = Wander(contract)
    assert (
        Evaluation(third, WORLD, execute_steps=10, videos=videos).run(seeds, file, about)
        == continued
    )
    assert third.sessions == []


@pytest.mark.slow
def test_errors_name_the_wrong_value(contract: Contract) -> None:
    """A missing camera, short chunks and unknown tasks raise errors, also in a worker."""
    needs_more = Wander(contract.with_cameras(*contract.cameras, Camera("ceiling", 8, 8)))
    with closing(InProcess()) as here:
        with pytest.raises(
            ValueError, match=r"does not fit this world\. There is no camera 'ceiling'"
        ):
            Evaluation(needs_more, WORLD, execute_steps=10, cluster=here).run([1])
        with pytest.raises(ValueError, match="Lower execute_steps"):
            Evaluation(Wander(contract), WORLD, execute_steps=13, cluster=here).run([1])
    with pytest.raises(
        ValueError, match=r"There is no task 'hand_over_bannana'\. Did you mean"
    ) as caught:
        Evaluation(
            Wander(contract),
            partial(make_environment, "hand_over_bannana"),
            execute_steps=10,
            workers=1,
        ).run([1])
    assert isinstance(caught.value.__cause__, RemoteTracebackError)
    with pytest.raises(ValueError, match="differ from each other"):
        Evaluation(Wander(contract), WORLD, execute_steps=10).run([1, 1])
    with pytest.raises(ValueError, match="execute_steps must be an integer"):
        Evaluation(Wander(contract), WORLD, execute_steps=0)


def test_workers_are_light() -> None:
    """A worker does not import torch."""
    code = (
        "import sys, stringline.sim.evaluation.runner, stringline.sim.rollout.workers; "
        "print('torch' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / ".src")}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"


def test_command_acceleration(contract: Contract) -> None:
    """A parabola has its second derivative, grippers do not count, a steady motion has none."""
    time = np.arange(50)[:, None] / contract.control_hz
    parabola = np.tile(1.5 * time**2, (1, 14))
    assert command_acceleration(parabola, contract) == pytest.approx(3.0)
    assert command_acceleration(np.tile(2.0 * time, (1, 14)), contract) == pytest.approx(
        0.0, abs=1e-6
    )
    grippers = np.zeros((50, 14))
    grippers[::2, [6, 13]] = 1.0
    assert command_acceleration(grippers, contract) == 0.0
    assert command_acceleration(parabola[:2], contract) == 0.0
