"""ACT: both parts of its loss by hand, learning, and plans after disagreeing demonstrations."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.positions.absolute import SinusoidalEncoding
from stringline.encoders.training.optimisation import LossModule, accumulate, split
from stringline.policies.algorithms.act import (
    ActPolicy,
    ActSettings,
    ActTransformer,
    divergence_from_prior,
)
from stringline.policies.networks.inputs import NormalisedPrefix
from stringline.policies.observation.image_encoders import PlainVisionEncoder
from stringline.policies.observation.interfaces import ConditioningTokens
from stringline.policies.observation.observation_settings import PlainVisionSettings

MakeAct = Callable[..., ActPolicy]
MakeBatch = Callable[[int], dict[str, Tensor]]
Observe = Callable[[int], dict[str, Array]]


@pytest.fixture
def contract() -> Contract:
    return ALOHA.contract([Camera("overhead", 32, 32, "simulated")], 50.0)


@pytest.fixture
def act(contract: Contract, statistics: Statistics) -> MakeAct:
    """Makes a small ACT over a plain vision transformer."""

    def make(**settings: object) -> ActPolicy:
        torch.manual_seed(0)
        encoding = partial(SinusoidalEncoding, theta=10000.0)
        conditioning = partial(
            PlainVisionEncoder,
            PlainVisionSettings(encoding=encoding, grid=2, dim=24, depth=1, heads=2),
        )
        sizes = {
            "chunk": 8,
            "dim": 32,
            "heads": 2,
            "feed_forward": 64,
            "encoder_layers": 1,
            "latent": 6,
            "dropout": 0.0,
        }
        chosen = ActSettings(observation_encoder=conditioning, **{**sizes, **settings})  # type: ignore[arg-type]
        return ActPolicy(chosen, contract, statistics)

    return make


def conditioning_of(count: int, tokens: int = 5) -> ConditioningTokens:
    return ConditioningTokens(
        torch.randn(count, tokens, 24, generator=torch.Generator().manual_seed(1))
    )


def test_the_divergence_is_that_of_normal_distributions() -> None:
    mean, log_variance = torch.randn(5, 6), torch.randn(5, 6)
    expected = kl_divergence(
        Normal(mean, (log_variance / 2).exp()), Normal(torch.tensor(0.0), torch.tensor(1.0))
    )
    torch.testing.assert_close(divergence_from_prior(mean, log_variance), expected.sum(dim=1))
    assert not divergence_from_prior(torch.zeros(2, 6), torch.zeros(2, 6)).any()


@torch.no_grad()
def test_the_loss_is_that_computed_by_hand(act: MakeAct) -> None:
    policy, conditioning = act(kl_weight=3.0), conditioning_of(2)
    action, joints = torch.randn(2, 8, 14), torch.randn(2, 14)
    mask = torch.arange(8) < torch.tensor([[8], [3]])
    torch.manual_seed(7)
    error, divergence = policy.losses(conditioning, action, mask, joints)
    mean, log_variance = policy.style(action, mask, joints)
    torch.manual_seed(7)
    chunk = policy.decode(conditioning, mean + (log_variance / 2).exp() * torch.randn(2, 6))
    away = np.abs((chunk - action).numpy())
    assert error.item() == pytest.approx((away[0].sum() + away[1, :3].sum()) / (11 * 14), rel=1e-5)
    divergences = [
        -0.5 * (1 + float(v) - float(m) ** 2 - float(v.exp()))
        for m, v in zip(mean.ravel(), log_variance.ravel(), strict=True)
    ]
    per_example = [sum(divergences[:6]), sum(divergences[6:])]
    assert divergence.item() == pytest.approx(
        (8 * per_example[0] + 3 * per_example[1]) / 11, rel=1e-4
    )
    torch.manual_seed(7)
    assert policy.chunk_loss(conditioning, action, mask, joints).item() == pytest.approx(
        error.item() + 3 * divergence.item()
    )


def test_padded_actions_have_no_effect(act: MakeAct) -> None:
    """Neither on the style nor on the error; with padding only the error is 0."""
    policy, conditioning, action = act(), conditioning_of(2), torch.randn(2, 8, 14)
    mask = torch.arange(8) < torch.tensor([[8], [3]])
    changed = torch.where(mask[..., None], action, 50.0)
    torch.manual_seed(7)
    usual = policy.chunk_loss(conditioning, action, mask)
    torch.manual_seed(7)
    assert policy.chunk_loss(conditioning, changed, mask).item() == pytest.approx(
        usual.item(), rel=1e-6
    )
    error, divergence = policy.losses(conditioning, action, torch.zeros_like(mask))
    assert error == 0
    assert divergence.isfinite()


def test_parts_of_a_batch_add_up_to_the_whole(
    act: MakeAct, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss and gradients for parts with very different numbers of actions, without drawn styles."""
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)
    policy, batch = act().train(), make_batch(6)
    batch["action_mask"] = torch.arange(8) < torch.tensor([[8], [7], [1], [2], [8], [1]])
    found: list[tuple[float, dict[str, Tensor]]] = []
    for parts in (1, 3):
        policy.zero_grad()
        divided = split(batch, parts)
        loss = accumulate(
            Accelerator(cpu=True),
            LossModule(policy),
            divided,
            bf16=False,
            loss_weight=lambda part: part["action_mask"].sum(),
        )
        found.append(
            (
                loss.item(),
                {
                    name: each.grad.clone()
                    for name, each in policy.named_parameters()
                    if each.grad is not None
                },
            )
        )
    (whole, gradients), (other, others) = found
    assert other == pytest.approx(whole, rel=1e-5)
    torch.testing.assert_close(others, gradients, atol=1e-6, rtol=1e-4)


