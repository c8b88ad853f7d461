"""How a diffusion policy goes from noise to a chunk in few steps: diffusers' schedulers, each set up for our policies.

All of them are handed the clean chunk that the network's answer stands for, whatever it predicts,
so one conversion serves all.
"""

import copy
import warnings
from collections.abc import Callable
from typing import Literal, Protocol, cast, get_args

import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from torch import Tensor

from stringline.datasets.contract.arguments import unknown_name

Prediction = Literal["sample", "v", "epsilon"]
Sampler = Literal["ddim", "ddpm", "dpm_solver"]
Spacing = Literal["trailing", "leading"]

# Below this share of signal the noise says nothing of the clean chunk: an error of 0.01 in it would
# fill the whole range.
LEAST_SIGNAL = 0.01
# Leading spacing counts in whole levels from the first: 60 steps of 100 levels are the first 60,
# which end where half is seen.
MOST_SIGNAL = 0.5


class Scheduler(Protocol):
    """What we use of diffusers' schedulers, which come without types.

    Attributes:
        alphas_cumprod: (levels,) share of the variance that is signal at each level.
        timesteps: Levels at which the sampler steps, falling.
        set_timesteps: Sets them, given their number.
        step: Takes a step.
    """

    alphas_cumprod: Tensor
    timesteps: Tensor
    set_timesteps: Callable[[int], None]
    step: Callable[..., tuple[Tensor, ...]]


def make_scheduler(
    sampler: Sampler, *, levels: int, spacing: Spacing, zero_terminal_snr: bool, reach: float
) -> Scheduler:
    """Returns a scheduler on the squared-cosine levels (Nichol and Dhariwal, ICML 2021, equation 17).

    Args:
        sampler: `ddim` (Song et al., ICLR 2021, equation 12, without noise), `ddpm` (Ho et al.,
            NeurIPS 2020, algorithm 2) or `dpm_solver` (DPM-Solver++ of second order with several
            steps; Lu et al., 2022, arXiv 2211.01095).
        levels: Noise levels of the training.
        spacing: `trailing` starts at the last level, `leading` one step before it (Lin et al., WACV
            2024, table 2).
        zero_terminal_snr: Rescales the levels so that the last keeps no signal at all (Lin et al.,
            algorithm 1).
        reach: Largest magnitude of a clean action; predictions beyond it are clipped.

    Raises:
        ValueError: The sampler or the spacing does not exist.
    """
    known(sampler, "sampler", get_args(Sampler))
    known(spacing, "timestep spacing", get_args(Spacing))
    shared = {
        "num_train_timesteps": levels,
        "beta_schedule": "squaredcos_cap_v2",
        "prediction_type": "sample",
        "timestep_spacing": spacing,
        "rescale_betas_zero_snr": zero_terminal_snr,
    }
    if (
        sampler == "dpm_solver"
    ):  # Imported here: it brings scipy's statistics, a second at the start of every command.
        from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler

        return cast(
            "Scheduler",
            DPMSolverMultistepScheduler(**shared, algorithm_type="dpmsolver++", solver_order=2),
        )
    kind = DDIMScheduler if sampler == "ddim" else DDPMScheduler
    return cast("Scheduler", kind(**shared, clip_sample=True, clip_sample_range=reach))


def ready(scheduler: Scheduler, steps: int) -> Scheduler:
    """Returns a scheduler of its own for one chunk, with its steps set: some keep what they were given."""
    copied = copy.copy(scheduler)
    with warnings.catch_warnings():  # Diffusers' DPM-Solver calls numpy as before numpy 2.
        warnings.filterwarnings(
            "ignore", message="__array__ implementation", category=DeprecationWarning
        )
        copied.set_timesteps(steps)
    return copied


def starting_noise(
    memory: Tensor, draws: int, shape: tuple[int, int], generator: torch.Generator | None
) -> Tensor:
    """Returns the noise that chunks begin as, (B, K, T, A), of the memory's precision but at least single.

    Args:
        memory: (B, N, dim) tokens.
        draws: K.
        shape: (T, A).
        generator: On the memory's device; None: torch's own.
    """
    noise = torch.randn(
        (len(memory), draws, *shape), generator=generator, device=memory.device, dtype=torch.float32
    )
    return noise.to(torch.promote_types(memory.dtype, torch.float32))


