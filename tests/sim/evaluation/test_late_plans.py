"""Plans that arrive late in simulated time: executed actions, without jumps between plans."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.policies.scripted import HZ, Keeping, Scripted
from tests.sim.in_process import InProcess, roll_out
from tests.sim.track import Track

from stringline import ActionChunk, Evaluation, Policy
from stringline.datasets.contract.contract import Array
from stringline.policies.execution.execution import NAMES, ChunkExecutor, Execution
from stringline.sim.evaluation.results import EpisodeResult, OtherEvaluationError
from stringline.sim.rollout.rollout import DelayedChunk, Rollout


def carried_out(
    policy: Policy,
    execution: Execution,
    execute_steps: int | None,
    *,
    steps: int = 30,
    delays: tuple[int, ...] = (),
) -> tuple[Rollout, list[NDArray[np.float32]], list[int]]:
    """Returns an episode, the plans of the policy, and the control periods of the requests.

    Args:
        policy: Who plans.
        execution: What is done with the plans.
        execute_steps: How much of each is executed.
        steps: Of the episode.
        delays: Arrive in place of those of the execution; the plans are then taken as they are.
    """
    session = ChunkExecutor(policy, 0, execution, execute_steps=execute_steps)
    plans, asked, late = list[NDArray[np.float32]](), list[int](), list(delays)

    def plan(observation: Mapping[str, Array]) -> DelayedChunk:
        chunk = session.plan(observation)
        plans.append(chunk.action)
        asked.append(round((float(observation["time"]) - 5.0) * HZ))
        return DelayedChunk(chunk, late.pop(0) if late else session.delay_steps)

    done = roll_out(Track(steps), plan, 0, execute_steps=execution.replan_after(execute_steps))
    return done, plans, asked


def executed(done: Rollout) -> NDArray[np.float32]:
    return np.array([action[0] for action in done.actions], np.float32)


@pytest.mark.parametrize("execute_steps", [1, 3, 8, None])
def test_without_delay_asynchronous_is_synchronous(execute_steps: int | None) -> None:
    """Without delays, all executions equal the receding horizon bit for bit."""
    session = Scripted(8).session(0)
    plain = roll_out(Track(), session.plan, 0, execute_steps=execute_steps)
    for name in ("receding_horizon", "stop_and_go"):
        done, _, asked = carried_out(Scripted(8), Execution(name), execute_steps)
        np.testing.assert_array_equal(executed(done), executed(plain))
        assert (done.plans, done.starved, asked) == (
            plain.plans,
            0,
            list(range(0, 30, execute_steps or 8)),
        )


@pytest.mark.parametrize(("delay", "every"), [(1, 4), (2, 4), (4, 4), (3, 5), (1, 1), (2, 2)])
def test_the_old_plan_goes_on_until_the_new_one_is_there(delay: int, every: int) -> None:
    """Each period executes the action for this period of the newest plan that has arrived."""
    done, plans, asked = carried_out(Scripted(8), Execution(delay_s=delay / HZ), every)
    assert asked == list(range(0, 30, every))
    expected = []
    for step in range(30):
        there = [k for k, start in enumerate(asked) if step >= start + (delay if k else 0)]
        expected.append(plans[there[-1]][step - asked[there[-1]], 0])
    np.testing.assert_array_equal(executed(done), np.array(expected))
    assert done.starved == 0


def test_stop_and_go_holds_during_the_computation() -> None:
    done, plans, asked = carried_out(
        Scripted(8), Execution("stop_and_go", delay_s=3 / HZ), 2, steps=12
    )
    first, second, third = (plan[:, 0] for plan in plans)
    by_hand = [
        first[0],
        first[1],
        *[first[1]] * 3,
        second[0],
        second[1],
        *[second[1]] * 3,
        third[0],
        third[1],
    ]
    np.testing.assert_array_equal(executed(done), np.array(by_hand))
    assert (asked, done.starved) == ([0, 2, 7], 6)


def test_a_plan_later_than_the_last_action_begins_at_the_pose_of_the_arms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the arms hold no action is skipped: the next one is the first of the new plan."""
    looks = iter(np.cumsum([0.0, 0.0, 0.0, 0.3, 0.0, 0.3, 0.0, 0.3]).tolist())
    monkeypatch.setattr(
        "stringline.policies.execution.execution.time.perf_counter", lambda: next(looks)
    )
    done, plans, asked = carried_out(Scripted(4), Execution(delay_s="measured"), 4, steps=16)
    one, two, three, four = (plan[:, 0] for plan in plans)
    by_hand = [*one, *[one[3]] * 3, *two, three[3], *[three[3]] * 3, four[0]]
    np.testing.assert_array_equal(executed(done), np.array(by_hand))
    assert (asked, done.starved) == ([0, 4, 8, 12], 6)


