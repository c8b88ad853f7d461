"""Accuracy of samplers with few steps: distances of their chunks to the true distribution.

    python benchmarks/samplers.py --json samplers.json
    python benchmarks/samplers.py --write                     # also the table in docs/policies.md
    python benchmarks/samplers.py --draws 500 --training 20   # to see that it runs

Names: sampler/<policy>/<sampler>/<steps>, and sampler/floor. <policy>/<sampler> is one of
    diffusion/ddim, diffusion/ddim_leading (the spacing that others ship), diffusion/ddpm,
    diffusion/dpm_solver, flow/euler, flow/midpoint, flow/heun, energy/euler.
The target is known: chunks of 2 actions of ALOHA on two arcs, 3 of 10 on the one, 0.02 thick.
Diffusion and flow policies are given the best network there is, in closed form, so the error is
that of the sampler alone. The energy policy proposes with that network and the given number of
steps; its energy is learned here, with each number of steps anew. The figure is the sliced
Wasserstein-1 distance to the target within the plane of the arcs, in normalised actions; peer
`floor` is that of a second set of as many draws of the target itself. `calls` counts how often
networks are asked, one after the other.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypedDict, get_args

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from stringline.datasets.contract.contract import Camera
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.loading.statistics import Statistics, statistics_of
from stringline.encoders.coordinates.coordinates import MetricPlaces
from stringline.encoders.positions.presets import CayleyString
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.algorithms.diffusion import DiffusionPolicy, DiffusionSettings
from stringline.policies.algorithms.energy import EnergyPolicy, EnergySettings
from stringline.policies.algorithms.flow import EVALUATIONS, FlowPolicy, FlowSettings, Solver
from stringline.policies.algorithms.samplers import Sampler, Spacing
from stringline.policies.observation.interfaces import ConditioningTokens, ObservationEncoderFactory
from stringline.policies.observation.observation_encoder import ObservationEncoder
from stringline.policies.observation.observation_settings import ObservationSettings

PAGE = Path(__file__).parents[1] / "docs" / "policies.md"
BEGIN, END = "<!-- samplers: begin -->", "<!-- samplers: end -->"
CHUNK, ACTIONS, WIDTH = 2, 14, 64
DIFFUSION: dict[str, tuple[Sampler, Spacing]] = {
    "ddim": ("ddim", "trailing"),
    "ddim_leading": ("ddim", "leading"),
    "ddpm": ("ddpm", "trailing"),
    "dpm_solver": ("dpm_solver", "trailing"),
}
STEPS = (1, 2, 4, 8, 16, 32)
LEADING_STEPS = (
    4,
    8,
    16,
    32,
)  # With fewer it would start where most of the data shows, and is refused.
ENERGY_STEPS = (1, 2, 4, 8)
FLOOR = "sampler/floor"


class Sizes(TypedDict):
    """What all policies are built with."""

    observation_encoder: ObservationEncoderFactory
    chunk: int
    dim: int
    depth: int


class TwoArcs:
    """The target: Gaussians in a row along two half circles, in a plane of the chunks."""

    thickness = 0.02

    def __init__(self, points: int = 200) -> None:
        """Lays them out."""
        generator = torch.Generator().manual_seed(7)
        self.plane = torch.linalg.qr(torch.randn(CHUNK * ACTIONS, 2, generator=generator))[0]
        angle = math.pi * (torch.arange(points) + 0.5) / points
        arc = 1.25 * torch.stack((angle.cos() + 0.5, angle.sin()), dim=1)
        self.means = torch.cat((arc, -arc))
        self.weights = torch.cat(
            (torch.full((points,), 0.3 / points), torch.full((points,), 0.7 / points))
        )

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Returns chunks (count, T, A)."""
        means = self.means[
            torch.multinomial(self.weights, count, replacement=True, generator=generator)
        ]
        chunks = means @ self.plane.T + self.thickness * torch.randn(
            count, CHUNK * ACTIONS, generator=generator
        )
        return chunks.reshape(count, CHUNK, ACTIONS)

    def clean(self, noisy: Tensor, signal: Tensor, noise: Tensor) -> Tensor:
        """Returns the posterior mean (B, K, T, A) of chunks given signal chunk + noise N(0, 1)."""
        flat = noisy.flatten(2)
        signal, variance = (
            signal[..., None],
            (signal * self.thickness)[..., None] ** 2 + noise[..., None] ** 2,
        )
        seen = flat @ self.plane
        odds = self.weights.log() - (
            seen[:, :, None] - signal[..., None] * self.means
        ).square().sum(dim=-1) / (2 * variance)
        mean = odds.softmax(dim=-1) @ self.means @ self.plane.T
        return (mean + signal * self.thickness**2 / variance * (flat - signal * mean)).reshape(
            noisy.shape
        )