def known(got: str, kind: str, allowed: tuple[str, ...]) -> None:
    """Refuses a name that does not exist.

    Raises:
        ValueError: It names those that do.
    """
    if got not in allowed:
        raise unknown_name(kind, got, allowed)


def check_first_level(prediction: Prediction, signal: float, spacing: Spacing) -> None:
    """Refuses samplers that would start from pure noise at a level where training showed the data, or divide by nothing.

    The clean chunk is (noisy - sqrt(1 - kept) epsilon) / sqrt(kept), so at the last of 100 cosine
    levels every error of the network is multiplied by 2000, and only clipping keeps the first step
    within the data (Lin et al., WACV 2024, section 3.3).

    Args:
        prediction: What the network predicts.
        signal: sqrt(kept), the share of the clean chunk at the first level of the sampler.
        spacing: Of the sampler.

    Raises:
        ValueError: The network predicts epsilon, and hardly any signal is left; or most of the
            signal is.
    """
    if signal > MOST_SIGNAL:
        raise ValueError(
            f"The sampler would start from pure noise ({spacing} spacing) at a level that keeps "
            f"{signal:.2f} of the signal; "
            f"allowed: at most {MOST_SIGNAL}, as with spacing=trailing, or with fewer sampling "
            f"steps."
        )
    if prediction == "epsilon" and signal < LEAST_SIGNAL:
        raise ValueError(
            f"prediction is 'epsilon' and the sampler starts ({spacing} spacing) at a level that "
            f"keeps {signal:.1e} of "
            f"the signal; allowed for epsilon: first levels that keep at least {LEAST_SIGNAL}, as "
            f"with spacing=leading and "
            "fewer sampling steps than noise levels; or prediction=sample or v, which are sound "
            "at every level."
        )


def target_of(prediction: Prediction, clean: Tensor, noise: Tensor, kept: Tensor) -> Tensor:
    """Returns what the network shall say of sqrt(kept) clean + sqrt(1 - kept) noise.

    Args:
        prediction: `sample`: the clean chunk; `epsilon`: the noise; `v`: sqrt(kept) noise - sqrt(1
            - kept) clean (Salimans and Ho, ICLR 2022, section 4).
        clean: (B, K, T, A).
        noise: The same shape.
        kept: The share of the variance that is signal, broadcast to it.
    """
    if prediction == "sample":
        return clean
    return noise if prediction == "epsilon" else kept.sqrt() * noise - (1 - kept).sqrt() * clean


def clean_chunk(prediction: Prediction, predicted: Tensor, noisy: Tensor, kept: Tensor) -> Tensor:
    """Returns the clean chunk that a prediction stands for, the inverse of `target_of`; arguments as there."""
    if prediction == "sample":
        return predicted
    if prediction == "epsilon":
        return (noisy - (1 - kept).sqrt() * predicted) / kept.sqrt()
    return kept.sqrt() * noisy - (1 - kept).sqrt() * predicted


def next_level(
    scheduler: Scheduler,
    clean: Tensor,
    step: Tensor,
    noisy: Tensor,
    *,
    reach: float,
    generator: torch.Generator,
) -> Tensor:
    """Takes one step of the sampler.

    Args:
        scheduler: With its steps set.
        clean: (B, K, T, A) the clean chunk as predicted now.
        step: One of the scheduler's `timesteps`.
        noisy: (B, K, T, A) the chunk at that level.
        reach: Largest magnitude of a clean action.
        generator: For samplers that draw noise.

    Returns:
        (B, K, T, A) the chunk at the next level. After the last step that is the clean chunk
        itself: diffusers' DDIM finds the level after a step by subtracting a whole number, and for
        some numbers of steps, such as 6 of 100, would end one early.
    """
    if step == scheduler.timesteps[-1]:
        return clean.clamp(-reach, reach)
    if not isinstance(scheduler, DDIMScheduler | DDPMScheduler):  # The third clips nothing itself.
        clean = clean.clamp(-reach, reach)
    further = {"generator": generator} if isinstance(scheduler, DDPMScheduler) else {}
    return scheduler.step(clean, int(step), noisy, return_dict=False, **further)[0]
