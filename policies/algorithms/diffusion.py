"""The diffusion policy: chunks of actions denoised from noise, conditioned on an observation.

Chi et al., Diffusion Policy, RSS 2023 (arXiv 2303.04137), with a transformer denoiser over the
conditioning tokens. Two departures: the network predicts the clean chunk, and the sampler spaces
its steps from the last one (`trailing`, Lin et al., WACV 2024, arXiv 2305.08891): with the usual
`leading` spacing a few-step sampler starts at a noise level that still contains signal.
"""

import math
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from stringline.datasets.contract.argument_checks import COUNT
from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.algorithms.chunk_policy import DenoisingSettings, masked_mean
from stringline.policies.algorithms.denoising_policy import (
    DenoisingPolicy,
    Prediction,
    Sampler,
    Scheduler,
    Spacing,
    check_first_level,
    check_name,
    clean_chunk,
    make_scheduler,
    next_level,
    starting_noise,
    target_of,
    with_timesteps,
)
from stringline.policies.algorithms.learned_policy import Generators
from stringline.policies.networks.denoiser import Precomputed
from stringline.policies.networks.inputs import NormalisedPrefix
from stringline.policies.observation.interfaces import ConditioningTokens


@dataclass(frozen=True, kw_only=True)
class DiffusionSettings(DenoisingSettings):
    """Settings of a diffusion policy.

    Attributes:
        sampling_steps: Steps from noise to data at run time. Diffusers' DDIM counts integer levels,
            so a number that does not divide `noise_levels` is off by one level at some steps.
        noise_levels: Levels of the squared-cosine schedule (Nichol and Dhariwal, ICML 2021,
            equation 17).
        prediction: Output of the network: sample (the clean chunk), v, or epsilon (noise), with
            spacing=leading.
        sampler: Sampler at run time: ddim, ddpm or dpm_solver.
        spacing: Levels of the sampling steps: trailing begins at the last level, leading one step
            before it.
        zero_terminal_snr: If True, the levels are rescaled so that the last one is pure noise.
    """

    sampling_steps: int = 10
    noise_levels: int = 100
    prediction: Prediction = "sample"
    sampler: Sampler = "ddim"
    spacing: Spacing = "trailing"
    zero_terminal_snr: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.prediction, "prediction", get_args(Prediction))
        COUNT.check(noise_levels=self.noise_levels)
        if self.sampling_steps > self.noise_levels:
            raise ValueError(
                f"sampling_steps is {self.sampling_steps}; allowed: 1 to noise_levels = "
                f"{self.noise_levels}."
            )

    def scheduler(self, reach: float) -> Scheduler:
        """Returns the scheduler of the sampler for clean chunks of that reach."""
        return make_scheduler(
            self.sampler,
            levels=self.noise_levels,
            spacing=self.spacing,
            zero_terminal_snr=self.zero_terminal_snr,
            reach=reach,
        )


class DiffusionPolicy(DenoisingPolicy):
    """Denoising diffusion over normalised action chunks."""

    def __init__(
        self, settings: DiffusionSettings, contract: Contract, statistics: Statistics
    ) -> None:
        super().__init__(settings, contract, statistics)
        self.prediction: Prediction = settings.prediction
        # Chunks beside a posture are clipped before the sampler's steps, by their fitted reach.
        reach = self.reach
        self.scheduler = settings.scheduler(math.inf if isinstance(reach, Tensor) else reach)
        first = with_timesteps(self.scheduler, self.sampling_steps).timesteps[0]
        check_first_level(
            self.prediction, float(self._alphas_cumprod(first).sqrt()), settings.spacing
        )

    def chunk_loss(self, conditioning: ConditioningTokens, action: Tensor, mask: Tensor) -> Tensor:
        """Returns the mean squared error of the prediction over the actions inside the episode."""
        clean = action[:, None].expand(-1, self.noise_samples, -1, -1)
        noise = self.noise(torch.randn_like(clean))
        step = torch.randint(self._levels, clean.shape[:2], device=clean.device)
        alphas_cumprod = self._alphas_cumprod(step)[..., None, None]
        precomputed = self.precompute(self.denoiser, conditioning)
        predicted = self._predict(
            alphas_cumprod.sqrt() * clean + (1 - alphas_cumprod).sqrt() * noise,
            step,
            precomputed,
            conditioning.present,
        )
        return masked_mean(
            (predicted - target_of(self.prediction, clean, noise, alphas_cumprod)) ** 2, mask
        )

    def generate(
        self,
        conditioning: ConditioningTokens,
        generator: Generators,
        prefix: NormalisedPrefix | None = None,
    ) -> Tensor:
        """Runs the sampler; see `ChunkPolicy.generate`.

        A prefix is inpainted: at every step the predicted clean chunk is moved to it, and with it
        the noisy chunk of the next level, so the free actions are denoised beside the fixed ones
        (Lugmayr et al., RePaint, CVPR 2022, section 4.1, without its resampling). Black, Galliker
        and Levine (2025, arXiv 2506.07339, equation 2) send the gradient of the mismatch through
        the network instead, which also moves the free actions directly, and costs a backward pass
        per step.
        """
        # A copy, since several threads may use one policy.
        scheduler = with_timesteps(self.scheduler, self.sampling_steps)
        chunk = self._start(conditioning, scheduler.timesteps[0], generator, prefix)
        precomputed = self.precompute(self.denoiser, conditioning)
        for step in scheduler.timesteps:
            clean = self._clean(chunk, step, precomputed, conditioning.present)
            clean = self.follow(clean, prefix)
            chunk = next_level(scheduler, clean, step, chunk, reach=self.reach, generator=generator)
        return (chunk if prefix is None else prefix.enforce(chunk))[:, 0]

    def _start(
        self,
        conditioning: ConditioningTokens,
        step: Tensor,
        generator: Generators,
        prefix: NormalisedPrefix | None,
    ) -> Tensor:
        """Returns the chunk at the first step's level, (B, 1, T, A): noise and the noisy prefix."""
        noise = starting_noise(conditioning.tokens, 1, (self.chunk, self.action_dim), generator)
        noise = self.noise(noise)
        if prefix is None:
            return noise
        prefix.check_shape(noise[:, 0].shape)
        alphas_cumprod = self._alphas_cumprod(step)
        return prefix.blend(
            noise,
            alphas_cumprod.sqrt() * prefix.action[:, None] + (1 - alphas_cumprod).sqrt() * noise,
        )

    def _clean(
        self, noisy: Tensor, step: Tensor, precomputed: Precomputed, present: Tensor | None
    ) -> Tensor:
        """Returns the clean chunk as predicted at one level, (B, K, T, A)."""
        predicted = self._predict(
            noisy, step.to(noisy.device).expand(noisy.shape[:2]), precomputed, present
        )
        return clean_chunk(
            self.prediction, predicted, noisy, self._alphas_cumprod(step).to(noisy.device)
        )

    def _predict(
        self, noisy: Tensor, step: Tensor, precomputed: Precomputed, present: Tensor | None
    ) -> Tensor:
        level = step.to(noisy.dtype) / self._levels
        return self.denoised(self.denoiser, noisy, level, precomputed, present)

    def _alphas_cumprod(self, step: Tensor) -> Tensor:
        """Returns the share of the variance that is signal at these levels."""
        # Without waiting for the device: a training step has no other copy from the host.
        alphas_cumprod: Tensor = self.scheduler.alphas_cumprod.to(step.device, non_blocking=True)[
            step
        ]
        return alphas_cumprod

    @property
    def _levels(self) -> int:
        return len(self.scheduler.alphas_cumprod)