class BestDenoiser(nn.Module):
    """Predicts the clean chunk of a diffusion policy as well as it can be."""

    def __init__(self, target: TwoArcs, kept: Tensor) -> None:
        """Takes the share of signal in the variance at each level."""
        super().__init__()
        self.target, self.kept = target, kept

    def precompute(self, conditioning: Tensor) -> Sequence[tuple[Tensor, ...]]:
        """Needs nothing of the memory."""
        return []

    def forward(
        self,
        noisy: Tensor,
        level: Tensor,
        precomputed: Sequence[tuple[Tensor, ...]],
        present: Tensor | None = None,
    ) -> Tensor:
        """See `Denoiser`."""
        kept = self.kept[(level * len(self.kept)).round().long()]
        return self.target.clean(noisy, kept.sqrt(), (1 - kept).sqrt())


class BestVelocity(BestDenoiser):
    """Predicts the velocity of a flow policy as well as it can be."""

    def forward(
        self,
        noisy: Tensor,
        level: Tensor,
        precomputed: Sequence[tuple[Tensor, ...]],
        present: Tensor | None = None,
    ) -> Tensor:
        """See `Denoiser`."""
        level = level.clamp(min=1e-4)  # Heun asks at 0 too, where the velocity is the limit.
        clean = self.target.clean(noisy, 1 - level, level)
        return (clean - noisy) / level[..., None, None]


class Bench:
    """Builds policies and measures their draws."""

    def __init__(self, draws: int, training: int) -> None:
        """Sets how many chunks are drawn, and for how many steps an energy is trained."""
        self.target, self.draws, self.training = TwoArcs(), draws, training
        self.contract = ALOHA.contract([Camera("overhead", 16, 16, "simulated")], 50.0)
        rows = np.stack([ALOHA.lower, ALOHA.upper])
        self.statistics = Statistics(
            {key: statistics_of(lambda: iter([rows])) for key in ("action", "joints/position")}
        )
        settings = ObservationSettings(
            encoding=partial(CayleyString, wavelengths=(0.04, 2.0)),
            coordinates=MetricPlaces(),
            dim=WIDTH,
            depth=1,
            heads=2,
        )
        observation_encoder = partial(ObservationEncoder, settings)
        self.sizes: Sizes = {
            "observation_encoder": observation_encoder,
            "chunk": CHUNK,
            "dim": WIDTH,
            "depth": 2,
        }
        self.truth = self.target.draw(draws, torch.Generator().manual_seed(1))

    def floor(self) -> float:
        """Returns the distance of a second set of draws of the target."""
        return self.distance(self.target.draw(self.draws, torch.Generator().manual_seed(2)))

    def distance(self, chunks: Tensor) -> float:
        """Returns the sliced Wasserstein-1 distance of chunks (draws, T, A), 60 directions."""
        angle = math.pi * torch.arange(60) / 60
        directions = self.target.plane @ torch.stack((angle.cos(), angle.sin()))
        one, other = (points.flatten(1) @ directions for points in (chunks, self.truth))
        return float((one.sort(dim=0).values - other.sort(dim=0).values).abs().mean())

    def drawn(self, policy: ChunkPolicy) -> float:
        """Returns the distance of a policy's chunks."""
        conditioning = ConditioningTokens(torch.zeros(self.draws, 1, WIDTH))
        with torch.inference_mode():
            return self.distance(
                policy.eval().generate(conditioning, torch.Generator().manual_seed(0))
            )

    def diffusion(self, sampler: Sampler, spacing: Spacing, steps: int) -> tuple[float, int]:
        """Returns the distance of a diffusion sampler, and its calls."""
        settings = DiffusionSettings(
            **self.sizes, sampling_steps=steps, sampler=sampler, spacing=spacing
        )
        policy = DiffusionPolicy(settings, self.contract, self.statistics)
        policy.denoiser = BestDenoiser(self.target, policy.scheduler.alphas_cumprod)
        return self.drawn(policy), steps

    def flow(self, solver: Solver, steps: int) -> tuple[float, int]:
        """Returns the distance of a flow, and its calls."""
        policy = FlowPolicy(
            FlowSettings(**self.sizes, sampling_steps=steps, solver=solver),
            self.contract,
            self.statistics,
        )
        policy.denoiser = BestVelocity(self.target, torch.empty(0))
        return self.drawn(policy), steps * EVALUATIONS[solver]

    def energy(self, steps: int) -> tuple[float, int]:
        """Returns the distance of an energy policy over a flow of Euler steps, and its calls."""
        torch.manual_seed(0)
        policy = EnergyPolicy(
            EnergySettings(**self.sizes, sampling_steps=steps), self.contract, self.statistics
        )
        policy.denoiser = BestVelocity(self.target, torch.empty(0))
        parameters = list(policy.energy.parameters())  # type: ignore[attr-defined]
        optimizer = torch.optim.AdamW(parameters, 5e-3, weight_decay=0)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=self.training)
        conditioning, mask = (
            ConditioningTokens(torch.zeros(64, 1, WIDTH)),
            torch.ones(64, CHUNK, dtype=torch.bool),
        )
        generator = torch.Generator().manual_seed(3)
        for _ in range(self.training):
            policy.chunk_ranking(conditioning, self.target.draw(64, generator), mask).backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        # One call chooses, Langevin looks once before its first step and once after each.
        return self.drawn(policy), steps + 1 + 1 + policy.refining_steps + policy.landing_steps


