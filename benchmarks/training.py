"""Costs of training and inference beside the U-Net of diffusion policy and ACT.

    python benchmarks/training.py --json training.json
    python benchmarks/training.py --only diffusion act --rounds 3 --skip-compiled

All policies together take more than ten minutes on two cores. Those with a ResNet need the extra
`pretrained`. Policies: diffusion (the default), flow, energy, diffusion_unet (the U-Net of
diffusion policy) and act, both with their published sizes. All get three RGB-D cameras of ALOHA
with 128x128 pixels, of which those with a ResNet use the colours alone, and generate 48 actions;
the images are random and in memory.

The last part trains by the real loop, `Trainer.fit`, beside the same network over one batch that
stays on the device. On a machine with a GPU (docs/gpu.md):

    python benchmarks/training.py --device cuda --trainer gpu --batch 256 --json training.json

Names:
    samples/<policy>
        Windows per second in training by the default recipe (batch, precision, optimiser, moving
        average of `trainer=laptop`), the best round; peer `diffusion_unet`, ratio of rates.
    share/<policy>/<data|encoder|denoiser|backward|optimiser>
        Share of a step's time in that round: waiting for the batch; the images and joints
        (forward); the actions (forward); both (backward); and clipping, AdamW and the moving
        average.
    memory/<policy>
        Largest memory of training, MiB: of the process, beyond that with all libraries loaded, or
        of the GPU.
    latency/<policy>/<eager|folded|compiled|folded_compiled>
        Milliseconds per chunk of one observation, the best round; peer `eager`, ratio of times.
        Folded: encodings multiplied into the weights, for policies with a basis; compiled: by
        torch.compile.
    loop/<policy>
        Windows per second by the real loop; peer `resident`, forward and backward pass, clipping
        and AdamW over one batch on the device, ratio of rates.
    outside/<policy>
        Share of a step of the loop that is not spent in the network: 1 minus that ratio. Limit: 5 %
        on two cores, 10 % on a GPU.
    waits/<policy>
        With a GPU: waits of the host for the device per step; limit 0 with `--trainer gpu`.
    option/<name>
        With `--options`: windows per second by the loop with one option of the trainer, the first
        policy; peer `plain`, without any of them, ratio of rates. `all` is the chosen trainer.

All policies are measured in turn, round after round. `spread` is the median round over the best
one; if it is large, the machine was busy.
"""

import argparse
import copy
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
import torch._dynamo
from measurement import Row, parser_of, row, write_rows
from torch import Tensor
from tqdm import tqdm
from training_loop import OPTIONS, measure_loop, measure_options
from training_phases import PHASES, Clock, Training
from training_setting import Setting

from stringline.datasets.command.entry_points import keep_freed_memory
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.encoders.training.checkpoint import build
from stringline.encoders.vision.vit import VisionTransformer
from stringline.policies.algorithms.chunk_policy import ChunkPolicy

POLICIES = ("diffusion", "flow", "energy", "diffusion_unet", "act")
PEER = "diffusion_unet"