def test_the_style_depends_on_actions_and_joints(act: MakeAct, make_batch: MakeBatch) -> None:
    policy, batch = act().train(), make_batch(2)
    joints = policy.joint_range.normalise(batch["joints/position"]) if policy.joint_range else None
    mask = batch["action_mask"]
    usual = policy.style(batch["action"], mask, joints)[0]
    for other in (
        policy.style(batch["action"] + 0.3, mask, joints),
        policy.style(batch["action"], mask, None),
    ):
        assert (other[0] - usual).abs().max() > 1e-3
    policy.loss(batch).backward()  # type: ignore[no-untyped-call]
    for name, parameter in policy.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_plans_draw_no_random_numbers(act: MakeAct, observe: Observe) -> None:
    policy = act().eval()
    one, other = policy.session(1).plan(observe(0)), policy.session(2).plan(observe(0))
    assert np.array_equal(one.action, other.action)
    assert one.action.shape == (8, 14)
    generator = torch.Generator().manual_seed(3)
    state = generator.get_state()
    policy.generate(conditioning_of(2), generator)
    assert torch.equal(generator.get_state(), state)


def test_absent_tokens_have_no_effect(act: MakeAct) -> None:
    policy, conditioning = act().eval(), conditioning_of(2)
    present = torch.tensor([True, False, True, True, False]).expand(2, 5)
    found = policy.generate(ConditioningTokens(conditioning.tokens, present), torch.Generator())
    kept = policy.generate(
        ConditioningTokens(conditioning.tokens[:, present[0]]), torch.Generator()
    )
    torch.testing.assert_close(found, kept, atol=1e-5, rtol=1e-4)
    assert (policy.generate(conditioning, torch.Generator()) - kept).abs().max() > 1e-3


def trained(policy: ActPolicy, conditioning: Tensor, action: Tensor, steps: int) -> ActPolicy:
    """Trains on conditioning tokens (N, tokens, 24) and chunks (N, T, 14), 32 of them at a time."""
    generator, optimizer = (
        torch.Generator().manual_seed(0),
        torch.optim.AdamW(policy.parameters(), 1e-3),
    )
    torch.manual_seed(0)
    mask = torch.ones(32, action.shape[1], dtype=torch.bool)
    for _ in range(steps):
        chosen = torch.randint(len(action), (32,), generator=generator)
        optimizer.zero_grad()
        policy.chunk_loss(ConditioningTokens(conditioning[chosen]), action[chosen], mask).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return policy.eval()