def measured(bench: Bench) -> Iterator[dict[str, object]]:
    """Yields one entry after the other."""
    floor = bench.floor()
    runs: list[tuple[str, Callable[[], tuple[float, int]]]] = [(FLOOR, lambda: (floor, 0))]
    for name, (sampler, spacing) in DIFFUSION.items():
        allowed = LEADING_STEPS if spacing == "leading" else STEPS
        runs += [
            (f"sampler/diffusion/{name}/{steps}", partial(bench.diffusion, sampler, spacing, steps))
            for steps in allowed
        ]
    for solver in get_args(Solver):
        runs += [
            (f"sampler/flow/{solver}/{steps}", partial(bench.flow, solver, steps))
            for steps in STEPS
        ]
    runs += [
        (f"sampler/energy/euler/{steps}", partial(bench.energy, steps)) for steps in ENERGY_STEPS
    ]
    for name, run in tqdm(runs, disable=None):
        value, calls = run()
        yield {
            "name": name,
            "value": value,
            "unit": "1",
            "peer": "floor",
            "ratio": value / floor,
            "calls": calls,
        }


def table(entries: Sequence[dict[str, object]], command: str) -> str:
    """Returns the page's table: a row per sampler, a column per number of steps."""
    rows: dict[str, dict[str, str]] = {}
    for entry in entries:
        sampler, _, steps = str(entry["name"]).removeprefix("sampler/").rpartition("/")
        rows.setdefault(sampler, {})[steps] = f"{entry['value']:.4f} ({entry['calls']})"
    floor = next(entry["value"] for entry in entries if entry["name"] == FLOOR)
    rows.pop("", None)
    lines = [f"| policy/sampler | {' | '.join(map(str, STEPS))} |", f"|---|{'---|' * len(STEPS)}"]
    lines += [
        f"| {name} | {' | '.join(cells.get(str(steps), '') for steps in STEPS)} |"
        for name, cells in rows.items()
    ]
    return "\n".join((f"`{command}`; floor {floor:.4f}.", "", *lines))


def main() -> None:
    """Prints the figures and, if asked, writes them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--write", action="store_true", help="put the table into docs/policies.md")
    parser.add_argument("--draws", type=int, default=2000, help="chunks per figure")
    parser.add_argument(
        "--training", type=int, default=400, help="steps for which each energy is trained"
    )
    given = parser.parse_args()
    if given.draws < 2 or given.training < 1:
        parser.error(
            f"--draws is {given.draws} and --training is {given.training}; allowed: from 2, and "
            f"from 1"
        )
    entries = []
    for entry in measured(Bench(given.draws, given.training)):
        print(
            (
                f"{entry['name']:40s} {entry['value']:8.4f}   {entry['ratio']:7.2f} x floor   "
                f"{entry['calls']:3d} calls"
            ),
            flush=True,
        )
        entries.append(entry)
    if given.json is not None:
        given.json.write_text(json.dumps(entries, indent=2) + "\n")
    if given.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        command = f"python benchmarks/samplers.py --draws {given.draws} --training {given.training}"
        PAGE.write_text(
            f"{before}{BEGIN}\n{table(entries, command)}\n{END}{rest.partition(END)[2]}"
        )


if __name__ == "__main__":
    main()
