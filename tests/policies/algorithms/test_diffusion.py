"""The diffusion policy: loss, sampling, sessions and checkpoints."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from hydra import compose, initialize_config_module
from torch import Tensor, nn

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.encoders.training.checkpoint import load_description
from stringline.policies.algorithms.chunk_policy import ChunkPolicy, masked_mean
from stringline.policies.algorithms.diffusion import DiffusionPolicy, DiffusionSettings
from stringline.policies.algorithms.samplers import (
    Prediction,
    Sampler,
    Spacing,
    clean_chunk,
    make_scheduler,
    ready,
    target_of,
)
from stringline.policies.checkpoints.load import (
    SHIPPED,
    checkpoint_digest,
    load_policy,
    save_policy,
)
from stringline.policies.observation.interfaces import ConditioningTokens
from stringline.policies.probes.localisation import LocalisationProbe

MakePolicy = Callable[..., ChunkPolicy]
MakeBatch = Callable[[int], dict[str, Tensor]]
Observe = Callable[[int], dict[str, Array]]


def test_sampling_starts_where_no_data_is_left(make_policy: MakePolicy) -> None:
    policy = make_policy()
    assert isinstance(policy, DiffusionPolicy)
    policy.scheduler.set_timesteps(policy.sampling_steps)
    first = policy.scheduler.timesteps[0]
    assert first == 99
    assert policy.scheduler.alphas_cumprod[first].sqrt() < 1e-3


def test_actions_beyond_the_end_do_not_count(
    make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    policy, batch = make_policy(), make_batch(3)
    batch["action_mask"][:, 5:] = False
    changed = dict(batch)
    changed["action"] = torch.where(
        batch["action_mask"][..., None], batch["action"], torch.tensor(0.3)
    )
    batch["action"] = torch.where(
        batch["action_mask"][..., None], batch["action"], torch.tensor(0.3)
    )
    torch.manual_seed(1)
    one = policy.loss(batch)
    torch.manual_seed(1)
    assert torch.equal(one, policy.loss(changed))
    fewer = dict(batch, action_mask=torch.zeros_like(batch["action_mask"]))
    assert policy.loss(fewer) == 0


def test_draws_share_the_memory(make_policy: MakePolicy, make_batch: MakeBatch) -> None:
    """K draws together are the K draws one by one."""
    policy = make_policy()
    assert isinstance(policy, DiffusionPolicy)
    conditioning = policy.observation_encoder(make_batch(2))
    precomputed = policy.denoiser.precompute(conditioning.tokens)
    noisy, level = torch.randn(2, 3, 8, 14), torch.rand(2, 3)
    together = policy.denoiser(noisy, level, precomputed)
    for draw in range(3):
        alone = policy.denoiser(noisy[:, draw : draw + 1], level[:, draw : draw + 1], precomputed)
        torch.testing.assert_close(together[:, draw : draw + 1], alone, atol=1e-5, rtol=1e-4)


def test_a_session_depends_on_its_seed_and_observations_alone(
    make_policy: MakePolicy, observe: Observe
) -> None:
    policy = make_policy()
    one, other, third = policy.session(4), policy.session(4), policy.session(5)
    first = one.plan(observe(0))
    policy.session(9).plan(observe(3))
    torch.manual_seed(77)
    assert np.array_equal(first.action, other.plan(observe(0)).action)
    assert np.array_equal(one.plan(observe(1)).action, other.plan(observe(1)).action)
    assert not np.array_equal(first.action, third.plan(observe(0)).action)


def test_chunks_start_at_the_time_of_the_observation(
    make_policy: MakePolicy, observe: Observe
) -> None:
    chunk = make_policy().session(0).plan(observe(2))
    assert chunk.time[0] == 3.0
    assert np.allclose(np.diff(chunk.time), 0.02)
    assert chunk.action.shape == (8, 14)
    assert chunk.action.dtype == np.float32


def test_predictions_stay_within_the_range_of_the_data(
    make_policy: MakePolicy, observe: Observe
) -> None:
    policy = make_policy()
    action = torch.from_numpy(policy.session(0).plan(observe(0)).action)
    assert (action >= policy.action_range.low - 1e-4).all()
    assert (action <= policy.action_range.high + 1e-4).all()


def test_an_observation_that_does_not_fit_is_refused(
    make_policy: MakePolicy, observe: Observe
) -> None:
    session = make_policy().session(0)
    lacking = observe(0)
    del lacking["depth/overhead"]
    with pytest.raises(ValueError, match=r"no observation key 'depth/overhead'"):
        session.plan(lacking)
    wrong = observe(0) | {"joints/position": np.zeros(7, np.float32)}
    with pytest.raises(ValueError, match=r"joints/position has shape \(7,\); allowed: \(14,\)"):
        session.plan(wrong)


def test_a_checkpoint_gives_the_same_policy(
    tmp_path: Path,
    make_policy: MakePolicy,
    observe: Observe,
    configuration: Callable[..., dict[str, object]],
) -> None:
    policy = make_policy()
    save_policy(tmp_path / "c", policy, configuration(), {"steps": 3})
    again = load_policy(tmp_path / "c")
    assert again.contract == policy.contract
    assert np.array_equal(
        policy.session(1).plan(observe(0)).action, again.session(1).plan(observe(0)).action
    )


def test_the_probe_is_one_for_a_seer_and_about_nothing_for_a_guesser(
    make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    policy, batch = make_policy(), make_batch(6)
    probe = LocalisationProbe(batch)
    seen = policy.predict(batch, torch.Generator().manual_seed(0))
    assert LocalisationProbe(batch | {"action": seen})(policy)["localisation"] == pytest.approx(1.0)
    assert probe(policy)["localisation"] < 0.5
    with pytest.raises(ValueError, match=r"at least 3 held-out episodes; got 2"):
        LocalisationProbe(make_batch(2))


def test_the_policy_learns_where_the_target_is(
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


def test_checkpoints_build_networks_only(
    tmp_path: Path, make_policy: MakePolicy, configuration: Callable[..., dict[str, object]]
) -> None:
    save_policy(tmp_path / "c", make_policy(), configuration(), {})
    file = tmp_path / "c" / "checkpoint.yaml"
    text = file.read_text()
    refusals = {
        "stringline.sim.rollout.workers.Worker": "no public name",
        "stringline.Trainer": "not a class derived from Module",
    }
    for target, refusal in refusals.items():
        file.write_text(text.replace("stringline.MetricPlaces", target))
        with pytest.raises(ValueError, match=refusal):
            load_policy(tmp_path / "c")


def test_every_checkpoint_has_its_own_digest(
    tmp_path: Path, make_policy: MakePolicy, configuration: Callable[..., dict[str, object]]
) -> None:
    policy = make_policy()
    save_policy(tmp_path / "c", policy, configuration(), {})
    before = checkpoint_digest(tmp_path / "c")
    save_policy(tmp_path / "c", policy, configuration(), {})
    assert checkpoint_digest(tmp_path / "c") == before
    with torch.no_grad():
        next(policy.parameters()).add_(1e-6)
    save_policy(tmp_path / "c", policy, configuration(), {})
    assert checkpoint_digest(tmp_path / "c") != before


def test_a_checkpoint_that_does_not_exist_is_answered_with_those_that_ship() -> None:
    with pytest.raises(
        ValueError,
        match=(
            r"no checkpoint folder or shipped checkpoint 'hand_over_bannana'. Did you mean "
            r"'hand_over_banana'"
        ),
    ):
        load_policy("hand_over_bannana")


def test_the_shipped_checkpoint_sees_and_acts() -> None:
    """It is small enough to ship, fits ALOHA, and plans within its limits."""
    policy = load_policy("hand_over_banana")
    size = sum(file.stat().st_size for file in (SHIPPED / "hand_over_banana").iterdir())
    assert size <= 10_000_000
    assert policy.contract.incompatibilities(ALOHA.contract(policy.contract.cameras, 50.0)) == []
    assert (policy.action_range.low.numpy() >= ALOHA.lower - 0.05).all()
    assert (policy.action_range.high.numpy() <= ALOHA.upper + 0.05).all()


class GaussianDenoiser(nn.Module):
    """The best prediction for noisy chunks of independent numbers from N(0.3, spread^2)."""

    def __init__(self, scheduler_kept: Tensor, prediction: Prediction, spread: float) -> None:
        super().__init__()
        self.kept, self.spread = scheduler_kept, spread
        self.prediction: Prediction = prediction

    def precompute(self, conditioning: Tensor) -> Sequence[tuple[Tensor, ...]]:
        return []

    def forward(
        self,
        noisy: Tensor,
        level: Tensor,
        precomputed: Sequence[tuple[Tensor, ...]],
        present: Tensor | None = None,
    ) -> Tensor:
        kept = self.kept[(level * len(self.kept)).round().long()][..., None, None]
        share = kept.sqrt() * self.spread**2 / (kept * self.spread**2 + 1 - kept)
        clean = 0.3 + share * (noisy - kept.sqrt() * 0.3)
        return target_of(
            self.prediction, clean, (noisy - kept.sqrt() * clean) / (1 - kept).sqrt(), kept
        )


def gaussian_chunks(
    make_policy: MakePolicy,
    sampler: Sampler,
    steps: int,
    prediction: Prediction = "sample",
    spread: float = 0.1,
    *more: str,
) -> Tensor:
    """Draws chunks (500, 8, 14) with the best network there is."""
    policy = make_policy(
        f"policy.sampler={sampler}",
        f"policy.prediction={prediction}",
        f"policy.sampling_steps={steps}",
        *more,
    )
    assert isinstance(policy, DiffusionPolicy)
    policy.denoiser = GaussianDenoiser(policy.scheduler.alphas_cumprod, prediction, spread)
    return policy.generate(
        ConditioningTokens(torch.zeros(500, 1, 32)), torch.Generator().manual_seed(0)
    )


@pytest.mark.parametrize("prediction", get_args(Prediction))
def test_a_prediction_stands_for_the_clean_chunk(prediction: Prediction) -> None:
    generator = torch.Generator().manual_seed(0)
    clean, noise = torch.randn(2, 5, 3, 8, 14, generator=generator, dtype=torch.float64)
    kept = torch.rand(5, 3, 1, 1, generator=generator, dtype=torch.float64)
    noisy = kept.sqrt() * clean + (1 - kept).sqrt() * noise
    back = clean_chunk(prediction, target_of(prediction, clean, noise, kept), noisy, kept)
    torch.testing.assert_close(back, clean, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("sampler", "spacing"),
    [
        ("ddim", "trailing"),
        ("ddpm", "trailing"),
        ("dpm_solver", "trailing"),
        ("ddim", "leading"),
        ("ddpm", "leading"),
    ],
)
@pytest.mark.parametrize("prediction", ["sample", "v"])
def test_every_sampler_draws_the_distribution_of_the_data(
    make_policy: MakePolicy, sampler: Sampler, spacing: Spacing, prediction: Prediction
) -> None:
    chunks = gaussian_chunks(make_policy, sampler, 50, prediction, 0.2, f"policy.spacing={spacing}")
    assert abs(chunks.mean().item() - 0.3) < 0.005
    # The smaller of DDPM's two variances is that for data without a spread (Ho et al., 2020,
    # section 3.2), so some is lost.
    assert chunks.std().item() == pytest.approx(0.2, rel=0.15 if sampler == "ddpm" else 0.1)


@pytest.mark.parametrize("sampler", get_args(Sampler))
@pytest.mark.parametrize("steps", [1, 2, 6, 7, 60, 100])
def test_no_noise_is_left_after_any_number_of_steps(
    make_policy: MakePolicy, sampler: Sampler, steps: int
) -> None:
    """Diffusers' DDIM would end one level early for some of them, such as 6 and 60 of 100."""
    chunks = gaussian_chunks(make_policy, sampler, steps, spread=0.0)
    torch.testing.assert_close(chunks, torch.full_like(chunks, 0.3), rtol=0, atol=1e-5)


