"""Learning an energy by telling the expert's chunk from those of a proposal."""

import math

import torch
from torch import Tensor


def ranking_loss(log_odds: Tensor, counts: Tensor) -> Tensor:
    """Ranking noise contrastive estimation (Singh, Tu and Sindhwani, TMLR 2024, arXiv 2309.05803; Ma and Collins, EMNLP 2018).

    Their objective is the cross-entropy of finding the expert's chunk by exp(E - log q) among draws of a proposal q. We let the
    network be what is left of it, E = log q + log_odds. So the proposal's density cancels, and nobody has to integrate the
    divergence of a flow over hundreds of numbers. The optimum is the same: log_odds = log(expert / q) + a constant.

    Args:
        log_odds: (B, 1 + N) of the expert's chunk, first, and of N draws of the proposal for the same observation.
        counts: (B,) how many actions of the expert's chunk lie within its episode; 0 leaves the observation out.

    Returns:
        The mean over those actions, a scalar, each with the surprise of its observation: so parts of a batch, and processes,
        add up to the whole with the weights that other losses have. log(1 + N) is what one reaches who cannot tell them apart.
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
        temperature: 1 chooses with probabilities in the proportion exp(log_odds), so that what is chosen is distributed as the
            expert's chunks (importance resampling; Rubin, 1987); towards 0 the best is chosen, which keeps fewer of the modes.
        generator: Of the random numbers.

    Returns:
        (B,) which one.
    """
    if temperature == 0:
        return log_odds.argmax(dim=1)
    even = torch.rand(log_odds.shape, generator=generator, device=log_odds.device).clamp(min=1e-20)
    return (log_odds / temperature - (-even.log()).log()).argmax(dim=1)
