"""Plans that continue the previous ones: published weights, prefixes, and errors."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from tests.policies.demonstrations import episode, observation_at
from tests.policies.scripted import (
    CONTRACT,
    HZ,
    RELATIVE,
    Keeping,
    KeepingSession,
    Scripted,
    Single,
    seen,
)

from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.positions.absolute import SinusoidalEncoding
from stringline.policies.algorithms.act import ActPolicy, ActSettings
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.chunks.chunk import ActionChunk, ActionPrefix, Session
from stringline.policies.execution.execution import ChunkExecutor, Execution, soft_weights
from stringline.policies.observation.image_encoders import PlainVisionEncoder
from stringline.policies.observation.observation_settings import PlainVisionSettings

MakePolicy = Callable[..., ChunkPolicy]
Observe = Callable[[int], dict[str, Array]]


def chunking_of(session: Session, delay: int, contract: Contract = CONTRACT) -> ChunkExecutor:
    """Returns an episode whose plans are expected after some control periods."""
    execution = Execution("real_time_chunking", delay_s=delay / contract.control_hz)
    policy = Single(session, contract)
    return ChunkExecutor(policy, 0, execution, execute_steps=None, timed=False)


def test_the_published_weights() -> None:
    """Two fixed of six: c falls in fifths as in published code, weight c (e^c - 1) / (e - 1)."""
    c = np.array([4, 3, 2, 1]) / 5
    np.testing.assert_allclose(
        soft_weights(2, 6), [1, 1, *(c * (np.exp(c) - 1) / (np.e - 1))], rtol=1e-12
    )
    assert soft_weights(3, 3).tolist() == [1, 1, 1]
    assert soft_weights(0, 0).tolist() == []
    assert (np.diff(soft_weights(0, 40)) < 0).all()


@pytest.mark.parametrize(
    ("delay", "every", "length"), [(0, 4, 8), (2, 4, 8), (4, 4, 8), (1, 1, 8), (3, 5, 8)]
)
def test_fixed_actions_are_unchanged(delay: int, every: int, length: int) -> None:
    """Actions up to the delay are those of the previous plan, to the bit; the last are free."""
    session, free = KeepingSession(length, seed=1), KeepingSession(length, seed=1)
    chunking = chunking_of(session, delay)
    before: ActionChunk | None = None
    for number in range(6):
        observation = seen(every * number)
        plan, own = chunking.plan(observation), free.plan(observation)
        if before is None:
            np.testing.assert_array_equal(plan.action, own.action)
        else:
            np.testing.assert_array_equal(plan.action[:delay], before.action[every : every + delay])
            np.testing.assert_array_equal(
                plan.action[length - every :], own.action[length - every :]
            )
            between = slice(delay, length - every)
            low = np.minimum(own.action[between], before.action[every:][between])
            high = np.maximum(own.action[between], before.action[every:][between])
            assert (low - 1e-6 <= plan.action[between]).all()
            assert (plan.action[between] <= high + 1e-6).all()
        before = plan


def test_without_overlap_and_delay_it_is_a_receding_horizon() -> None:
    chunking, plain = (
        chunking_of(KeepingSession(8, 2), 0),
        KeepingSession(8, 2),
    )
    for number in range(4):
        np.testing.assert_array_equal(
            chunking.plan(seen(8 * number)).action, plain.plan(seen(8 * number)).action
        )


def test_between_actions_the_interpolation_of_the_old_plan_is_fixed() -> None:
    """After an observation between two actions, those that the sampler sends are fixed."""
    chunking = chunking_of(KeepingSession(8, 3), 2)
    old = chunking.plan(seen(0)).action[:, 0].astype(np.float64)
    new = chunking.plan(seen(0) | {"time": np.asarray(5.325)}).action[:2, 0]
    np.testing.assert_allclose(
        new, [0.75 * old[3] + 0.25 * old[4], 0.75 * old[4] + 0.25 * old[5]], rtol=1e-5
    )


def test_a_delayed_plan_is_continued_with_its_delay() -> None:
    """The plan for 5.9 s is in force at 6.1 s, since the previous one has ended, and goes on."""
    execution = Execution("real_time_chunking", delay_s=2 / HZ)
    chunking = ChunkExecutor(Keeping(8), 4, execution, execute_steps=4)
    chunking.plan(seen(0))
    late = chunking.plan(seen(9))
    np.testing.assert_allclose(late.time[0], 6.1)
    np.testing.assert_array_equal(chunking.plan(seen(13)).action[:2], late.action[2:4])


def test_a_delay_longer_than_the_rest_fixes_the_rest() -> None:
    session = KeepingSession(8, 5)
    chunking = chunking_of(session, 6)
    old = chunking.plan(seen(0)).action
    np.testing.assert_array_equal(chunking.plan(seen(5)).action[:3], old[5:])
    assert chunking.plan(seen(40)).action.shape == (8, 1)
    assert session.prefixes[-1] is not None
    assert len(session.prefixes[-1].time) == 0


def test_sessions_without_support_of_prefixes_are_rejected() -> None:
    with pytest.raises(
        ValueError,
        match="ScriptedSession supports no action prefix.*use execution=receding_horizon",
    ):
        chunking_of(Scripted().session(0), 0)
    with pytest.raises(ValueError, match="'x' is relative to the position of the arm"):
        chunking_of(Keeping().session(0), 0, RELATIVE)


@pytest.mark.parametrize("kind", ["diffusion", "flow", "energy"])
def test_policies_keep_fixed_actions(make_policy: MakePolicy, observe: Observe, kind: str) -> None:
    """To the bit in the units of the contract; an empty prefix changes nothing."""
    policy = make_policy(f"+policy={kind}")
    plain, observation = policy.session(7), observe(0)
    alone = [plain.plan(observation) for _ in range(2)]
    empty = policy.session(7)
    np.testing.assert_array_equal(
        empty.plan(observation, ActionPrefix.empty(14)).action, alone[0].action
    )
    fixed = ActionPrefix(
        alone[0].time[:5],
        alone[0].action[:5] * np.float32(0.5),
        np.array([1.0, 1.0, 1.0, 0.5, 0.1]),
    )
    found = empty.plan(observation, fixed)
    np.testing.assert_array_equal(found.time, alone[0].time)
    np.testing.assert_array_equal(found.action[:3], fixed.action[:3])
    assert np.abs(found.action[3:] - alone[1].action[3:]).max() > 0
    assert np.isfinite(found.action).all()


def test_prefixes_are_encoded_in_the_action_space(
    of_demonstrations: MakePolicy,
) -> None:
    """Absolute joints of the contract are kept although the network generates differences."""
    policy = of_demonstrations("+action=relative_joints")
    first, later = (observation_at(episode(0), step) for step in (0, 4))
    session = policy.session(0)
    start = session.plan(first)
    time = float(later["time"]) + np.arange(4) / 50
    fixed = ActionPrefix(time, start.action[4:], np.array([1.0, 1.0, 0.7, 0.3]))
    found = session.plan(later, fixed)
    np.testing.assert_array_equal(found.action[:2], start.action[4:6])
    batch = policy.observed(later)
    normalised = policy.normalised_prefix(fixed.aligned(found.time), batch).action
    assert not torch.allclose(
        policy.action_range.restore(normalised)[0, :4],
        torch.from_numpy(start.action[4:]),
        atol=1e-2,
    )
    there_and_back = policy.action_space.decode(policy.action_range.restore(normalised), batch)
    np.testing.assert_allclose(there_and_back[0, :4].numpy(), start.action[4:], atol=1e-5)


def test_act_rejects_the_first_plan_before_any_motion(
    contract: Contract, statistics: Statistics, observe: Observe
) -> None:
    """The first request of an episode shows that later ones would fail."""
    encoder_settings = PlainVisionSettings(
        encoding=partial(SinusoidalEncoding, theta=10000.0), grid=2, dim=24, depth=1, heads=2
    )
    conditioning = partial(PlainVisionEncoder, encoder_settings)
    settings = ActSettings(
        observation_encoder=conditioning,
        chunk=8,
        dim=32,
        heads=2,
        feed_forward=64,
        encoder_layers=1,
        latent=6,
    )
    act = ActPolicy(settings, contract, statistics).eval()
    with pytest.raises(
        ValueError, match="ACT generates a chunk in one step and supports no action prefix"
    ):
        chunking_of(act.session(0), 1, act.contract).plan(observe(0))


def test_invalid_prefixes_are_rejected() -> None:
    time, action, weight = np.array([0.0, 0.1]), np.zeros((2, 1), np.float32), np.ones(2)
    for wrong, words in (
        ((time[:1], action, weight), r"time \(K,\), action \(K, A\)"),
        ((time[::-1], action, weight), "finite and rising"),
        ((time, np.full((2, 1), np.nan, np.float32), weight), "not finite"),
        ((time, action, weight * 2), "range from 2.0 to 2.0; allowed: 0 to 1"),
    ):
        with pytest.raises(ValueError, match=words):
            ActionPrefix(*wrong)
    with pytest.raises(
        ValueError, match=r"fixed for 0.1000 s, which the plan lacks: its 2 actions"
    ):
        ActionPrefix(time, action, weight).aligned(np.array([0.0, 0.2]))


def test_a_prefix_of_another_embodiment_is_rejected(
    make_policy: MakePolicy, observe: Observe
) -> None:
    session, observation = make_policy().session(0), observe(0)
    with pytest.raises(ValueError, match="have 3 entries; those of the contract have 14"):
        session.plan(
            observation, ActionPrefix(np.array([1.0]), np.zeros((1, 3), np.float32), np.ones(1))
        )
