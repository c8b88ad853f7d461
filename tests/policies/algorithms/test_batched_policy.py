"""A batched policy plans as its policy does one by one, and loses no error of a call."""

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pytest
from tests.policies.conftest import observation
from torch import Tensor

from stringline.datasets.contract.contract import Array, Contract
from stringline.policies.algorithms.chunk_policy import Batch, ChunkPolicy
from stringline.policies.algorithms.learned_policy import BatchedPolicy, batched
from stringline.policies.chunks.chunk import ActionChunk
from stringline.policies.execution.execution import Execution
from stringline.policies.remote.client import RemotePolicy

MakePolicy = Callable[..., ChunkPolicy]
SEEDS = (3, 1, 2)


@pytest.fixture
def observations(contract: Contract) -> dict[int, dict[str, Array]]:
    return {seed: observation(seed, contract) for seed in SEEDS}


def broken() -> NoReturn:
    raise OSError("a call that fails")


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("+policy=flow",),
        ("+policy=energy", "policy.refining_steps=2"),
        ("policy.sampler=ddpm",),
        ("+coordinates=grid",),
    ],
)
def test_batches_equal_plans_one_by_one(
    make_policy: MakePolicy,
    observations: dict[int, dict[str, Array]],
    overrides: tuple[str, ...],
) -> None:
    """Also in the second plan, so the random numbers of a session are its own."""
    policy = make_policy(*overrides)
    alone = {seed: policy.session(seed) for seed in SEEDS}
    wrapped = BatchedPolicy(policy, 3)
    sessions = {seed: wrapped.session(seed) for seed in SEEDS}
    for _ in range(2):
        expected = [alone[seed].plan(observations[seed]) for seed in SEEDS]
        calls = [partial(sessions[seed].plan, observations[seed]) for seed in SEEDS]
        for one, other in zip(wrapped.together(calls), expected, strict=True):
            np.testing.assert_allclose(one.action, other.action, atol=2e-5)
            np.testing.assert_array_equal(one.time, other.time)


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
    wrapped = BatchedPolicy(policy, 3)
    calls = [partial(wrapped.session(seed).plan, observations[seed]) for seed in SEEDS]
    wrapped.together(calls)
    wrapped.together(calls[:1])
    assert sizes == [3, 1]


@pytest.mark.parametrize("name", ["temporal_ensembling", "real_time_chunking"])
def test_executions_around_a_batched_policy(
    make_policy: MakePolicy, observations: dict[int, dict[str, Array]], name: str
) -> None:
    """Real-time chunking plans from a prefix, which is predicted alone."""
    policy = make_policy()
    wrapped = BatchedPolicy(policy, 3)
    execution = Execution(name, delay_s=0.02)
    plans = list[list[ActionChunk]]()
    for chosen in (policy, wrapped):
        sessions = [execution.session(chosen, seed, execute_steps=4) for seed in SEEDS]
        for late in (0.0, 0.08):
            calls = [
                partial(session.plan, {**observations[seed], "time": np.asarray(1.0 + late)})
                for session, seed in zip(sessions, SEEDS, strict=True)
            ]
            plans.append(
                wrapped.together(calls) if chosen is wrapped else [call() for call in calls]
            )
    for one, other in zip(plans[0] + plans[1], plans[2] + plans[3], strict=True):
        np.testing.assert_allclose(one.action, other.action, atol=2e-5)


def test_errors_reach_the_caller(
    make_policy: MakePolicy,
    observations: dict[int, dict[str, Array]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = make_policy()
    wrapped = BatchedPolicy(policy, 3)
    session = wrapped.session(1)
    good = partial(session.plan, observations[1])
    bad = partial(wrapped.session(2).plan, {"time": np.asarray(0.0)})
    with pytest.raises(OSError, match="a call that fails"):
        wrapped.together([good, broken])
    with pytest.raises(ValueError, match="joints/position"):
        wrapped.together([bad, good])
    assert wrapped.together([partial(str, 1), good])[0] == "1"

    def fails(*_: object) -> NoReturn:
        raise MemoryError("too large")

    monkeypatch.setattr(policy, "predict", fails)
    with pytest.raises(MemoryError, match="too large"):
        wrapped.together([good, good])


def test_sizes_that_are_refused(make_policy: MakePolicy) -> None:
    policy = make_policy()
    assert batched(policy, 1) is None
    with pytest.raises(ValueError, match=r"plan_batch is 0; allowed: "):
        batched(policy, 0)
    remote = RemotePolicy.__new__(RemotePolicy)
    with pytest.raises(ValueError, match=r"plan_batch is 4 with a policy on a server.*allowed: 1"):
        batched(remote, 4)