@pytest.mark.parametrize("sampler", get_args(Sampler))
def test_zero_terminal_snr_starts_from_noise_alone(
    make_policy: MakePolicy, make_batch: MakeBatch, sampler: Sampler
) -> None:
    options = ("policy.zero_terminal_snr=true", "policy.prediction=v", f"policy.sampler={sampler}")
    policy, batch = make_policy(*options), make_batch(2)
    assert isinstance(policy, DiffusionPolicy)
    assert policy.scheduler.alphas_cumprod[-1] <= 1e-7
    assert policy.loss(batch).isfinite()
    assert policy.predict(batch, torch.Generator().manual_seed(0)).isfinite().all()
    chunks = gaussian_chunks(make_policy, sampler, 20, "v", 0.0, "policy.zero_terminal_snr=true")
    torch.testing.assert_close(chunks, torch.full_like(chunks, 0.3), rtol=0, atol=1e-4)


def test_samplers_that_start_at_the_wrong_level_are_refused(
    make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    with pytest.raises(
        ValueError,
        match=(
            r"'epsilon'.*trailing.*keeps 4\.9e-04.*allowed.*spacing=leading.*prediction=sample or "
            r"v"
        ),
    ):
        make_policy("policy.prediction=epsilon")
    with pytest.raises(ValueError, match=r"keeps 4\.9e-04 of the signal"):
        make_policy(
            "policy.prediction=epsilon", "policy.spacing=leading", "policy.sampling_steps=100"
        )
    for sampler, steps in (("ddim", 60), ("dpm_solver", 50), ("ddpm", 1)):
        with pytest.raises(
            ValueError,
            match=r"from pure noise \(leading spacing\) at a level that keeps .* at most 0.5",
        ):
            make_policy(
                f"policy.sampler={sampler}",
                "policy.spacing=leading",
                f"policy.sampling_steps={steps}",
            )
    policy = make_policy("policy.prediction=epsilon", "policy.spacing=leading")
    assert policy.loss(make_batch(2)).isfinite()
    chunks = gaussian_chunks(make_policy, "ddim", 20, "epsilon", 0.1, "policy.spacing=leading")
    assert abs(chunks.mean().item() - 0.3) < 0.02


def test_the_default_is_what_it_was(make_policy: MakePolicy, make_batch: MakeBatch) -> None:
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
    kept = scheduler.alphas_cumprod[step][..., None, None]
    precomputed = policy.denoiser.precompute(conditioning.tokens)
    predicted = policy.denoiser(
        kept.sqrt() * clean + (1 - kept).sqrt() * noise, step.float() / 100, precomputed
    )
    weight = batch["action_mask"][:, None, :, None].float()
    loss = ((predicted - clean) ** 2 * weight).sum() / (weight.sum() * 2 * 14).clamp(min=1)
    torch.manual_seed(3)
    assert torch.equal(policy.chunk_loss(conditioning, action, batch["action_mask"]), loss)

    chunk = torch.randn((3, 1, 8, 14), generator=torch.Generator().manual_seed(5))
    scheduler.set_timesteps(8)
    for step in scheduler.timesteps:
        predicted = policy.denoiser(chunk, step.expand(3, 1).float() / 100, precomputed)
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
        strides = -ready(sampler, steps).timesteps.diff()
        assert bool((strides == shipped.noise_levels // steps).all()) == lands
    assert load_description(SHIPPED / "hand_over_banana")["model"]["sampling_steps"] == 8, (
        "checkpoints keep their own"
    )


def test_another_denoiser_takes_the_place_of_the_transformer(
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
        ("policy.draws=0", r"draws is 0; allowed: whole numbers 1 and above"),
    ],
)
def test_what_cannot_be_is_refused(make_policy: MakePolicy, override: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_policy(override)


def test_a_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"mask has shape \(2, 7\); allowed for errors \(2, 3, 8, 14\): \(2, 8\)"
    ):
        masked_mean(torch.zeros(2, 3, 8, 14), torch.ones(2, 7))
