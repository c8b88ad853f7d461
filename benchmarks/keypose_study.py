"""Which part of keypose policies matters: errors of held-out keyposes over several trainings.

    python benchmarks/keypose_study.py runs/bowl_on_rack runs/mug_on_plate --output study.jsonl
    python benchmarks/keypose_study.py runs/bowl_on_rack --output study.jsonl --only cayley,none
    python benchmarks/keypose_study.py runs/bowl_on_rack --output s.jsonl --probe high=runs/high

Each variant is trained from several seeds on each store, by the loop of `stringline-train` and with
its recipe `keyposes`. The error of a training is the mean over its held-out windows of the
logarithm of the distance between predicted and recorded keypose; in measurements these distances
predicted success, at a hundredth of the time of episodes. The same windows are measured with
scene and robot turned together by up to 30 degrees about the vertical axis (`turned`). `--probe
NAME=STORE` measures every training on further recordings as well, such as those of a higher table.

The same command continues a stopped study. The table shows the geometric mean of the distances, and
the ratio to the first variant with a 95 % interval over trainings (Welch's t on the logarithms). If
an interval includes 1, the last column is the number of trainings of each variant at which it would
no longer, if mean and spread stayed as they are.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from scipy import stats

from stringline.datasets.store.store import EpisodeStore
from stringline.encoders.training.checkpoint import build
from stringline.policies.algorithms.keypose_augmentation import SceneAugmentation
from stringline.policies.algorithms.keypose_policy import KeyposePolicy
from stringline.policies.checkpoints.load import load_policy
from stringline.policies.probes.probes import keypose_errors
from stringline.sim.train import train_policy
from stringline.sim.training.training_data import TrainingData, tensors
from stringline.sim.training.training_settings import TrainingSettings

PLACES = ("policy/observation_encoder=places", "policy.observation_encoder.joint_dropout=0.5")
VARIANTS: dict[str, tuple[str, ...]] = {
    "cayley_per_head": (),
    "cayley": ("encoder=cayley",),
    "circulant": ("encoder=circulant",),
    "rope_mixed": ("encoder=rope_mixed",),
    "none": ("encoder=none",),
    "without_values": ("encoder.values=false",),
    "without_place_features": ("policy.observation_encoder.place_features=false",),
    "none_without_place_features": (
        "encoder=none",
        "policy.observation_encoder.place_features=false",
    ),
    "without_gripper_features": ("policy.observation_encoder.gripper_features=false",),
    "without_diffusion": ("policy.refinement=none",),
    "without_hold": ("policy.augmentation.hold=0",),
    "without_motion_of_scenes": ("policy.augmentation.shift_m=0", "policy.augmentation.yaw_rad=0"),
    "mirror": ("policy.augmentation.mirror=true",),
    "image_patches": PLACES,
    "image_patches_none": (*PLACES, "encoder=none"),
}
"""The overrides of each variant; the first is the one that others are compared with."""

TURNED = SceneAugmentation(
    shift_m=0.0,
    yaw_rad=math.pi / 6,
    jitter_m=0.0,
    dropout=0.0,
    colour=0.0,
    opening=0.0,
    gripper_m=0.0,
    hold=0.0,
)
"""The base frame is turned by a random angle: coordinates change, distances do not."""


def main() -> None:
    """Continues the study and prints its table."""
    arguments = _arguments()
    chosen = arguments.only.split(",") if arguments.only else list(VARIANTS)
    probes = dict(one.split("=", 1) for one in arguments.probe)
    for store in arguments.stores:
        for seed in range(arguments.seeds):
            for variant in chosen:
                if not _done(arguments.output, store, variant, seed):
                    row = _measured(store, variant, seed, arguments.steps, probes)
                    with arguments.output.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
    print("\n".join(_table(arguments.output, chosen)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stores", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, required=True, help="JSON lines, one per training")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--only", default="", help=f"variants: {', '.join(VARIANTS)}")
    parser.add_argument("--probe", action="append", default=[], help="NAME=STORE")
    arguments = parser.parse_args()
    unknown = {*(arguments.only.split(",") if arguments.only else ())} - {*VARIANTS}
    if unknown:
        parser.error(f"unknown variants {sorted(unknown)}; allowed: {', '.join(VARIANTS)}")
    return arguments


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    if file.exists():
        yield from (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())


def _done(file: Path, store: Path, variant: str, seed: int) -> bool:
    key = (store.name, variant, seed)
    return any((row["store"], row["variant"], row["seed"]) == key for row in _rows(file))


def _measured(
    store: Path, variant: str, seed: int, steps: int, probes: Mapping[str, str]
) -> dict[str, Any]:
    """Trains a variant and returns its errors."""
    with initialize_config_module("stringline.configs", version_base="1.3"):
        overrides = [
            f"dataset.path={store}",
            "training_recipe=keyposes",
            f"trainer.steps={steps}",
            f"trainer.seed={seed}",
            f"trainer.probe_every={steps}",
            f"trainer.save_every={steps}",
            *VARIANTS[variant],
        ]
        config = OmegaConf.to_container(compose("train", overrides=overrides), resolve=True)
    assert isinstance(config, dict)
    opened = EpisodeStore.open(store)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        settings = TrainingSettings(validation_windows=0)
        history = train_policy(config["policy"], opened, build(config["trainer"]), run, settings)
        policy = load_policy(run / "checkpoint")
    assert isinstance(policy, KeyposePolicy)
    data = TrainingData(opened, settings.held_out)
    errors = {
        "own": _errors(policy, data, data.held_out),
        "turned": _errors(policy, data, data.held_out, TURNED),
    }
    for name, path in probes.items():
        other = TrainingData(EpisodeStore.open(path), 0)
        errors[name] = _errors(policy, other, other.training)
    seconds = max(row["seconds"] for row in history.rows if "seconds" in row)
    return {
        "store": store.name,
        "variant": variant,
        "seed": seed,
        "steps": steps,
        "seconds": round(seconds, 1),
        "errors": errors,
    }


def _errors(
    policy: KeyposePolicy,
    data: TrainingData,
    names: Sequence[Sequence[str]],
    change: SceneAugmentation | None = None,
) -> dict[str, float]:
    """Returns mean logarithms of distances (of mm), and other means, over all windows."""
    windows = data.windows_for(policy, names)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    parts: list[dict[str, torch.Tensor]] = []
    for first in range(0, len(windows), 32):
        batch = tensors(windows, np.arange(first, min(first + 32, len(windows))))
        if change is not None:
            arms = policy.contract.arms
            batch = change(batch, arms, policy.roots, policy.commands.openings)
        parts.append(keypose_errors(policy.predict(batch, generator), batch))
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return {
        "log_mm": float(joined["nearest_mm"].clamp(min=0.1).log().mean()),
        "log_deg": float(joined["rotation_deg"].clamp(min=0.1).log().mean()),
        "right_arm": float(joined["right_arm"].mean()),
    }


def _table(file: Path, chosen: Sequence[str]) -> Iterator[str]:
    rows = list(_rows(file))
    for store in dict.fromkeys(row["store"] for row in rows):
        for probe in dict.fromkeys(name for row in rows for name in row["errors"]):
            found = {
                variant: np.array(
                    [
                        row["errors"][probe]["log_mm"]
                        for row in rows
                        if (row["store"], row["variant"]) == (store, variant)
                        and probe in row["errors"]
                    ]
                )
                for variant in chosen
            }
            yield f"\n{store}, windows of {probe}:"
            yield f"{'variant':<30}{'runs':>5}{'mm':>8}{'ratio':>8}{'95 %':>16}{'needed':>8}"
            first = found[chosen[0]]
            for variant, values in found.items():
                if len(values):
                    yield _line(variant, values, first)


def _line(variant: str, values: np.ndarray, first: np.ndarray) -> str:
    start = f"{variant:<30}{len(values):>5}{math.exp(values.mean()):>8.2f}"
    if values is first or min(len(values), len(first)) < 2:
        return start
    test = stats.ttest_ind(values, first, equal_var=False)
    low, high = test.confidence_interval()
    difference = values.mean() - first.mean()
    needed = ""
    if low < 0 < high:
        spread = math.sqrt((values.var(ddof=1) + first.var(ddof=1)) / 2)
        effect = abs(difference) / max(spread, 1e-9)
        needed = f"{math.ceil(2 * (1.96 / effect) ** 2):d}" if effect > 0.05 else "> 3000"
    interval = f"[{math.exp(low):.2f}, {math.exp(high):.2f}]"
    return f"{start}{math.exp(difference):>8.2f}{interval:>16}{needed:>8}"


if __name__ == "__main__":
    main()
