"""The diffusion policy: chunks of actions denoised from noise, given the memory of an observation.

Chi et al., Diffusion Policy, RSS 2023 (arXiv 2303.04137), with a transformer denoiser over our
memory. Two departures: the network predicts the clean chunk, and the sampler spaces its steps from
the last one (`trailing`, Lin et al., WACV 2024, arXiv 2305.08891): with the usual `leading` spacing
a few-step sampler starts at a noise level that still shows the data.
"""

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from stringline.datasets.contract.arguments import COUNT
from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.algorithms.policy_settings import DenoisingSettings
from stringline.policies.algorithms.samplers import (
    Prediction,
    Sampler,
    Scheduler,
    Spacing,
    check_first_level,
    clean_chunk,
    known,
    make_scheduler,
    next_level,
    ready,
    starting_noise,
    target_of,
)
from stringline.policies.networks.committed import Committed
from stringline.policies.networks.denoiser import Denoiser, Remembered
from stringline.policies.networks.masked import masked_mean
from stringline.policies.observation.observation_encoder import Memory


@dataclass(frozen=True, kw_only=True)
class DiffusionSettings(DenoisingSettings):
    """What is chosen about a diffusion policy.

    Attributes:
        sampling_steps: Steps from noise to data at run time. Diffusers' DDIM counts whole levels
            from one to the next, so with a number that does not divide `noise_levels` it is one
            level off now and then.
        noise_levels: Levels of the squared-cosine schedule (Nichol and Dhariwal, ICML 2021,
            equation 17).
        prediction: What the network says of a noisy chunk: the clean one, the noise, or v; see
            `samplers.target_of`.
        sampler: How chunks are drawn; see `samplers.make_scheduler`.
        spacing: At which levels the sampler steps; see there.
        zero_terminal_snr: Whether the last level is noise alone; see there.
    """

    sampling_steps: int = 10
    noise_levels: int = 100
    prediction: Prediction = "sample"
    sampler: Sampler = "ddim"
    spacing: Spacing = "trailing"
    zero_terminal_snr: bool = False

    def __post_init__(self) -> None:
        """See the base."""
        super().__post_init__()
        known(self.prediction, "prediction", get_args(Prediction))
        COUNT.check(noise_levels=self.noise_levels)
        if self.sampling_steps > self.noise_levels:
            raise ValueError(
                f"sampling_steps is {self.sampling_steps}; allowed: 1 to noise_levels = "
                f"{self.noise_levels}."
            )

    def scheduler(self, reach: float) -> Scheduler:
        """Returns the sampler's schedule for clean chunks of that reach.

        Raises:
            ValueError: A name does not exist.
        """
        return make_scheduler(
            self.sampler,
            levels=self.noise_levels,
            spacing=self.spacing,
            zero_terminal_snr=self.zero_terminal_snr,
            reach=reach,
        )


class DiffusionPolicy(ChunkPolicy):
    """Denoising diffusion over normalised action chunks."""

    denoiser: Denoiser

    def __init__(
        self, settings: DiffusionSettings, contract: Contract, statistics: Statistics
    ) -> None:
        """Builds the policy; see `ChunkPolicy`.

        Raises:
            ValueError: A size does not divide, or the network would have to predict the noise where
                there is nothing else.
        """
        super().__init__(settings, contract, statistics)
        self.denoiser = settings.network(
            settings.denoiser, action_dim=self.action_dim, memory_dim=self.memory.dim
        )
        self.sampling_steps = settings.sampling_steps
        self.draws = settings.draws
        self.prediction: Prediction = settings.prediction
        self.scheduler = settings.scheduler(self.action_range.reach)
        first = ready(self.scheduler, self.sampling_steps).timesteps[0]
        check_first_level(self.prediction, float(self._kept(first).sqrt()), settings.spacing)

    def chunk_loss(self, memory: Memory, action: Tensor, mask: Tensor) -> Tensor:
        """Mean squared error of the prediction over the actions inside the episode."""
        clean = action[:, None].expand(-1, self.draws, -1, -1)
        noise = torch.randn_like(clean)
        step = torch.randint(self._levels, clean.shape[:2], device=clean.device)
        kept = self._kept(step)[..., None, None]
        remembered = self.denoiser.remember(memory.tokens)
        predicted = self._predict(
            kept.sqrt() * clean + (1 - kept).sqrt() * noise, step, remembered, memory.present
        )
        return masked_mean((predicted - target_of(self.prediction, clean, noise, kept)) ** 2, mask)

    def generate(
        self, memory: Memory, generator: torch.Generator, committed: Committed | None = None
    ) -> Tensor:
        """Runs the sampler; see `ChunkPolicy.generate`.

        What is committed is inpainted: at every step the predicted clean chunk is moved to it, and
        with it the noisy chunk of the next level, so the free actions are denoised beside the
        decided ones (Lugmayr et al., RePaint, CVPR 2022, section 4.1, without its resampling).
        Black, Galliker and Levine (2025, arXiv 2506.07339, equation 2) send the gradient of the
        mismatch through the network instead, which also moves the free actions directly, and costs
        a backward pass per step.
        """
        scheduler = ready(
            self.scheduler, self.sampling_steps
        )  # Several threads may ask one policy.
        chunk = self._start(memory, scheduler.timesteps[0], generator, committed)
        remembered = self.denoiser.remember(memory.tokens)
        for step in scheduler.timesteps:
            clean = self._clean(chunk, step, remembered, memory.present)
            clean = clean if committed is None else committed.pull(clean)
            chunk = next_level(
                scheduler, clean, step, chunk, reach=self.action_range.reach, generator=generator
            )
        return (chunk if committed is None else committed.settle(chunk))[:, 0]

    def _start(
        self, memory: Memory, step: Tensor, generator: torch.Generator, committed: Committed | None
    ) -> Tensor:
        """Returns the chunk at the first step's level, (B, 1, T, A): noise, and what is committed with noise."""
        noise = starting_noise(memory.tokens, 1, (self.chunk, self.action_dim), generator)
        if committed is None:
            return noise
        committed.fit(noise[:, 0].shape)
        kept = self._kept(step)
        return committed.pull(
            noise, kept.sqrt() * committed.action[:, None] + (1 - kept).sqrt() * noise
        )

    def _clean(
        self, noisy: Tensor, step: Tensor, remembered: Remembered, present: Tensor | None
    ) -> Tensor:
        """Returns the clean chunk as predicted at one level, (B, K, T, A)."""
        predicted = self._predict(
            noisy, step.to(noisy.device).expand(noisy.shape[:2]), remembered, present
        )
        return clean_chunk(self.prediction, predicted, noisy, self._kept(step).to(noisy.device))

    def _predict(
        self, noisy: Tensor, step: Tensor, remembered: Remembered, present: Tensor | None
    ) -> Tensor:
        return self.denoiser(noisy, step.to(noisy.dtype) / self._levels, remembered, present).to(
            noisy.dtype
        )

    def _kept(self, step: Tensor) -> Tensor:
        """Returns the share of the variance that is signal at each of these levels."""
        kept: Tensor = self.scheduler.alphas_cumprod.to(step.device)[step]
        return kept

    @property
    def _levels(self) -> int:
        return len(self.scheduler.alphas_cumprod)