@pytest.mark.parametrize("seed", range(5))
def test_late_plans_execute_planned_actions_only(seed: int) -> None:
    """For any delays, each period executes the action of an arrived plan or holds the last one."""
    delays = tuple(np.random.default_rng(seed).integers(0, 14, 30).tolist())
    done, plans, asked = carried_out(Scripted(8), Execution(), 3, steps=60, delays=delays)
    actions, held = executed(done), 0
    for step in range(60):
        there = [k for k, start in enumerate(asked) if step >= start + (delays[k] if k else 0)]
        place = step - asked[there[-1]]
        held += place >= 8
        np.testing.assert_array_equal(
            actions[step], plans[there[-1]][place, 0] if place < 8 else actions[step - 1]
        )
    assert done.starved == held
    waits = np.diff(asked)
    np.testing.assert_array_equal(waits, np.maximum(3, np.array([0, *delays[1 : len(waits)]])))


@pytest.mark.parametrize(("delay", "every"), [(2, 4), (4, 4), (1, 3)])
def test_real_time_chunking_does_not_jump_at_a_new_plan(delay: int, every: int) -> None:
    """A plan begins with the actions executed during its computation, so the motion is the same."""
    done, plans, asked = carried_out(
        Keeping(8), Execution("real_time_chunking", delay_s=delay / HZ), every
    )
    newest = [max(k for k, start in enumerate(asked) if start <= step) for step in range(30)]
    as_if_at_once = np.array([plans[k][step - asked[k], 0] for step, k in enumerate(newest)])
    np.testing.assert_array_equal(executed(done), as_if_at_once)
    plain, own, _ = carried_out(Keeping(8), Execution(delay_s=delay / HZ), every)
    assert not np.array_equal(
        executed(plain), np.array([own[k][step - asked[k], 0] for step, k in enumerate(newest)])
    )


def test_too_short_a_chunk_is_refused_with_the_figures() -> None:
    with pytest.raises(ValueError, match=r"planned a chunk of 0.80 s; execute_steps needs 0.90 s"):
        carried_out(Scripted(8), Execution(), 9)
    with pytest.raises(ValueError, match="and chunks of 8 actions: 2 to 6"):
        carried_out(Scripted(8), Execution(delay_s=0.2), 7)


class Constant(Scripted):
    """Counts on from the position of the point, so that plans depend on observations."""

    def session(self, seed: int) -> "Counting":
        return Counting(seed)


class Counting:
    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def plan(self, observation: Mapping[str, Array]) -> ActionChunk:
        start = float(observation["joints/position"][0])
        action = (start + self.random.normal(size=(8, 1)).cumsum(axis=0)).astype(np.float32)
        return ActionChunk(float(observation["time"]) + np.arange(8) / HZ, action)


def outcome(results: list[EpisodeResult]) -> list[dict[str, object]]:
    """All fields except times of plans."""
    return [asdict(replace(result, inference_ms=0.0, inference_p95_ms=0.0)) for result in results]


def test_outcomes_do_not_depend_on_workers_and_are_not_mixed(tmp_path: Path) -> None:
    """A delay is part of the evaluation: equal for all numbers of workers, unequal to no delay."""
    late, world = Execution("temporal_ensembling", delay_s=0.2, decay=0.1), partial(Track, 20)
    here = InProcess()
    one = Evaluation(Constant(8), world, execute_steps=3, execution=late, cluster=here).run(
        [1, 2, 3], tmp_path / "late.jsonl"
    )
    two = Evaluation(Constant(8), world, execute_steps=3, execution=late, workers=2).run([1, 2, 3])
    assert outcome(one) == outcome(two)
    assert [result.plans for result in one] == [7, 7, 7]
    with pytest.raises(
        OtherEvaluationError, match=r"execution: {'name': 'temporal_ensembling', 'delay_s': 0.2"
    ):
        Evaluation(Constant(8), world, execute_steps=3, workers=1).run(
            [1, 2, 3], tmp_path / "late.jsonl"
        )


def test_the_error_names_an_execution_without_prefix(tmp_path: Path) -> None:
    chunking = Execution(NAMES[3], delay_s=0.1)
    evaluation = Evaluation(
        Constant(8), Track, execute_steps=3, execution=chunking, cluster=InProcess()
    )
    with pytest.raises(ValueError, match="Counting supports no action prefix"):
        evaluation.run([1])
