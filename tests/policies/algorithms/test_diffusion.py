"""The diffusion policy: loss, sampling, sessions and checkpoints."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from hydra import compose, initialize_config_module
from torch import Tensor, nn

from stringline.datasets.contract.contract import Array
from stringline.encoders.training.checkpoint import load_description
from stringline.policies.algorithms.chunk_policy import ChunkPolicy, masked_mean
from stringline.policies.algorithms.denoising_policy import (
    make_scheduler,
    with_timesteps,
)
from stringline.policies.algorithms.diffusion import DiffusionPolicy, DiffusionSettings
from stringline.policies.checkpoints.load import (
    SHIPPED,
)

MakePolicy = Callable[..., ChunkPolicy]
MakeBatch = Callable[[int], dict[str, Tensor]]
Observe = Callable[[int], dict[str, Array]]


def test_sampling_starts_at_a_level_without_signal(make_policy: MakePolicy) -> None:
    policy = make_policy()
    assert isinstance(policy, DiffusionPolicy)
    policy.scheduler.set_timesteps(policy.sampling_steps)
    first = policy.scheduler.timesteps[0]
    assert first == 99
    assert policy.scheduler.alphas_cumprod[first].sqrt() < 1e-3


def test_draws_share_the_conditioning_tokens(
    make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    """K samples together are the K samples one by one."""
    policy = make_policy()
    assert isinstance(policy, DiffusionPolicy)
    conditioning = policy.observation_encoder(make_batch(2))
    precomputed = policy.precompute(policy.denoiser, conditioning)
    noisy, level = torch.randn(2, 3, 8, 14), torch.rand(2, 3)
    together = policy.denoiser(noisy, level, precomputed)
    for draw in range(3):
        alone = policy.denoiser(noisy[:, draw : draw + 1], level[:, draw : draw + 1], precomputed)
        torch.testing.assert_close(together[:, draw : draw + 1], alone, atol=1e-5, rtol=1e-4)


def test_an_invalid_observation_is_rejected(make_policy: MakePolicy, observe: Observe) -> None:
    session = make_policy().session(0)
    wrong = observe(0) | {"joints/position": np.zeros(7, np.float32)}
    with pytest.raises(ValueError, match=r"joints/position has shape \(7,\); allowed: \(14,\)"):
        session.plan(wrong)


@pytest.mark.slow
def test_the_policy_learns_the_position_of_the_target(
    make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    """A chunk that depends on the offset of an object in the image is learned."""
    policy, batch = make_policy().train(), make_batch(4)
    optimizer = torch.optim.AdamW(policy.parameters(), 3e-3)
    losses = []
    for step in range(60):
        torch.manual_seed(step)
        loss = policy.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert np.mean(losses[-5:]) < 0.3 * np.mean(losses[:5])


def test_the_default_is_unchanged(make_policy: MakePolicy, make_batch: MakeBatch) -> None:
    """To the bit: loss and chunks of the version that trained the shipped checkpoint."""
    policy, batch = make_policy("policy.sampling_steps=8"), make_batch(3)
    assert isinstance(policy, DiffusionPolicy)
    batch["action_mask"][1, 5:] = False
    conditioning, action = (
        policy.observation_encoder(batch),
        policy.action_range.normalise(batch["action"]),
    )
    scheduler = DDIMScheduler(
        num_train_timesteps=100,
        beta_schedule="squaredcos_cap_v2",
        prediction_type="sample",
        timestep_spacing="trailing",
        clip_sample=True,
        clip_sample_range=policy.action_range.reach,
    )
    torch.manual_seed(3)
    clean = action[:, None].expand(-1, 2, -1, -1)
    noise = torch.randn_like(clean)
    step = torch.randint(100, clean.shape[:2])
    alphas_cumprod = scheduler.alphas_cumprod[step][..., None, None]
    precomputed = policy.precompute(policy.denoiser, conditioning)
    predicted = policy.denoiser(
        alphas_cumprod.sqrt() * clean + (1 - alphas_cumprod).sqrt() * noise,
        step.float() / 100,
        precomputed,
        conditioning.present,
    )
    weight = batch["action_mask"][:, None, :, None].float()
    loss = ((predicted - clean) ** 2 * weight).sum() / (weight.sum() * 2 * 14).clamp(min=1)
    torch.manual_seed(3)
    assert torch.equal(policy.chunk_loss(conditioning, action, batch["action_mask"]), loss)

    chunk = torch.randn((3, 1, 8, 14), generator=torch.Generator().manual_seed(5))
    scheduler.set_timesteps(8)
    for step in scheduler.timesteps:
        level = step.expand(3, 1).float() / 100
        predicted = policy.denoiser(chunk, level, precomputed, conditioning.present)
        chunk = scheduler.step(predicted, int(step), chunk, return_dict=False)[0]
    assert torch.equal(policy.generate(conditioning, torch.Generator().manual_seed(5)), chunk[:, 0])


def test_the_default_number_of_steps_divides_the_levels() -> None:
    """DDIM steps back by levels // steps: with 8 of 100 it would be at another level."""
    with initialize_config_module("stringline.configs", version_base="1.3"):
        shipped = compose(overrides=["+policy=diffusion"]).policy
    default = DiffusionSettings.sampling_steps
    assert (shipped.sampling_steps, shipped.noise_levels) == (
        default,
        DiffusionSettings.noise_levels,
    )
    for steps, lands in ((default, True), (8, False)):
        sampler = make_scheduler(
            "ddim",
            levels=shipped.noise_levels,
            spacing="trailing",
            zero_terminal_snr=False,
            reach=1.0,
        )
        strides = -with_timesteps(sampler, steps).timesteps.diff()
        assert bool((strides == shipped.noise_levels // steps).all()) == lands
    assert load_description(SHIPPED / "hand_over_banana")["model"]["sampling_steps"] == 8, (
        "checkpoints keep their own"
    )


def test_another_denoiser_replaces_the_transformer(
    make_policy: MakePolicy, configuration: Callable[..., dict[str, object]], make_batch: MakeBatch
) -> None:
    factory = (
        "+policy.denoiser={_target_: stringline.TransformerDenoiser, _partial_: true, dim: 16, "
        "depth: 2}"
    )
    policy = make_policy(factory)
    assert isinstance(policy, DiffusionPolicy)
    assert isinstance(policy.denoiser, nn.Module)
    assert policy.denoiser.get_parameter("position").shape == (4, 16)
    assert policy.predict(make_batch(1), torch.Generator().manual_seed(0)).shape == (1, 8, 14)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("policy.prediction=noise", r"no prediction 'noise'\..*Allowed: epsilon, sample, v"),
        ("policy.sampler=dpm", r"no sampler 'dpm'\. Did you mean 'ddpm'"),
        ("policy.spacing=linspace", r"no timestep spacing 'linspace'.*Allowed: leading, trailing"),
        ("policy.sampling_steps=101", r"sampling_steps is 101; allowed: 1 to noise_levels = 100"),
        ("policy.noise_samples=0", r"noise_samples must be an integer of at least 1 \(got 0\)"),
    ],
)
def test_invalid_settings_are_rejected(
    make_policy: MakePolicy, override: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_policy(override)


def test_errors_without_noise_samples_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"error has shape \(2, 8, 14\); .*error\[:, None\]"):
        masked_mean(torch.zeros(2, 8, 14), torch.ones(2, 8))


def test_a_mask_of_another_shape_is_rejected() -> None:
    with pytest.raises(
        ValueError, match=r"mask has shape \(2, 7\); allowed for errors \(2, 3, 8, 14\): \(2, 8\)"
    ):
        masked_mean(torch.zeros(2, 3, 8, 14), torch.ones(2, 7))
