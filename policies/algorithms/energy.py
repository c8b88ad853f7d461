"""The energy policy: a flow proposes chunks; a learned energy ranks, refines and selects them.

After Singh, Tu and Sindhwani, Revisiting Energy Based Models as Policies: Ranking Noise Contrastive
Estimation and Interpolating Energy Models, TMLR 2024 (arXiv 2309.05803): a proposal and an energy,
trained jointly but not adversarially, the energy by ranking and at every level of the interpolation
between noise and data.

Let q be the proposal with its few steps, and q_s and expert_s the distributions of (1 - s) chunk +
s noise for chunks of the proposal and the expert. The network learns the log odds f_s =
log(expert_s / q_s); see `ranking_loss`. Instead of running the flow backwards for log q we use that
q_s is reached from a proposed chunk p by known Gaussian noise:

    N(y; (1 - s) p, s^2) exp(f_s(y)),    with p from q,

is a density of y and p whose marginal of y is expert_s. So: draw N chunks p and their noisy y,
choose one pair by exp(f_s), take Langevin steps in y with its p fixed, and let the flow carry y
from level s to the data. Departures from the paper: its energy is E = log q_s + f_s here, its
proposal density cancels, and chunks are refined at one level.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from stringline.datasets.contract.argument_checks import COUNT, NOT_NEGATIVE, POSITIVE, WHOLE, Range
from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.algorithms.denoising_policy import starting_noise
from stringline.policies.algorithms.flow import FlowPolicy, FlowSettings
from stringline.policies.algorithms.learned_policy import Generators, normal, uniform
from stringline.policies.networks.denoiser import Denoiser, DenoiserFactory, Precomputed
from stringline.policies.networks.inputs import NormalisedPrefix
from stringline.policies.observation.interfaces import ConditioningTokens


def langevin(
    log_density: Callable[[Tensor], Tensor],
    start: Tensor,
    *,
    scale: Tensor,
    steps: int,
    generator: Generators,
) -> Tensor:
    """Takes Metropolis-adjusted Langevin steps (Roberts and Tweedie, 1996, section 1.4).

    They leave the density invariant. `log_density` maps chunks (B, K, T, A) to the logarithm of
    their density up to a constant, (B, K). `scale` is the standard deviation of a step, broadcast
    to chunks; at 0 nothing moves. Gradients are computed even under `torch.inference_mode`; then
    `log_density` must not use tensors created in it: clone those first, outside of it.
    """

    def evaluate(chunk: Tensor) -> tuple[Tensor, Tensor]:
        chunk.requires_grad_()
        value = log_density(chunk)
        (slope,) = torch.autograd.grad(value.sum(), chunk)
        return value.detach(), slope

    with torch.inference_mode(False), torch.enable_grad():
        scale = scale.clone()
        here = start.detach().clone()
        value, slope = evaluate(here)
        for _ in range(steps):
            noise = normal(here.shape, generator, here.device, here.dtype)
            there = (here + scale**2 / 2 * slope + scale * noise).detach()
            value_there, slope_there = evaluate(there)
            # The noise of the reverse step, except for its sign.
            back = noise + scale / 2 * (slope + slope_there)
            gain = value_there - value - (back**2 - noise**2).sum(dim=(-2, -1)) / 2
            taken = uniform(gain.shape, generator, here.device).log() < gain
            here = torch.where(taken[..., None, None], there, here).detach()
            slope = torch.where(taken[..., None, None], slope_there, slope)
            value = torch.where(taken, value_there, value)
        return here


def ranking_loss(log_odds: Tensor, counts: Tensor) -> Tensor:
    """Returns the ranking noise contrastive loss (Singh et al., TMLR 2024; Ma and Collins, 2018).

    The objective (arXiv 2309.05803) is the cross-entropy of identifying the expert's chunk by exp(E
    - log q) among draws of a proposal q. Here the network is the remainder, E = log q + log_odds,
    so the proposal's density cancels, and no divergence of a flow over hundreds of numbers is
    integrated. The optimum is the same: log_odds = log(expert / q) + constant.

    The loss is a mean over the actions of `counts`, each with the surprise of its observation, so
    that parts of a batch add up to the whole. log(1 + N) is the loss of a network without
    information.

    Args:
        log_odds: (B, 1 + N) of the expert's chunk, first, and of N draws of the proposal for the
            same observation.
        counts: (B,) number of actions of the expert's chunk within its episode, the weight of the
            keypose included; 0 ignores the observation.
    """
    surprise = -torch.log_softmax(log_odds, dim=1)[:, 0]
    weight = counts.to(surprise.dtype)
    return (surprise * weight).sum() / weight.sum().clamp(min=1)


def sum_of_evidence(evidence: Tensor) -> Tensor:
    """Sums outputs (B, K, T, A) to one number of moderate magnitude per chunk, (B, K)."""
    return evidence.sum(dim=(-2, -1)) / math.sqrt(evidence.shape[-2] * evidence.shape[-1])


def choose(log_odds: Tensor, temperature: float, generator: Generators) -> Tensor:
    """Returns the index (B,) of one of the draws of a proposal, chosen by log odds (B, N).

    A temperature of 1 chooses with probabilities proportional to exp(log_odds), so that the choice
    is distributed as the expert's chunks (importance resampling; Rubin, 1987). Towards 0 the best
    is chosen, which keeps fewer modes.
    """
    if temperature == 0:
        return log_odds.argmax(dim=1)
    even = uniform(log_odds.shape, generator, log_odds.device).clamp(min=1e-20)
    return (log_odds / temperature - (-even.log()).log()).argmax(dim=1)


@dataclass(frozen=True, kw_only=True)
class EnergySettings(FlowSettings):
    """Settings of an energy policy beside those of its proposal, a flow.

    Attributes:
        energy: Factory of another network for the energy, whose outputs are summed; if None, a
            transformer like that of the proposal. It is trained at uniformly drawn levels.
        negatives: Proposed chunks per observation and training step, ranked beside the demonstrated
            one.
        ranking_weight: Weight of the ranking loss beside the proposal's; it affects the observation
            encoder only.
        candidates: Proposed chunks at run time.
        temperature: Choice among them: 0: the best; 1: modes as frequent as in the demonstrations.
        refinement_noise_level: Noise level at which chunks are ranked and refined; 0: data, 1:
            noise.
        refinement_steps: Langevin steps of the refinement; 0: no refinement.
        refinement_scale: Standard deviation of a Langevin step in units of refinement_noise_level;
            above 0.
        final_steps: Steps of the flow from refinement_noise_level to the data.
    """

    energy: DenoiserFactory | None = None
    negatives: int = 4
    ranking_weight: float = 0.1
    candidates: int = 8
    temperature: float = 1.0
    refinement_noise_level: float = 0.2
    refinement_steps: int = 8
    refinement_scale: float = 0.5
    final_steps: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        COUNT.check(
            negatives=self.negatives, candidates=self.candidates, final_steps=self.final_steps
        )
        WHOLE.check(refinement_steps=self.refinement_steps)
        NOT_NEGATIVE.check(ranking_weight=self.ranking_weight, temperature=self.temperature)
        Range(above=0, most=1).check(refinement_noise_level=self.refinement_noise_level)
        POSITIVE.check(refinement_scale=self.refinement_scale)


class EnergyPolicy(FlowPolicy):
    """A flow policy whose draws are ranked, refined and chosen by an energy."""

    energy: Denoiser

    def __init__(
        self, settings: EnergySettings, contract: Contract, statistics: Statistics
    ) -> None:
        super().__init__(settings, contract, statistics)
        self.energy = self.make_network(settings, settings.energy)
        self.negatives = settings.negatives
        self.ranking_weight = settings.ranking_weight
        self.candidates = settings.candidates
        self.temperature = settings.temperature
        self.refinement_noise_level = settings.refinement_noise_level
        self.refinement_steps = settings.refinement_steps
        self.refinement_scale = settings.refinement_scale
        self.final_steps = settings.final_steps

    def chunk_loss(self, conditioning: ConditioningTokens, action: Tensor, mask: Tensor) -> Tensor:
        """Returns the proposal's loss plus the weighted ranking loss."""
        return super().chunk_loss(
            conditioning, action, mask
        ) + self.ranking_weight * self.chunk_ranking(conditioning, action, mask)

    def chunk_ranking(
        self, conditioning: ConditioningTokens, action: Tensor, mask: Tensor
    ) -> Tensor:
        """Returns the ranking loss; see `ranking_loss` and `ChunkPolicy.chunk_loss`."""
        # The energy has no gradient to the proposal: the training is not adversarial.
        with torch.no_grad():
            proposed = self.propose(
                conditioning, self.precompute(self.denoiser, conditioning), self.negatives, None
            )
        # Beyond the end of the episode all chunks are equal, so nothing there distinguishes them.
        proposed = torch.where(mask[:, None, :, None].bool(), proposed, action[:, None])
        chunks = torch.cat((action[:, None], proposed), dim=1)
        level = 1 - torch.rand(len(action), 1, device=action.device)
        noise = self.noise(torch.randn_like(chunks))
        noisy = torch.lerp(chunks, noise, level[..., None, None])
        log_odds = self._log_odds(
            noisy,
            level.expand(chunks.shape[:2]),
            self.precompute(self.energy, conditioning),
            conditioning.present,
        )
        return ranking_loss(log_odds, mask.sum(dim=1))

    def generate(
        self,
        conditioning: ConditioningTokens,
        generator: Generators,
        prefix: NormalisedPrefix | None = None,
    ) -> Tensor:
        """Proposes, chooses, refines and lands; see `ChunkPolicy.generate`.

        A prefix is inpainted in the proposal and in the landing as in
        `FlowPolicy.constrained_walk`; Langevin steps are shortened by its weight, so fixed actions
        do not move.
        """
        precomputed = self.precompute(self.denoiser, conditioning)
        proposed = self.propose(conditioning, precomputed, self.candidates, generator, prefix)
        noise = starting_noise(
            conditioning.tokens, self.candidates, (self.chunk, self.action_dim), generator
        )
        noisy = torch.lerp(proposed, self.noise(noise), self.refinement_noise_level)
        # For the gradients of the refinement; see `langevin`.
        with torch.inference_mode(False), torch.no_grad():
            copied = conditioning.clone()
            judged = self.precompute(self.energy, copied)
        log_odds = self._log_odds(noisy, self._levels_like(noisy), judged, copied.present)
        best = choose(log_odds, self.temperature, generator)[:, None, None, None].expand(
            -1, 1, *noisy.shape[2:]
        )
        refined = self.refine(
            noisy.gather(1, best),
            proposed.gather(1, best),
            judged,
            copied.present,
            generator,
            prefix,
        )
        landed = self.constrained_walk(
            self.smooth(refined),
            self.refinement_noise_level,
            self.final_steps,
            precomputed,
            conditioning.present,
            prefix,
        )
        return landed[:, 0]

    def refine(
        self,
        noisy: Tensor,
        proposed: Tensor,
        judged: Precomputed,
        present: Tensor | None,
        generator: Generators,
        prefix: NormalisedPrefix | None,
    ) -> Tensor:
        """Takes Langevin steps in noisy chunks; see the module docstring.

        Args:
            noisy: (B, K, T, A) at the noise level of the refinement.
            proposed: (B, K, T, A) the clean chunks.
            judged: Precomputed by the energy, not in inference mode.
            present: Presence of the conditioning tokens, not created in inference mode either.
            generator: Random number generator.
            prefix: Actions that do not move; if None, all move.
        """
        level = self.refinement_noise_level
        with torch.inference_mode(False):
            spread = self._noise_spread(noisy)
        scale = self.refinement_scale * level * spread
        if prefix is not None:
            scale = scale * (1 - prefix.weight[:, None].to(scale.dtype))
        with torch.inference_mode(False):
            centre = (1 - level) * proposed.clone()

        def log_density(chunk: Tensor) -> Tensor:
            near = -(((chunk - centre) / spread) ** 2).sum(dim=(-2, -1)) / (2 * level**2)
            return near + self._log_odds(chunk, self._levels_like(chunk), judged, present)

        return langevin(
            log_density, noisy, scale=scale, steps=self.refinement_steps, generator=generator
        )

    def _log_odds(
        self, noisy: Tensor, level: Tensor, judged: Precomputed, present: Tensor | None
    ) -> Tensor:
        """Returns log(expert / proposal) + constant, (B, K), of noisy chunks (B, K, T, A)."""
        evidence = self.energy(self.smooth(noisy), level, judged, present)
        return sum_of_evidence(evidence.to(noisy.dtype))

    def _noise_spread(self, chunks: Tensor) -> Tensor:
        """Returns the standard deviation of the noise in the directions of chunks, (T, 1 | A)."""
        spread = torch.ones(self.chunk, 1, dtype=chunks.dtype, device=chunks.device)
        if self.posture is None:
            return spread
        return spread * self.posture.gain.to(spread.dtype)

    def _levels_like(self, chunks: Tensor) -> Tensor:
        return torch.full(
            chunks.shape[:2], self.refinement_noise_level, dtype=chunks.dtype, device=chunks.device
        )
