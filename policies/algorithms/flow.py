"""The flow policy: action chunks carried from noise to data along straight lines, given an observation's tokens.

Flow matching (Lipman et al., ICLR 2023, arXiv 2210.02747, equation 23) on the linear path of
rectified flow (Liu et al., ICLR 2023, arXiv 2209.03003, equation 1). At noise level s from 0 (data)
to 1 (noise) a chunk is (1 - s) data + s noise, and the network learns the velocity data - noise.
Levels count from the data, as in diffusion, against the time of those papers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.algorithms.policy_settings import DenoisingSettings
from stringline.policies.algorithms.samplers import known, starting_noise
from stringline.policies.networks.committed import Committed
from stringline.policies.networks.denoiser import Denoiser, Remembered
from stringline.policies.networks.masked import masked_mean
from stringline.policies.observation.observation_encoder import Memory

Solver = Literal["euler", "midpoint", "heun"]
EVALUATIONS: dict[Solver, int] = {"euler": 1, "midpoint": 2, "heun": 2}
"""How often each asks the network per step."""

Velocity = Callable[[Tensor, float], Tensor]


def walk(velocity: Velocity, start: Tensor, *, level: float, steps: int, solver: Solver) -> Tensor:
    """Integrates d chunk / d (-level) = velocity(chunk, level) from a noise level down to 0 in equal steps.

    Args:
        velocity: The direction from noise to data at a chunk and its level.
        start: The chunk at the first level, of any shape.
        level: The first level, above 0; 1 is noise alone.
        steps: Number of steps.
        solver: `euler` is of first order; `midpoint` and `heun` (explicit trapezoid) are of second
            order and ask twice a step.

    Returns:
        The chunk at level 0, of the same shape.
    """
    chunk = start
    width = level / steps
    for step in range(steps):
        here = level * (1 - step / steps)
        slope = velocity(chunk, here)
        if solver == "midpoint":
            slope = velocity(chunk + width / 2 * slope, here - width / 2)
        elif solver == "heun":
            slope = (slope + velocity(chunk + width * slope, max(here - width, 0.0))) / 2
        chunk = chunk + width * slope
    return chunk


Levels = Literal["uniform", "beta"]


@dataclass(frozen=True, kw_only=True)
class FlowSettings(DenoisingSettings):
    """What is chosen about a flow policy; its denoiser says the velocity.

    Attributes:
        solver: How a step is taken; see `flow_steps.walk`.
        levels: How often each noise level is trained: `uniform`, or `beta`: 0.001 + 0.999 Beta(1.5,
            1), which looks more often at much noise (Black et al., pi0, 2024, arXiv 2410.24164,
            appendix B, as openpi has it).
    """

    solver: Solver = "euler"
    levels: Levels = "beta"

    def __post_init__(self) -> None:
        """See the base."""
        super().__post_init__()
        known(self.solver, "solver", get_args(Solver))
        known(self.levels, "distribution of levels", get_args(Levels))


class FlowPolicy(ChunkPolicy):
    """Flow matching over normalised action chunks."""

    denoiser: Denoiser

    def __init__(self, settings: FlowSettings, contract: Contract, statistics: Statistics) -> None:
        """Builds the policy; see `ChunkPolicy`.

        Raises:
            ValueError: A size does not divide.
        """
        super().__init__(settings, contract, statistics)
        self.denoiser = settings.network(
            settings.denoiser, action_dim=self.action_dim, memory_dim=self.memory.dim
        )
        self.sampling_steps = settings.sampling_steps
        self.draws = settings.draws
        self.solver: Solver = settings.solver
        self.levels: Levels = settings.levels

    def chunk_loss(self, memory: Memory, action: Tensor, mask: Tensor) -> Tensor:
        """Mean squared error of the predicted velocity over the actions inside the episode."""
        clean = action[:, None].expand(-1, self.draws, -1, -1)
        noise = torch.randn_like(clean)
        level = self._draw_levels(clean.shape[:2], clean)
        noisy = torch.lerp(clean, noise, level[..., None, None])
        velocity = self.denoiser(
            noisy, level, self.denoiser.remember(memory.tokens), memory.present
        ).float()
        return masked_mean((velocity - (clean - noise)) ** 2, mask)

    def generate(
        self, memory: Memory, generator: torch.Generator, committed: Committed | None = None
    ) -> Tensor:
        """Walks from noise to data; see `ChunkPolicy.generate`, and `settled_walk` for what is committed."""
        return self.propose(memory, self.denoiser.remember(memory.tokens), 1, generator, committed)[
            :, 0
        ]

    def propose(
        self,
        memory: Memory,
        remembered: Remembered,
        draws: int,
        generator: torch.Generator | None,
        committed: Committed | None = None,
    ) -> Tensor:
        """Draws K normalised chunks per observation.

        Args:
            memory: Of B observations.
            remembered: Of that memory, by the denoiser.
            draws: K.
            generator: Of the noise; None: torch's own.
            committed: What the chunks have to keep to; None: nothing.

        Returns:
            (B, K, T, A).
        """
        noise = starting_noise(memory.tokens, draws, (self.chunk, self.action_dim), generator)
        if committed is not None:
            committed.fit(noise[:, 0].shape)
        return self.settled_walk(
            noise, 1.0, self.sampling_steps, remembered, memory.present, committed
        )

    def settled_walk(
        self,
        noisy: Tensor,
        level: float,
        steps: int,
        remembered: Remembered,
        present: Tensor | None,
        committed: Committed | None,
    ) -> Tensor:
        """Carries chunks from a noise level to the data.

        What is committed is inpainted: its velocity is that of the straight line from where it
        starts to the committed action, blended with the network's by the weight, so at every level
        the free actions see it with the noise they expect. Black, Galliker and Levine (2025, arXiv
        2506.07339, equation 2) also send the gradient of the mismatch through the network, which
        moves the free actions directly and costs a backward pass per step; here they only attend to
        it.

        Args:
            noisy: (B, K, T, A) at that level.
            level: Above 0, up to 1.
            steps: To take.
            remembered: Of the memory, by the denoiser.
            present: Of the memory.
            committed: What to keep to; None: nothing.

        Returns:
            (B, K, T, A), within the reach of the data.
        """
        line = None if committed is None else (committed.action[:, None] - noisy) / level

        def velocity(chunk: Tensor, here: float) -> Tensor:
            levels = torch.full(chunk.shape[:2], here, dtype=chunk.dtype, device=chunk.device)
            free = self.denoiser(chunk, levels, remembered, present).to(chunk.dtype)
            return free if committed is None else committed.pull(free, line)

        reach = self.action_range.reach
        chunk = walk(velocity, noisy, level=level, steps=steps, solver=self.solver).clamp(
            -reach, reach
        )
        return chunk if committed is None else committed.settle(chunk)

    def _draw_levels(self, shape: torch.Size, like: Tensor) -> Tensor:
        """Returns random noise levels of that shape, from torch's own generator."""
        even = torch.rand(shape, dtype=like.dtype, device=like.device)
        # Beta(1.5, 1) has the distribution function x^1.5, so its quantiles are u^(2/3).
        return even if self.levels == "uniform" else 0.001 + 0.999 * even ** (2 / 3)