@pytest.mark.slow
def test_act_learns_a_chunk_that_depends_on_the_image(act: MakeAct, make_batch: MakeBatch) -> None:
    """Brightness determines the amplitude of each joint, also in images of other episodes."""
    policy, batch = act().train(), make_batch(1)
    generator = torch.Generator().manual_seed(0)

    def examples(count: int) -> tuple[dict[str, Tensor], Tensor]:
        brightness = torch.rand(count, generator=generator)
        image = (255 * brightness).to(torch.uint8)[:, None, None, None].expand(-1, 32, 32, 3)
        swing = torch.sin(torch.arange(8) / 2)[:, None] * torch.linspace(-1, 1, 14)
        seen = {
            "rgb/overhead": image,
            "joints/position": batch["joints/position"].expand(count, -1),
        }
        return seen, (2 * brightness - 1)[:, None, None] * swing

    optimizer = torch.optim.AdamW(policy.parameters(), 2e-3)
    torch.manual_seed(0)
    for _ in range(120):
        seen, action = examples(16)
        optimizer.zero_grad()
        policy.chunk_loss(
            policy.observation_encoder(seen), action, torch.ones(16, 8, dtype=torch.bool)
        ).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    seen, action = examples(64)
    found = policy.eval().generate(policy.observation_encoder(seen), torch.Generator())
    assert (found - action).abs().mean() < 0.2 * action.abs().mean()


@pytest.mark.slow
def test_of_disagreeing_demonstrations_act_follows_the_majority(act: MakeAct) -> None:
    """Of seven of ten demonstrations ACT returns the median; diffusion draws both modes."""
    way = torch.where(torch.arange(10) < 7, 0.6, -0.6)
    policy = trained(
        act().train(),
        conditioning_of(1).tokens.expand(10, -1, -1),
        way[:, None, None].expand(10, 8, 14),
        100,
    )
    found = policy.generate(conditioning_of(1), torch.Generator())
    assert (found - 0.6).abs().max() < 0.1


def test_prefixes_are_rejected(act: MakeAct) -> None:
    prefix = NormalisedPrefix(torch.zeros(2, 8, 14), torch.ones(8))
    with pytest.raises(
        ValueError,
        match=("supports no action prefix; allowed: DiffusionPolicy, FlowPolicy, Ene"),
    ):
        act().generate(conditioning_of(2), torch.Generator(), prefix)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dim": 30, "heads": 4}, "dim is 30 with 4 heads; allowed: multiples of 8."),
        ({"latent": 0}, r"latent must be an integer of at least 1 \(got 0\)."),
        ({"decoder_layers": 0}, r"decoder_layers must be an integer of at least 1 \(got 0\)."),
        ({"encoder_layers": 0}, r"encoder_layers must be an integer of at least 1 \(got 0\)."),
        ({"kl_weight": -1.0}, r"kl_weight must be a number of at least 0 \(got -1.0\)."),
        ({"chunk": 0}, r"chunk must be an integer of at least 1 \(got 0\)."),
    ],
)
def test_sizes_out_of_range_are_rejected(
    act: MakeAct, wrong: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        act(**wrong)


def test_act_computes_in_bfloat16(act: MakeAct, make_batch: MakeBatch) -> None:
    policy, batch = act(), make_batch(3)
    batch["present/overhead"] = torch.tensor([True, False, True])
    torch.manual_seed(0)
    expected = policy.loss(batch)
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        found = policy.loss(batch)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(expected.item(), rel=0.05)


def test_the_decoder_has_the_given_number_of_layers(act: MakeAct) -> None:
    sizes = {
        layers: sum(p.numel() for p in act(decoder_layers=layers).transformer.decoder.parameters())
        for layers in (1, 3)
    }
    assert sizes[3] == 3 * sizes[1]
    assert isinstance(act().transformer, ActTransformer)
