"""Accuracy of samplers with few steps: distances of their chunks to the true distribution.

    python benchmarks/samplers.py --json samplers.json
    python benchmarks/samplers.py --write                     # also docs/lab/policies.md
    python benchmarks/samplers.py --draws 500 --training 20   # a short trial

Names: sampler/<policy>/<sampler>/<steps>, and sampler/floor. <policy>/<sampler> is one of
    diffusion/ddim, diffusion/ddim_leading (the spacing that others ship), diffusion/ddpm,
    diffusion/dpm_solver, flow/euler, flow/midpoint, flow/heun, energy/euler.
The target is known: chunks of 2 actions of ALOHA on two arcs with a thickness of 0.02, 3 of 10 on
the first arc. Diffusion and flow policies have the best possible network, in closed form, so the
error is that of the sampler alone. The energy policy proposes with that network and the given
number of steps; its energy is trained here, anew for each number of steps. The value is the sliced
Wasserstein-1 distance to the target in the plane of the arcs, in normalised actions; the peer
`floor` is the distance of a second set of as many draws of the target itself. `calls` is the number
of successive evaluations of networks.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypedDict, get_args

import numpy as np
import torch
from known_target import CHUNK, BestDenoiser, BestVelocity, TwoArcs
from measurement import Row, parser_of, row, write_rows
from torch import Tensor
from tqdm import tqdm

from stringline.datasets.contract.contract import Camera
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.loading.statistics import Statistics, statistics_of
from stringline.encoders.coordinates.coordinates import MetricPlaces
from stringline.encoders.positions.rotary import CayleyString
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.algorithms.denoising_policy import Sampler, Spacing
from stringline.policies.algorithms.diffusion import DiffusionPolicy, DiffusionSettings
from stringline.policies.algorithms.energy import EnergyPolicy, EnergySettings
from stringline.policies.algorithms.flow import EVALUATIONS, FlowPolicy, FlowSettings, Solver
from stringline.policies.observation.interfaces import ConditioningTokens, ObservationEncoderFactory
from stringline.policies.observation.observation_encoder import ObservationEncoder
from stringline.policies.observation.observation_settings import ObservationSettings

PAGE = Path(__file__).parents[1] / "docs" / "lab" / "policies.md"
BEGIN, END = "<!-- samplers: begin -->", "<!-- samplers: end -->"
WIDTH = 64
DIFFUSION: dict[str, tuple[Sampler, Spacing]] = {
    "ddim": ("ddim", "trailing"),
    "ddim_leading": ("ddim", "leading"),
    "ddpm": ("ddpm", "trailing"),
    "dpm_solver": ("dpm_solver", "trailing"),
}
STEPS = (1, 2, 4, 8, 16, 32)
# With fewer steps the first noise level would still contain most of the signal; that is an error.
LEADING_STEPS = (4, 8, 16, 32)
ENERGY_STEPS = (1, 2, 4, 8)
FLOOR = "sampler/floor"


class Sizes(TypedDict):
    """Arguments of all policies."""

    observation_encoder: ObservationEncoderFactory
    chunk: int
    dim: int
    depth: int


class Bench:
    """Builds policies and measures their draws; energies are trained for `training` steps."""

    def __init__(self, draws: int, training: int) -> None:
        self.target = TwoArcs()
        self.draws = draws
        self.training = training
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
        conditioning = ConditioningTokens(torch.zeros(64, 1, WIDTH))
        mask = torch.ones(64, CHUNK, dtype=torch.bool)
        generator = torch.Generator().manual_seed(3)
        for _ in range(self.training):
            policy.chunk_ranking(conditioning, self.target.draw(64, generator), mask).backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        # One call chooses; Langevin makes one before its first step and one after each step.
        return self.drawn(policy), steps + 1 + 1 + policy.refinement_steps + policy.final_steps


def measured(bench: Bench) -> Iterator[Row]:
    """Measures all samplers and yields their lines."""
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
        yield row(name, value, "1", "floor", value / floor, calls=calls)


def table(entries: Sequence[Row], command: str) -> str:
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
    """Prints the results and writes them on request."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--write", action="store_true", help="write the table to docs/lab/policies.md"
    )
    parser.add_argument("--draws", type=int, default=2000, help="chunks per sampler")
    parser.add_argument("--training", type=int, default=400, help="training steps of each energy")
    given = parser.parse_args()
    if given.draws < 2 or given.training < 1:
        parser.error(
            f"--draws is {given.draws} and --training is {given.training}; allowed: 2 and "
            f"above, and 1 and above"
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
    write_rows(entries, given.json)
    if given.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        command = f"python benchmarks/samplers.py --draws {given.draws} --training {given.training}"
        PAGE.write_text(
            f"{before}{BEGIN}\n{table(entries, command)}\n{END}{rest.partition(END)[2]}"
        )


if __name__ == "__main__":
    main()
