"""The energy policy: a flow proposes chunks; a learned energy ranks, refines and selects them.

After Singh, Tu and Sindhwani, Revisiting Energy Based Models as Policies: Ranking Noise Contrastive
Estimation and Interpolating Energy Models, TMLR 2024 (arXiv 2309.05803): a proposal and an energy,
trained jointly and without playing against each other, the energy by ranking and at every level of
the interpolation between noise and data.

Let q be the proposal with the few steps it takes, and q_s and expert_s the distributions of (1 - s)
chunk + s noise when the chunk is the proposal's or the expert's. The network learns the log odds
f_s = log(expert_s / q_s); see `ranking_loss`. In place of running the flow backwards for log q we
use that q_s is reached from a proposed chunk p by known Gaussian noise:

    N(y; (1 - s) p, s^2) exp(f_s(y)),    with p from q,

is a density of y and p whose marginal of y is expert_s. So: draw N chunks p and their noisy y,
choose one pair by exp(f_s), take Langevin steps in y with its p held, and let the flow carry y from
level s to the data. Departures from the paper: its energy is E = log q_s + f_s here, its proposal
density is cancelled rather than computed, and chunks are refined at one level.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from stringline.datasets.contract.arguments import COUNT, NOT_NEGATIVE, POSITIVE, WHOLE, Range
from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.algorithms.flow import FlowPolicy, FlowSettings
from stringline.policies.algorithms.langevin import langevin
from stringline.policies.algorithms.samplers import starting_noise
from stringline.policies.networks.committed import Committed
from stringline.policies.networks.denoiser import Denoiser, DenoiserFactory, Remembered
from stringline.policies.observation.observation_encoder import Memory


def ranking_loss(log_odds: Tensor, counts: Tensor) -> Tensor:
    """Ranking noise contrastive estimation (Singh, Tu and Sindhwani, TMLR 2024, arXiv 2309.05803; Ma and Collins, EMNLP 2018).

    Their objective is the cross-entropy of finding the expert's chunk by exp(E - log q) among draws
    of a proposal q. We let the network be what is left of it, E = log q + log_odds. So the
    proposal's density cancels, and nobody has to integrate the divergence of a flow over hundreds
    of numbers. The optimum is the same: log_odds = log(expert / q) + a constant.

    Args:
        log_odds: (B, 1 + N) of the expert's chunk, first, and of N draws of the proposal for the
            same observation.
        counts: (B,) how many actions of the expert's chunk lie within its episode; 0 leaves the
            observation out.

    Returns:
        The mean over those actions, a scalar, each with the surprise of its observation: so parts
        of a batch, and processes, add up to the whole with the weights that other losses have.
        log(1 + N) is what one reaches who cannot tell them apart.
    """
    surprise = -torch.log_softmax(log_odds, dim=1)[:, 0]
    weight = counts.to(surprise.dtype)
    return (surprise * weight).sum() / weight.sum().clamp(min=1)


def sum_of_evidence(evidence: Tensor) -> Tensor:
    """Sums what a network says of every number of a chunk, (B, K, T, A), to one number of moderate size per chunk, (B, K)."""
    return evidence.sum(dim=(-2, -1)) / math.sqrt(evidence.shape[-2] * evidence.shape[-1])


def choose(log_odds: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """Chooses one of the draws of a proposal by its energy.

    Args:
        log_odds: (B, N).
        temperature: 1 chooses with probabilities in the proportion exp(log_odds), so that what is
            chosen is distributed as the expert's chunks (importance resampling; Rubin, 1987);
            towards 0 the best is chosen, which keeps fewer of the modes.
        generator: Of the random numbers.

    Returns:
        (B,) which one.
    """
    if temperature == 0:
        return log_odds.argmax(dim=1)
    even = torch.rand(log_odds.shape, generator=generator, device=log_odds.device).clamp(min=1e-20)
    return (log_odds / temperature - (-even.log()).log()).argmax(dim=1)


@dataclass(frozen=True, kw_only=True)
class EnergySettings(FlowSettings):
    """What is chosen about an energy policy, besides its proposal, a flow; `sampling_steps` are taken in training too.

    Attributes:
        energy: Makes another network for the energy, of the same face; what it says of each number
            is summed. None: a transformer like that of the proposal. It is trained at levels drawn
            uniformly.
        negatives: Chunks of the proposal among which the energy has to find the expert's, per
            observation and step.
        ranking_weight: Of the ranking loss beside the proposal's; it only says how much the encoder
            listens to it.
        candidates: Chunks that are proposed at run time.
        temperature: Of the choice among them; see `ranking_loss.choose`. 0: the best.
        refining_level: Noise level s at which chunks are judged and refined.
        refining_steps: Langevin steps; 0 refines nothing.
        refining_scale: Their standard deviation, above 0, in units of that level.
        landing_steps: Steps of the flow from that level to the data.
    """

    energy: DenoiserFactory | None = None
    negatives: int = 4
    ranking_weight: float = 0.1
    candidates: int = 8
    temperature: float = 1.0
    refining_level: float = 0.2
    refining_steps: int = 8
    refining_scale: float = 0.5
    landing_steps: int = 2

    def __post_init__(self) -> None:
        """See the base."""
        super().__post_init__()
        COUNT.check(
            negatives=self.negatives, candidates=self.candidates, landing_steps=self.landing_steps
        )
        WHOLE.check(refining_steps=self.refining_steps)
        NOT_NEGATIVE.check(ranking_weight=self.ranking_weight, temperature=self.temperature)
        Range(above=0, most=1).check(refining_level=self.refining_level)
        POSITIVE.check(refining_scale=self.refining_scale)


class EnergyPolicy(FlowPolicy):
    """A flow policy whose draws are judged, refined and chosen by an energy."""

    energy: Denoiser

    def __init__(
        self, settings: EnergySettings, contract: Contract, statistics: Statistics
    ) -> None:
        """Builds the policy; see `ChunkPolicy`.

        Raises:
            ValueError: A size does not divide.
        """
        super().__init__(settings, contract, statistics)
        self.energy = settings.network(
            settings.energy, action_dim=self.action_dim, memory_dim=self.memory.dim
        )
        self.negatives = settings.negatives
        self.ranking_weight = settings.ranking_weight
        self.candidates = settings.candidates
        self.temperature = settings.temperature
        self.refining_level = settings.refining_level
        self.refining_steps = settings.refining_steps
        self.refining_scale = settings.refining_scale
        self.landing_steps = settings.landing_steps

    def chunk_loss(self, memory: Memory, action: Tensor, mask: Tensor) -> Tensor:
        """The proposal's loss, and that of finding the expert's chunk among the proposal's."""
        return super().chunk_loss(memory, action, mask) + self.ranking_weight * self.chunk_ranking(
            memory, action, mask
        )

    def chunk_ranking(self, memory: Memory, action: Tensor, mask: Tensor) -> Tensor:
        """Returns the ranking loss alone; see `ranking_loss` and `ChunkPolicy.chunk_loss`."""
        with (
            torch.no_grad()
        ):  # The energy does not pull the proposal: the two do not play against each other.
            proposed = self.propose(
                memory, self.denoiser.remember(memory.tokens), self.negatives, None
            )
        # Beyond the end of the episode all chunks are the same, so nothing there tells them apart.
        proposed = torch.where(mask[:, None, :, None], proposed, action[:, None])
        chunks = torch.cat((action[:, None], proposed), dim=1)
        level = 1 - torch.rand(len(action), 1, device=action.device)
        noisy = torch.lerp(chunks, torch.randn_like(chunks), level[..., None, None])
        log_odds = self._log_odds(
            noisy,
            level.expand(chunks.shape[:2]),
            self.energy.remember(memory.tokens),
            memory.present,
        )
        return ranking_loss(log_odds, mask.sum(dim=1))

    def generate(
        self, memory: Memory, generator: torch.Generator, committed: Committed | None = None
    ) -> Tensor:
        """Proposes, chooses, refines and lands; see `ChunkPolicy.generate`.

        What is committed is inpainted in the proposal and in the landing as in
        `FlowPolicy.settled_walk`; Langevin steps are shorter by the weight, so what is decided
        stands still.
        """
        remembered = self.denoiser.remember(memory.tokens)
        proposed = self.propose(memory, remembered, self.candidates, generator, committed)
        noise = starting_noise(
            memory.tokens, self.candidates, (self.chunk, self.action_dim), generator
        )
        noisy = torch.lerp(proposed, noise, self.refining_level)
        with (
            torch.inference_mode(False),
            torch.no_grad(),
        ):  # For the gradients of the refinement; see `langevin`.
            present = None if memory.present is None else memory.present.clone()
            judged = self.energy.remember(memory.tokens.clone())
        log_odds = self._log_odds(noisy, self._levels_like(noisy), judged, present)
        best = choose(log_odds, self.temperature, generator)[:, None, None, None].expand(
            -1, 1, *noisy.shape[2:]
        )
        refined = self.refine(
            noisy.gather(1, best), proposed.gather(1, best), judged, present, generator, committed
        )
        landed = self.settled_walk(
            refined, self.refining_level, self.landing_steps, remembered, memory.present, committed
        )
        return landed[:, 0]

    def refine(
        self,
        noisy: Tensor,
        proposed: Tensor,
        judged: Remembered,
        present: Tensor | None,
        generator: torch.Generator,
        committed: Committed | None,
    ) -> Tensor:
        """Takes Langevin steps in noisy chunks; see the head of this file.

        Args:
            noisy: (B, K, T, A) at the refining level.
            proposed: (B, K, T, A) the chunks that they came from.
            judged: Of the memory, by the energy, not made under inference mode.
            present: Of the memory, not made under inference mode either.
            generator: Of all random numbers.
            committed: What stands still; None: nothing.
        """
        level = self.refining_level
        scale = torch.full(
            (self.chunk, 1), self.refining_scale * level, dtype=noisy.dtype, device=noisy.device
        )
        if committed is not None:
            scale = scale * (1 - committed.weight[:, None].to(scale.dtype))
        with torch.inference_mode(False):
            centre = (1 - level) * proposed.clone()

        def log_density(chunk: Tensor) -> Tensor:
            near = -((chunk - centre) ** 2).sum(dim=(-2, -1)) / (2 * level**2)
            return near + self._log_odds(chunk, self._levels_like(chunk), judged, present)

        return langevin(
            log_density, noisy, scale=scale, steps=self.refining_steps, generator=generator
        )

    def _log_odds(
        self, noisy: Tensor, level: Tensor, judged: Remembered, present: Tensor | None
    ) -> Tensor:
        """Returns log(expert / proposal), (B, K), of noisy chunks (B, K, T, A) at levels (B, K); a constant is left open."""
        return sum_of_evidence(self.energy(noisy, level, judged, present).to(noisy.dtype))

    def _levels_like(self, chunks: Tensor) -> Tensor:
        return torch.full(
            chunks.shape[:2], self.refining_level, dtype=chunks.dtype, device=chunks.device
        )
