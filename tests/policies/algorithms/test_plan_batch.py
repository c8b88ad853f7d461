"""A batch of observations is planned as one by one, with one call of the network."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.policies.conftest import observation
from torch import Tensor

from stringline.datasets.contract.contract import Array, Contract
from stringline.policies.algorithms.chunk_policy import Batch, ChunkPolicy
from stringline.policies.execution.execution import (
    NAMES,
    ChunkExecutor,
    Execution,
    check_plan_batch,
    plan_batch,
)
from stringline.policies.remote.client import RemotePolicy

MakePolicy = Callable[..., ChunkPolicy]
SEEDS = (3, 1, 2)


@pytest.fixture
def observations(contract: Contract) -> dict[int, dict[str, Array]]:
    return {seed: observation(seed, contract) for seed in SEEDS}


def test_a_batch_calls_the_network_once(
    make_policy: MakePolicy,
    observations: dict[int, dict[str, Array]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = make_policy()
    sizes = list[int]()
    predict = policy.predict

    def counted(batch: Batch, *rest: Any) -> Tensor:
        sizes.append(len(batch["joints/position"]))
        return predict(batch, *rest)

    monkeypatch.setattr(policy, "predict", counted)
    executors = [ChunkExecutor(policy, seed, Execution(), execute_steps=4) for seed in SEEDS]
    seen = [observations[seed] for seed in SEEDS]
    plan_batch(policy, executors, seen)
    plan_batch(policy, executors[:1], seen[:1])
    assert sizes == [3, 1]


@pytest.mark.parametrize("name", NAMES)
def test_every_execution_of_a_batch(
    make_policy: MakePolicy, observations: dict[int, dict[str, Array]], name: str
) -> None:
    """Real-time chunking plans from a prefix, which is predicted alone: to the bit."""
    policy = make_policy()
    execution = Execution(name, delay_s=0.02)
    alone, together = (
        [ChunkExecutor(policy, seed, execution, execute_steps=4) for seed in SEEDS]
        for _ in range(2)
    )
    for late in (0.0, 0.08):
        seen = [{**observations[seed], "time": np.asarray(1.0 + late)} for seed in SEEDS]
        expected = [executor.plan(each) for executor, each in zip(alone, seen, strict=True)]
        found = plan_batch(policy, together, seen)
        for one, other in zip(found, expected, strict=True):
            atol = 0.0 if name == "real_time_chunking" else 2e-5
            np.testing.assert_allclose(one.action, other.action, rtol=0, atol=atol)
            np.testing.assert_array_equal(one.time, other.time)
    assert [executor.delay_steps for executor in together] == [1, 1, 1]


def test_an_observation_without_a_key_is_rejected(
    make_policy: MakePolicy, observations: dict[int, dict[str, Array]]
) -> None:
    policy = make_policy()
    sessions = [policy.session(seed) for seed in SEEDS]
    seen = [observations[3], {"time": np.asarray(0.0)}, observations[2]]
    with pytest.raises(ValueError, match="joints/position"):
        policy.plan_batch(sessions, seen, [None] * 3)


def test_sizes_that_are_refused(make_policy: MakePolicy) -> None:
    policy = make_policy()
    check_plan_batch(policy, 4)
    with pytest.raises(ValueError, match=r"plan_batch must be an integer"):
        check_plan_batch(policy, 0)
    remote = RemotePolicy.__new__(RemotePolicy)
    check_plan_batch(remote, 1)
    with pytest.raises(
        ValueError, match=r"plan_batch is 4, but RemotePolicy answers one .*allowed: 1"
    ):
        check_plan_batch(remote, 4)
