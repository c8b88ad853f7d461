"""Few-step samplers of diffusion policies: diffusers' schedulers with our settings.

All get the clean chunk that follows from the network's output, whatever it predicts, so one
conversion serves all.
"""

import copy
import warnings
from collections.abc import Callable
from typing import Literal, Protocol, cast, get_args

import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from torch import Tensor

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.policies.algorithms.learned_policy import Generators, normal

Prediction = Literal["sample", "v", "epsilon"]
Sampler = Literal["ddim", "ddpm", "dpm_solver"]
Spacing = Literal["trailing", "leading"]

# Below this share of signal an error of 0.01 in the predicted noise fills the whole range.
LEAST_SIGNAL = 0.01
# Leading spacing counts integer levels from the first: 60 steps of 100 levels are the first 60,
# which end at half of the signal.
MOST_SIGNAL = 0.5


class Scheduler(Protocol):
    """The used attributes of diffusers' schedulers, which have no types.

    Attributes:
        alphas_cumprod: (levels,) share of the variance that is signal at each level.
        timesteps: Levels of the sampler's steps, falling.
    """

    alphas_cumprod: Tensor
    timesteps: Tensor
    set_timesteps: Callable[[int], None]
    step: Callable[..., tuple[Tensor, ...]]


def make_scheduler(
    sampler: Sampler, *, levels: int, spacing: Spacing, zero_terminal_snr: bool, reach: float
) -> Scheduler:
    """Builds a scheduler on the squared-cosine levels (Nichol and Dhariwal, ICML 2021, eq. 17).

    Args:
        sampler: `ddim` (Song et al., ICLR 2021, equation 12, without noise), `ddpm` (Ho et al.,
            NeurIPS 2020, algorithm 2) or `dpm_solver` (DPM-Solver++ of second order, multistep; Lu
            et al., 2022, arXiv 2211.01095).
        levels: Noise levels of the training.
        spacing: `trailing` starts at the last level, `leading` one step before it (Lin et al., WACV
            2024, table 2).
        zero_terminal_snr: Rescales the levels so that the last keeps no signal (Lin et al.,
            algorithm 1).
        reach: Largest magnitude of a clean action; predictions are clipped to it.
    """
    check_name(sampler, "sampler", get_args(Sampler))
    check_name(spacing, "timestep spacing", get_args(Spacing))
    shared = {
        "num_train_timesteps": levels,
        "beta_schedule": "squaredcos_cap_v2",
        "prediction_type": "sample",
        "timestep_spacing": spacing,
        "rescale_betas_zero_snr": zero_terminal_snr,
    }
    if sampler == "dpm_solver":
        # Imported here: it imports scipy.stats, which would delay every command by a second.
        from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler

        return cast(
            "Scheduler",
            DPMSolverMultistepScheduler(**shared, algorithm_type="dpmsolver++", solver_order=2),
        )
    kind = DDIMScheduler if sampler == "ddim" else DDPMScheduler
    return cast("Scheduler", kind(**shared, clip_sample=True, clip_sample_range=reach))


def with_timesteps(scheduler: Scheduler, steps: int) -> Scheduler:
    """Returns a copy of a scheduler for one chunk with its steps set, since some have a state."""
    copied = copy.copy(scheduler)
    with warnings.catch_warnings():  # Diffusers' DPM-Solver calls numpy as before numpy 2.
        warnings.filterwarnings(
            "ignore", message="__array__ implementation", category=DeprecationWarning
        )
        copied.set_timesteps(steps)
    return copied


def starting_noise(
    conditioning: Tensor, samples: int, shape: tuple[int, int], generator: Generators | None
) -> Tensor:
    """Returns the initial noise of K = `samples` chunks of a shape (T, A), (B, K, T, A).

    In float32, or the higher precision of the conditioning tokens (B, N, dim). The generators are
    on their device; if None, torch's global one.
    """
    noise = normal((len(conditioning), samples, *shape), generator, conditioning.device)
    return noise.to(torch.promote_types(conditioning.dtype, torch.float32))


def check_name(got: str, kind: str, allowed: tuple[str, ...]) -> None:
    """Raises a ValueError for a name that does not exist; the message lists those that do."""
    if got not in allowed:
        raise unknown_name(kind, got, allowed)


