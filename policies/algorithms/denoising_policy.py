"""The base of policies that generate chunks from noise, and the samplers of diffusion policies.

All samplers get the clean chunk that follows from the network's output, whatever it predicts, so
one conversion serves all.
"""

import copy
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, Protocol, cast, get_args

import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from torch import Tensor

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.algorithms.chunk_policy import ActionPlaces, ChunkPolicy, DenoisingSettings
from stringline.policies.algorithms.learned_policy import Generators, normal
from stringline.policies.networks.denoiser import (
    Denoiser,
    DenoiserFactory,
    DenoiserOfStates,
    EncoderOfPlaces,
    Precomputed,
)
from stringline.policies.networks.inputs import NormalisedPrefix, TokenPlaces
from stringline.policies.networks.placed_denoiser import PlacedDenoiser
from stringline.policies.observation.interfaces import ConditioningTokens, state_width

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


class DenoisingPolicy(ChunkPolicy):
    """Generates chunks by a network over noisy chunks.

    Attributes:
        denoiser: The network.
        sampling_steps: Steps from noise to data at run time.
        noise_samples: Noise samples per observation and training step.
    """

    denoiser: Denoiser

    def __init__(
        self, settings: DenoisingSettings, contract: Contract, statistics: Statistics
    ) -> None:
        super().__init__(settings, contract, statistics)
        self.denoiser = self.make_network(settings, settings.denoiser)
        self.sampling_steps = settings.sampling_steps
        self.noise_samples = settings.noise_samples

    def make_network(
        self, settings: DenoisingSettings, factory: DenoiserFactory | None
    ) -> Denoiser:
        """Builds a network over noisy chunks by a factory; if None, the transformer."""
        sizes = {
            "action_dim": self.action_dim,
            "chunk": self.chunk,
            "conditioning_dim": self.observation_encoder.dim,
            "state_dim": state_width(self.observation_encoder),
        }
        places = settings.action_places
        if places is None:
            return settings.network(factory, **sizes)
        if factory is not None:
            raise ValueError(
                "action_places need the transformer; allowed: no other denoiser and no other "
                "energy."
            )
        encoder = self.observation_encoder
        if not isinstance(encoder, EncoderOfPlaces):
            raise ValueError(
                f"action_places with {type(encoder).__name__}, whose tokens have no places; "
                f"allowed: ObservationEncoder."
            )
        return PlacedDenoiser(
            **sizes,
            encoding=encoder.encoding_of_places(
                places.encoding, heads=settings.heads, head_dim=settings.dim // settings.heads
            ),
            arms=self.action_space.arms,
            positions=self._positions(places),
            values=places.values,
            dim=settings.dim,
            depth=settings.depth,
            heads=settings.heads,
        )

    @property
    def reach(self) -> float | Tensor:
        """The largest magnitude of generated actions."""
        return self.range_reach

    def noise(self, noise: Tensor) -> Tensor:
        """Returns standard normal numbers (B, K, R, action_dim) as the noise of smooth chunks."""
        return noise if self.posture is None else self.posture.noise(noise)

    def follow(self, clean: Tensor, prefix: NormalisedPrefix | None) -> Tensor:
        """Moves clean chunks (B, K, R, action_dim) to a prefix, which they then go on from."""
        if prefix is None:
            return clean
        return prefix.blend(clean if self.posture is None else self.posture.follow(clean, prefix))

    def denoised(
        self,
        network: Denoiser,
        noisy: Tensor,
        level: Tensor,
        precomputed: Precomputed,
        present: Tensor | None,
    ) -> Tensor:
        """Returns the output of a network for noisy chunks, both smooth, in their type."""
        output = network(self.smooth(noisy), level, precomputed, present)
        return self.smooth(output.to(noisy.dtype))

    def precompute(self, network: Denoiser, conditioning: ConditioningTokens) -> Precomputed:
        """Precomputes tensors of conditioning tokens, once per observation."""
        if isinstance(network, PlacedDenoiser):
            places = conditioning.places
            assert places is not None  # `make_network` has checked the encoder.
            return network.precompute(
                conditioning.tokens,
                conditioning.state,
                places=places if network.positions is None else self._normalised(places),
            )
        if conditioning.state is None:
            return network.precompute(conditioning.tokens)
        reader = cast("DenoiserOfStates", network)
        return reader.precompute(conditioning.tokens, conditioning.state)

    def _positions(self, places: ActionPlaces) -> list[list[int]] | None:
        """Returns the generated numbers that are positions of the grippers; None if not needed."""
        if places.at == "gripper":
            return None
        if self.posture is not None:
            raise ValueError(
                "action_places.at is noisy_pose with policy.posture, whose numbers are no "
                "positions; allowed: action_places=gripper, or policy.posture=null."
            )
        if self.action_space.positions is None:
            raise ValueError(
                f"action_places.at is noisy_pose with actions of the space "
                f"{self.action_space.name!r}; allowed: 'gripper_poses' (action=gripper_poses)."
            )
        return [list(axes) for axes in self.action_space.positions]

    def _normalised(self, places: TokenPlaces) -> TokenPlaces:
        """Returns places with grippers and directions for normalised positions of actions.

        A generated number x is a position of `restore(x)`, an affine function, in metres.
        """
        zeros = torch.zeros(self.action_dim, device=places.grippers.device)
        positions = torch.tensor(self.action_space.positions)
        positions = positions.to(zeros.device, non_blocking=True)
        origin = self.action_range.restore(zeros)
        metres = (self.action_range.restore(zeros + 1) - origin)[positions]
        directions = places.directions
        ahead = (directions * origin[positions][:, None].to(directions.dtype)).sum(dim=-1)
        return replace(
            places,
            grippers=places.grippers + ahead,
            directions=directions * metres[:, None].to(directions.dtype),
        )
