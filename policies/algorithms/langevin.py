"""Random walks that sample from a density known up to a factor."""

from collections.abc import Callable

import torch
from torch import Tensor

from stringline.policies.algorithms.row_noise import Generators, normal, uniform


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
