"""Prefix actions are unchanged, and the others are planned beside them."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from stringline import ChunkPolicy, ConditioningTokens
from stringline.policies.networks.inputs import NormalisedPrefix

KINDS = [
    ("+policy=diffusion",),
    ("+policy=diffusion", "policy.sampler=ddpm", "policy.prediction=v"),
    ("+policy=diffusion", "policy.sampler=dpm_solver", "policy.zero_terminal_snr=true"),
    ("+policy=diffusion", "policy.prediction=epsilon", "policy.spacing=leading"),
    ("+policy=flow",),
    ("+policy=flow", "policy.solver=heun"),
    ("+policy=flow", "policy.solver=midpoint"),
    ("+policy=energy",),
]
Make = Callable[..., ChunkPolicy]
JOINTS = "policy.observation_encoder.joints=tokens"  # Tokens of the tests have no state.


@pytest.fixture
def conditioning() -> ConditioningTokens:
    return ConditioningTokens(torch.randn(3, 5, 32, generator=torch.Generator().manual_seed(1)))


def committed_with(weights: list[float]) -> NormalisedPrefix:
    action = torch.rand(3, 8, 14, generator=torch.Generator().manual_seed(2)) * 1.6 - 0.8
    return NormalisedPrefix(action, torch.tensor(weights))


def drawn(
    policy: ChunkPolicy, conditioning: ConditioningTokens, prefix: NormalisedPrefix | None
) -> Tensor:
    with torch.inference_mode():
        return policy.generate(conditioning, torch.Generator().manual_seed(0), prefix)


@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
def test_fixed_actions_are_unchanged_and_affect_the_others(
    make_policy: Make, conditioning: ConditioningTokens, kind: tuple[str, ...]
) -> None:
    policy = make_policy(*kind, JOINTS)
    first = committed_with([1, 1, 1, 0.5, 0, 0, 0, 0])
    chunk, free = drawn(policy, conditioning, first), drawn(policy, conditioning, None)
    assert torch.equal(chunk[:, :3], first.action[:, :3])
    assert torch.equal(drawn(policy, conditioning, first), chunk)
    other = drawn(policy, conditioning, replace(first, action=-first.action))
    assert (other[:, 4:] - chunk[:, 4:]).abs().max() > 1e-4, (
        "free actions do not attend to fixed ones"
    )
    towards = (chunk[:, 3] - first.action[:, 3]).abs().mean()
    assert towards < 0.9 * (free[:, 3] - first.action[:, 3]).abs().mean()


@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
def test_an_empty_prefix_has_no_effect(
    make_policy: Make, conditioning: ConditioningTokens, kind: tuple[str, ...]
) -> None:
    policy = make_policy(*kind, JOINTS)
    assert torch.equal(
        drawn(policy, conditioning, committed_with([0.0] * 8)), drawn(policy, conditioning, None)
    )


@pytest.mark.parametrize("kind", ["diffusion", "flow"])
def test_a_weight_is_the_share_of_the_way_to_the_prefix(
    make_policy: Make, conditioning: ConditioningTokens, kind: str
) -> None:
    """Exactly so with a single step, in which other actions do not move."""
    policy = make_policy(f"+policy={kind}", "policy.sampling_steps=1", JOINTS)
    policy.action_range.reach = 100.0
    weights = [0, 0.1, 0.25, 0.5, 0.75, 0.9, 1, 0]
    prefix = committed_with([float(weight) for weight in weights])
    free = drawn(policy, conditioning, None)
    expected = free + torch.tensor(weights)[:, None] * (prefix.action - free)
    torch.testing.assert_close(
        drawn(policy, conditioning, prefix),
        expected,
        rtol=0,
        atol=2e-3 if kind == "diffusion" else 1e-5,
    )


def test_blending_is_exact_at_both_ends() -> None:
    prefix = committed_with([0, 1, 0.5, 1, 0, 0, 0, 0])
    free = torch.randn(3, 2, 8, 14)
    pulled = prefix.blend(free)
    assert torch.equal(pulled[:, :, 0], free[:, :, 0])
    assert torch.equal(pulled[:, :, 1], prefix.action[:, None, 1].expand(-1, 2, -1))
    torch.testing.assert_close(pulled[:, :, 2], (free[:, :, 2] + prefix.action[:, None, 2]) / 2)
    settled = prefix.enforce(free)
    assert torch.equal(settled[:, :, [1, 3]], prefix.action[:, None, [1, 3]].expand(-1, 2, -1, -1))
    assert torch.equal(settled[:, :, [0, 2, 4]], free[:, :, [0, 2, 4]])


@pytest.mark.parametrize(
    ("action", "weight", "message"),
    [
        (torch.zeros(8, 14), torch.zeros(8), r"shape \(8, 14\); allowed: \(B, T, A\)"),
        (torch.zeros(1, 8, 14), torch.zeros(7), r"Weights have shape \(7,\); allowed: \(8,\)"),
        (
            torch.zeros(1, 2, 14),
            torch.tensor([0.5, 1.5]),
            r"Weights of prefix actions are \[0.5, 1.5\]; allowed: 0 to 1",
        ),
        (
            torch.zeros(1, 2, 14),
            torch.tensor([0.5, torch.nan]),
            r"Weights of prefix actions are \[0.5, nan\]",
        ),
        (torch.full((1, 2, 14), torch.inf), torch.zeros(2), r"not finite"),
    ],
)
def test_invalid_prefixes_are_rejected(action: Tensor, weight: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NormalisedPrefix(action, weight)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["diffusion", "flow", "energy"])
def test_chunks_of_another_shape_are_rejected(
    make_policy: Make, conditioning: ConditioningTokens, kind: str
) -> None:
    prefix = NormalisedPrefix(torch.zeros(3, 6, 14), torch.zeros(6))
    with pytest.raises(
        ValueError, match=r"shape \(3, 6, 14\); allowed for this plan: \(3, 8, 14\)"
    ):
        drawn(make_policy(f"+policy={kind}", JOINTS), conditioning, prefix)