def measure_training(setting: Setting, names: Sequence[str], rounds: int, steps: int) -> list[Row]:
    """Trains all policies in turn."""
    windows = setting.windows()
    trainings = {}
    for name in names:
        trainer = build(setting.settings(name)["trainer"])
        trainings[name] = Training(setting.policy(name, windows), windows, trainer, setting.batch)
    took: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in tqdm(range(rounds), desc="training", disable=None):
        for name, training in trainings.items():
            took[name].append(training.round(steps))
    totals = {name: sorted(sum(each.values()) for each in found) for name, found in took.items()}
    rates = {name: setting.batch / found[0] for name, found in totals.items()}
    rows = []
    for name in names:
        spread = totals[name][rounds // 2] / totals[name][0]
        rows.append(
            row(
                f"samples/{name}",
                rates[name],
                "windows/s",
                PEER,
                rates[name] / rates[PEER] if PEER in rates else None,
                spread=spread,
            )
        )
        best = min(took[name], key=lambda each: sum(each.values()))
        rows += [
            row(f"share/{name}/{phase}", best[phase] / totals[name][0], "share") for phase in PHASES
        ]
    return rows


def variants(policy: ChunkPolicy, *, compiled: bool) -> Iterator[tuple[str, ChunkPolicy]]:
    """Yields a policy as trained, compiled, and, if it has a basis, folded and both."""
    policy = policy.eval()
    yield "eager", policy
    folded = copy.deepcopy(policy)
    foldable = [
        module
        for module in folded.modules()
        if isinstance(module, VisionTransformer) and has_basis(module)
    ]
    for module in foldable:
        module.fold_()
    made = {"compiled": copy.deepcopy(policy)} if compiled else {}
    made |= {"folded": folded} if foldable else {}
    made |= {"folded_compiled": copy.deepcopy(folded)} if foldable and compiled else {}
    for name, variant in made.items():
        for child in variant.children() if "compiled" in name else ():
            child.compile(dynamic=False)
        yield name, variant


def has_basis(transformer: VisionTransformer) -> bool:
    """Returns whether folding changes the weights."""
    return any(encoding.basis() is not None for encoding in transformer.encodings)


def measure_latency(
    setting: Setting, names: Sequence[str], rounds: int, *, compiled: bool
) -> list[Row]:
    """Runs all policies on one observation in turn."""
    torch._dynamo.config.recompile_limit = 1000  # All policies are compilations of the same code.
    windows = setting.windows()
    observed = {
        key: torch.from_numpy(value).to(setting.device) for key, value in windows.batch([0]).items()
    }
    made = {
        (name, variant): policy
        for name in names
        for variant, policy in variants(setting.policy(name, windows), compiled=compiled)
    }
    for policy in tqdm(made.values(), desc="first plans", disable=None):
        for _ in range(2):
            seconds(policy, observed, setting.device)
    took: dict[tuple[str, str], list[float]] = {key: [] for key in made}
    for _ in tqdm(range(rounds), desc="plans", disable=None):
        for key, policy in made.items():
            took[key].append(seconds(policy, observed, setting.device))
    rows = []
    for (name, variant), times in took.items():
        rows.append(
            row(
                f"latency/{name}/{variant}",
                1e3 * min(times),
                "ms",
                "eager",
                min(times) / min(took[name, "eager"]),
                spread=sorted(times)[rounds // 2] / min(times),
            )
        )
    return rows


def seconds(policy: ChunkPolicy, observed: Mapping[str, Tensor], device: str) -> float:
    """Returns the time of a chunk."""
    clock = Clock(device)
    clock.start()
    policy.predict(observed, torch.Generator(device).manual_seed(0))
    clock.stop("denoiser")
    return clock.seconds["denoiser"]


def measure_memory(names: Sequence[str]) -> list[Row]:
    """Trains each policy in a process of its own, with the arguments of this one."""
    rows = []
    for name in tqdm(names, desc="memory", disable=None):
        command = [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:], "--peak", name]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(done.returncode)
        rows.append(row(f"memory/{name}", float(done.stdout.split()[-1]), "MiB"))
    return rows


def peak_mib(setting: Setting, name: str) -> float:
    """Returns the largest memory of a policy's training, beyond libraries and data."""
    windows = setting.windows()
    before = held_mib(setting.device)
    trainer = build(setting.settings(name)["trainer"])
    Training(setting.policy(name, windows), windows, trainer, setting.batch).round(2)
    return held_mib(setting.device) - before


def held_mib(device: str) -> float:
    """Returns the largest memory of this process so far."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="+", default=list(POLICIES), help="these policies")
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--trainer", default="laptop", help="preset of configs/trainer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="per round of training")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--threads", type=int, default=0, help="processor threads; 0 leaves the number to torch"
    )
    parser.add_argument(
        "--skip-memory", action="store_true", help="omit memory, which needs a process per policy"
    )
    parser.add_argument(
        "--skip-compiled", action="store_true", help="omit torch.compile, which takes minutes"
    )
    parser.add_argument(
        "--options", nargs="*", choices=OPTIONS, default=[], help="options of the trainer"
    )
    parser.add_argument("--small", action="store_true", help="small peers, for tests")
    # For the child processes of `measure_memory`.
    parser.add_argument("--peak", choices=POLICIES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    for name in given.only:
        if name not in POLICIES:
            parser.error(str(unknown_name("policy", name, POLICIES)))
    return given


def main() -> None:
    """Prints the table and writes it on request."""
    keep_freed_memory()
    given = parse()
    if given.threads:
        torch.set_num_threads(given.threads)
    setting = Setting(given.batch, given.image_size, given.device, given.small, given.trainer)
    if given.peak:
        print(peak_mib(setting, given.peak))
        return
    rows = [] if given.skip_memory else measure_memory(given.only)
    rows += measure_training(setting, given.only, given.rounds, given.steps)
    rows += measure_latency(setting, given.only, 4 * given.rounds, compiled=not given.skip_compiled)
    rows += measure_loop(setting, given.only, given.rounds, given.steps)
    rows += measure_options(setting, given.only[0], given.options, given.rounds, given.steps)
    for entry in rows:
        beside = "" if entry["ratio"] is None else f"{entry['ratio']:8.3f} x {entry['peer']}"
        spread = f"   spread {entry['spread']:.2f}" if "spread" in entry else ""
        print(f"{entry['name']:40s} {entry['value']:10.3f} {entry['unit']:10s}{beside}{spread}")
    write_rows(rows, given.json)


if __name__ == "__main__":
    main()
