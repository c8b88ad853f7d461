"""The diffusion policy: chunks of actions denoised from noise, given the memory of an observation.

Chi et al., Diffusion Policy, RSS 2023 (arXiv 2303.04137), with a transformer denoiser over our memory. Two departures:
the network predicts the clean chunk, and the sampler spaces its steps from the last one (`trailing`, Lin et al., WACV 2024,
arXiv 2305.08891): with the usual `leading` spacing a few-step sampler starts at a noise level that still shows the data.
"""

import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from torch import Tensor

from stringline.datasets.contract import Contract
from stringline.datasets.statistics import Statistics
from stringline.policies.chunk_policy import ChunkPolicy
from stringline.policies.denoiser import TransformerDenoiser
from stringline.policies.memory import Memory, MemoryRecipe
from stringline.policies.normaliser import MinMaxNormaliser, NormaliserRecipe


class DiffusionPolicy(ChunkPolicy):
    """Denoising diffusion over normalised action chunks."""

    def __init__(
        self,
        *,
        contract: Contract,
        statistics: Statistics,
        memory: MemoryRecipe,
        chunk: int = 48,
        dim: int = 128,
        depth: int = 3,
        heads: int = 4,
        noise_levels: int = 100,
        sampling_steps: int = 8,
        draws: int = 4,
        normalisation: NormaliserRecipe = MinMaxNormaliser,
    ) -> None:
        """Builds the policy.

        Args:
            contract: What it observes and how it acts.
            statistics: Of the training data.
            memory: Makes the observation encoder for that contract.
            chunk: Actions per chunk.
            dim: Width of the denoiser.
            depth: Blocks of the denoiser.
            heads: Attention heads of the denoiser.
            noise_levels: Levels of the squared-cosine schedule (Nichol and Dhariwal, ICML 2021, equation 17).
            sampling_steps: DDIM steps at run time (Song et al., ICLR 2021, equation 12, without noise).
            draws: Noise draws per observation and training step; the observation is encoded once for all of them.
            normalisation: How actions are brought to the range of the network.

        Raises:
            ValueError: There are more sampling steps than noise levels, or a size does not divide.
        """
        super().__init__(contract=contract, statistics=statistics, memory=memory, chunk=chunk, normalisation=normalisation)
        if not 1 <= sampling_steps <= noise_levels:
            raise ValueError(f"sampling_steps is {sampling_steps}; allowed: 1 to noise_levels = {noise_levels}.")
        self.denoiser = TransformerDenoiser(
            action_dim=len(contract.action), chunk=chunk, memory_dim=self.memory.dim, dim=dim, depth=depth, heads=heads
        )
        self.sampling_steps = sampling_steps
        self.draws = draws
        self.scheduler = DDIMScheduler(
            num_train_timesteps=noise_levels,
            beta_schedule="squaredcos_cap_v2",
            prediction_type="sample",
            timestep_spacing="trailing",
            clip_sample=True,
            clip_sample_range=self.action_range.reach,
        )

    def chunk_loss(self, memory: Memory, action: Tensor, mask: Tensor) -> Tensor:
        """Mean squared error of the predicted clean chunk over the actions inside the episode."""
        clean = action[:, None].expand(-1, self.draws, -1, -1)
        noise = torch.randn_like(clean)
        step = torch.randint(self._levels, clean.shape[:2], device=clean.device)
        kept = self.scheduler.alphas_cumprod.to(clean.device)[step][..., None, None]
        remembered = self.denoiser.remember(memory.tokens)
        predicted = self._denoise(kept.sqrt() * clean + (1 - kept).sqrt() * noise, step, remembered, memory.present)
        weight = mask[:, None, :, None].to(clean.dtype)
        return ((predicted - clean) ** 2 * weight).sum() / (weight.sum() * self.draws * clean.shape[-1]).clamp(min=1)

    def generate(self, memory: Memory, generator: torch.Generator) -> Tensor:
        """Runs the sampler; see `ChunkPolicy.generate`."""
        shape = (len(memory.tokens), 1, self.chunk, len(self.contract.action))
        device = memory.tokens.device
        chunk = torch.randn(shape, generator=generator, device=device)
        remembered = self.denoiser.remember(memory.tokens)
        self.scheduler.set_timesteps(self.sampling_steps)
        for step in self.scheduler.timesteps:
            predicted = self._denoise(chunk, step.to(device).expand(shape[:2]), remembered, memory.present)
            chunk = self.scheduler.step(predicted, int(step), chunk, return_dict=False)[0]
        return chunk[:, 0]

    def _denoise(self, noisy: Tensor, step: Tensor, remembered: list[tuple[Tensor, Tensor]], present: Tensor | None) -> Tensor:
        predicted: Tensor = self.denoiser(noisy, step.float() / self._levels, remembered, present)
        return predicted.float()

    @property
    def _levels(self) -> int:
        return len(self.scheduler.alphas_cumprod)
