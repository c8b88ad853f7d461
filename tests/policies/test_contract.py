"""What every policy promises, as `stringline.testing` checks it for policies of other packages."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from tests.policies.algorithms import test_keypose_policy as keyposes
from torch import Tensor

from stringline import ActionChunk, ChunkPolicy
from stringline.datasets.contract.contract import Array
from stringline.testing import check_policy, check_training

KINDS: dict[str, tuple[str, ...]] = {
    "diffusion": (),
    "ddpm": ("policy.sampler=ddpm",),
    "grid": ("+coordinates=grid",),
    "flow": ("+policy=flow",),
    "energy": ("+policy=energy", "policy.refinement_steps=2"),
}
MakePolicy = Callable[..., ChunkPolicy]
Observe = Callable[[int], dict[str, Array]]


@pytest.mark.parametrize("kind", KINDS)
def test_plans(make_policy: MakePolicy, observe: Observe, kind: str) -> None:
    policy = make_policy(*KINDS[kind])
    check_policy(policy, [observe(seed) for seed in range(3)])
    action = torch.from_numpy(policy.session(0).plan(observe(0)).action)
    assert (action >= policy.action_range.low - 1e-4).all()
    assert (action <= policy.action_range.high + 1e-4).all()


@pytest.mark.parametrize("kind", KINDS)
def test_losses(
    make_policy: MakePolicy, make_batch: Callable[[int], dict[str, Tensor]], kind: str
) -> None:
    policy, batch = make_policy(*KINDS[kind]), make_batch(3)
    check_training(policy, batch)
    assert policy.loss(batch | {"action_mask": torch.zeros_like(batch["action_mask"])}) == 0


@pytest.mark.slow
def test_plans_and_losses_of_keyposes() -> None:
    policy = keyposes.make(*keyposes.IMAGES)
    check_policy(policy, [keyposes.seen(seed, float(seed)) for seed in range(3)])


def test_a_policy_that_breaks_its_promise_is_named(
    make_policy: MakePolicy, observe: Observe
) -> None:
    policy = make_policy()
    random = np.random.default_rng(0)

    class Shared:
        contract = policy.contract

        def session(self, seed: int) -> "Shared":
            return self

        def plan(self, observation: Mapping[str, Array]) -> ActionChunk:
            now = float(observation["time"])
            return ActionChunk(now + np.arange(4) / 50, random.random((4, 14), np.float32))

    with pytest.raises(AssertionError, match="Sessions of one seed plan differently"):
        check_policy(Shared(), [observe(0), observe(1)])
