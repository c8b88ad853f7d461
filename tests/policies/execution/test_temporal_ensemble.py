"""Averages of plans: by hand, as in ACT's code, between actions, and invalid ones."""

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.policies.scripted import (
    HZ,
    RELATIVE,
    WITH_ROTATION,
    Scripted,
    ScriptedSession,
    Single,
    seen,
)

from stringline.datasets.contract.contract import Observation
from stringline.policies.chunks.chunk import ActionChunk, Session
from stringline.policies.execution.execution import ChunkExecutor, Execution


class Given:
    """A session that returns given plans."""

    def __init__(self, *plans: tuple[list[float], list[float]]) -> None:
        self.plans = [
            ActionChunk(np.array(time), np.array(action, np.float32)[:, None])
            for time, action in plans
        ]

    def plan(self, observation: Observation) -> ActionChunk:
        return self.plans.pop(0)


def ensemble_of(session: Session, decay: float) -> ChunkExecutor:
    execution = Execution("temporal_ensembling", decay=decay)
    return ChunkExecutor(Single(session), 0, execution, execute_steps=None, timed=False)


def averages(*plans: tuple[list[float], list[float]], decay: float) -> list[NDArray[np.float32]]:
    ensemble = ensemble_of(Given(*plans), decay)
    return [ensemble.plan(seen(0)).action[:, 0] for _ in plans]


def test_averages_equal_those_computed_by_hand() -> None:
    """The oldest plan has weight 1, the next e^-k; a plan counts only at times that it covers."""
    k = np.log(2.0)  # So each newer plan counts half as much as the one before it.
    first, second, third = averages(
        ([0.0, 0.1, 0.2], [0.0, 1.0, 2.0]),
        ([0.1, 0.2, 0.3], [4.0, 5.0, 6.0]),
        ([0.2, 0.3, 0.4], [9.0, 9.0, 9.0]),
        decay=k,
    )
    assert first.tolist() == [0.0, 1.0, 2.0]
    np.testing.assert_allclose(second, [(1 + 4 / 2) / 1.5, (2 + 5 / 2) / 1.5, 6.0], rtol=1e-6)
    np.testing.assert_allclose(
        third, [(2 + 5 / 2 + 9 / 4) / 1.75, (6 + 9 / 2) / 1.5, 9.0], rtol=1e-6
    )


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("decay", [0.01, 0.5, -0.3])
def test_averages_equal_the_published_running_average(every: int, decay: float) -> None:
    """ACT's published code has a running average and a count: the same to rounding."""
    session = ScriptedSession(8, seed=3)
    ensemble = ensemble_of(session, decay)
    mean, count = np.zeros(0), np.zeros(0, np.int64)
    for number in range(12):
        found = ensemble.plan(seen(every * number)).action[:, 0]
        new = session.plans[-1].action[:, 0].astype(np.float64)
        mean, count = mean[every:], count[every:]
        before = np.array([np.exp(-decay * np.arange(n)).sum() for n in count])
        weight = np.exp(-decay * count)
        mean = np.concatenate(
            [(mean * before + new[: len(mean)] * weight) / (before + weight), new[len(mean) :]]
        )
        count = np.concatenate([count + 1, np.ones(8 - len(count), np.int64)])
        np.testing.assert_allclose(found, mean, atol=1e-6)


def test_older_plans_are_interpolated_between_their_actions() -> None:
    """In real time plans are not on one grid: older ones are interpolated at the newer times."""
    straight, level = (
        ([0.0, 0.1, 0.2, 0.3], [0.0, 1.0, 2.0, 3.0]),
        ([0.125, 0.225, 0.325], [0.0, 0.0, 0.0]),
    )
    _, found = averages(straight, level, decay=0.0)
    np.testing.assert_allclose(found, [1.25 / 2, 2.25 / 2, 0.0], rtol=1e-6)


def test_plans_that_have_ended_have_no_weight() -> None:
    first, second = averages(([0.0, 0.1], [5.0, 5.0]), ([0.2, 0.3], [1.0, 2.0]), decay=0.01)
    assert (first.tolist(), second.tolist()) == ([5.0, 5.0], [1.0, 2.0])


def test_delayed_plans_are_averaged_with_their_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second plan of 5.4 s is in force at 5.8 s, 0.5 s after the end of the first."""
    looks = iter([0.0, 0.0, 0.0, 0.4, 0.0, 0.0])
    monkeypatch.setattr(
        "stringline.policies.execution.execution.time.perf_counter", lambda: next(looks)
    )
    session = Given(
        ([5.0, 5.1, 5.2], [0.0, 1.0, 2.0]),
        ([5.4, 5.5, 5.6], [3.0, 4.0, 5.0]),
        ([5.9, 6.0, 6.1], [7.0, 7.0, 7.0]),
    )
    execution = Execution("temporal_ensembling", delay_s="measured", decay=0.0)
    ensemble = ChunkExecutor(Single(session), 0, execution, execute_steps=3)
    ensemble.plan(seen(0))
    np.testing.assert_allclose(ensemble.plan(seen(4)).time, [5.8, 5.9, 6.0])
    np.testing.assert_allclose(ensemble.plan(seen(9)).action[:, 0], [5.5, 6.0, 7.0], rtol=1e-6)


def test_the_average_of_equal_plans_is_the_plan() -> None:
    """For any weights and number of plans."""
    plan = np.sin(np.arange(40)).astype(np.float32)

    class Same:
        def plan(self, observation: Observation) -> ActionChunk:
            step = round((float(observation["time"]) - 5.0) * HZ)
            return ActionChunk(
                float(observation["time"]) + np.arange(10) / HZ, plan[step : step + 10, None]
            )

    ensemble = ensemble_of(Same(), 0.3)
    for step in range(20):
        np.testing.assert_allclose(
            ensemble.plan(seen(step)).action[:, 0], plan[step : step + 10], atol=1e-6
        )


def test_actions_without_an_average_are_rejected() -> None:
    execution = Execution("temporal_ensembling")
    for contract, words in (
        (WITH_ROTATION, "'turn' is part of a rotation. Allowed: joint, gripper"),
        (RELATIVE, "'x' is relative to the position of the arm at that time. Allowed: absolute"),
    ):
        with pytest.raises(ValueError, match=words):
            ChunkExecutor(Scripted(8, contract), 0, execution, execute_steps=None)
