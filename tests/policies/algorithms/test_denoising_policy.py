"""Samplers of diffusion policies: distribution, levels, and conversion of predictions."""

from collections.abc import Callable, Sequence
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from stringline import ChunkPolicy, ConditioningTokens, DiffusionPolicy
from stringline.policies.algorithms.denoising_policy import (
    Prediction,
    Sampler,
    Spacing,
    clean_chunk,
    target_of,
)

MakePolicy = Callable[..., ChunkPolicy]


MakeBatch = Callable[[int], dict[str, Tensor]]


class GaussianDenoiser(nn.Module):
    """The best prediction for noisy chunks of independent numbers from N(0.3, spread^2)."""

    def __init__(self, scheduler_kept: Tensor, prediction: Prediction, spread: float) -> None:
        super().__init__()
        self.alphas_cumprod, self.spread = scheduler_kept, spread
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
        alphas_cumprod = self.alphas_cumprod[(level * len(self.alphas_cumprod)).round().long()][
            ..., None, None
        ]
        share = (
            alphas_cumprod.sqrt()
            * self.spread**2
            / (alphas_cumprod * self.spread**2 + 1 - alphas_cumprod)
        )
        clean = 0.3 + share * (noisy - alphas_cumprod.sqrt() * 0.3)
        return target_of(
            self.prediction,
            clean,
            (noisy - alphas_cumprod.sqrt() * clean) / (1 - alphas_cumprod).sqrt(),
            alphas_cumprod,
        )


def gaussian_chunks(
    make_policy: MakePolicy,
    sampler: Sampler,
    steps: int,
    prediction: Prediction = "sample",
    spread: float = 0.1,
    *more: str,
) -> Tensor:
    """Draws chunks (500, 8, 14) with the best possible network."""
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
def test_every_prediction_determines_the_clean_chunk(prediction: Prediction) -> None:
    generator = torch.Generator().manual_seed(0)
    clean, noise = torch.randn(2, 5, 3, 8, 14, generator=generator, dtype=torch.float64)
    alphas_cumprod = torch.rand(5, 3, 1, 1, generator=generator, dtype=torch.float64)
    noisy = alphas_cumprod.sqrt() * clean + (1 - alphas_cumprod).sqrt() * noise
    back = clean_chunk(
        prediction, target_of(prediction, clean, noise, alphas_cumprod), noisy, alphas_cumprod
    )
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
def test_chunks_are_free_of_noise_after_any_number_of_steps(
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


@pytest.mark.slow
def test_samplers_that_start_at_an_unsuitable_level_are_rejected(
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