def check_first_level(prediction: Prediction, signal: float, spacing: Spacing) -> None:
    """Raises a ValueError if a sampler would start from pure noise at an unsuitable level.

    Unsuitable are levels at which training still showed the data, and for epsilon those with hardly
    any signal: the clean chunk is (noisy - sqrt(1 - a) epsilon) / sqrt(a), so at the last of
    100 cosine levels every error of the network is multiplied by 2000, and only clipping keeps the
    first step within the data (Lin et al., WACV 2024, section 3.3). `signal` is sqrt(a), the share
    of the clean chunk at the first level of the sampler; a is `alphas_cumprod` there.
    """
    if signal > MOST_SIGNAL:
        raise ValueError(
            f"The sampler would start from pure noise ({spacing} spacing) at a level that keeps "
            f"{signal:.2f} of the signal; allowed: at most {MOST_SIGNAL}, as with "
            f"spacing=trailing or fewer sampling steps."
        )
    if prediction == "epsilon" and signal < LEAST_SIGNAL:
        raise ValueError(
            f"prediction is 'epsilon' and the sampler starts ({spacing} spacing) at a level that "
            f"keeps {signal:.1e} of the signal; allowed: at least {LEAST_SIGNAL}, as with "
            f"spacing=leading and fewer sampling steps than noise levels, or prediction=sample or "
            f"v at any level."
        )


def target_of(
    prediction: Prediction, clean: Tensor, noise: Tensor, alphas_cumprod: Tensor
) -> Tensor:
    """Returns the target of the network for sqrt(a) clean + sqrt(1 - a) noise, (B, K, T, A).

    `sample` predicts the clean chunk, `epsilon` the noise, and `v` sqrt(a) noise - sqrt(1 -
    a) clean (Salimans and Ho, ICLR 2022, section 4). `alphas_cumprod`, a, is the share of the
    variance that is signal.
    """
    if prediction == "sample":
        return clean
    return (
        noise
        if prediction == "epsilon"
        else alphas_cumprod.sqrt() * noise - (1 - alphas_cumprod).sqrt() * clean
    )


def clean_chunk(
    prediction: Prediction, predicted: Tensor, noisy: Tensor, alphas_cumprod: Tensor
) -> Tensor:
    """Returns the clean chunk of a prediction, the inverse of `target_of`; arguments as there."""
    if prediction == "sample":
        return predicted
    if prediction == "epsilon":
        return (noisy - (1 - alphas_cumprod).sqrt() * predicted) / alphas_cumprod.sqrt()
    return alphas_cumprod.sqrt() * noisy - (1 - alphas_cumprod).sqrt() * predicted


def within(chunk: Tensor, reach: float | Tensor) -> Tensor:
    """Clips chunks (..., A) to a magnitude, of all numbers or of each (A,)."""
    if isinstance(reach, Tensor):
        limit = reach.to(chunk.dtype)
        return torch.minimum(torch.maximum(chunk, -limit), limit)
    return chunk.clamp(-reach, reach)


def next_level(
    scheduler: Scheduler,
    clean: Tensor,
    step: Tensor,
    noisy: Tensor,
    *,
    reach: float | Tensor,
    generator: Generators,
) -> Tensor:
    """Takes one step of the sampler.

    From the chunk at a level, `noisy`, and its predicted clean chunk, both (B, K, T, A), follows
    the chunk at the next level. After the last step it is the clean chunk itself, since diffusers'
    DDIM computes the next level by subtracting an integer and for some numbers of steps, such as 6
    of 100, would end one level early. `reach` is the largest magnitude of a clean action, of all of
    its numbers or of each (A,).
    """
    if step == scheduler.timesteps[-1]:
        return within(clean, reach)
    # The third sampler clips nothing itself, and none by the numbers of an action.
    if isinstance(reach, Tensor) or not isinstance(scheduler, DDIMScheduler | DDPMScheduler):
        clean = within(clean, reach)
    further = {"generator": generator} if isinstance(scheduler, DDPMScheduler) else {}
    return scheduler.step(clean, int(step), noisy, return_dict=False, **further)[0]
