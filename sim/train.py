"""`stringline-train`: trains a policy on an episode store, and prints beside the loss whether it sees where things are."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from stringline.datasets.application import run
from stringline.datasets.augment import Augmentation
from stringline.datasets.disk import write_file
from stringline.datasets.mixture import MixedWindows, Source
from stringline.datasets.prefetch import Prefetcher
from stringline.datasets.sampler import BatchSampler, favour_early
from stringline.datasets.store import EpisodeStore
from stringline.datasets.windows import Windows
from stringline.encoders.training.checkpoint import build
from stringline.encoders.training.history import History
from stringline.encoders.training.loop import Trainer
from stringline.policies.load import build_policy, save_policy
from stringline.policies.localisation import LocalisationProbe
from stringline.sim.training_data import TrainingData, sources_of

logger = logging.getLogger(__name__)


class WindowBatches:
    """Batches of windows as tensors; step n sees the same ones whenever a run is continued."""

    def __init__(
        self, windows: Windows | MixedWindows, batch_size: int, *, seed: int, early_s: float = 0.0, early_factor: float = 1.0
    ) -> None:
        """Sets the order.

        Args:
            windows: The data.
            batch_size: Windows per step.
            seed: Of the order.
            early_s: How many seconds from the start of an episode count as early.
            early_factor: How much more often an early window is drawn.
        """
        self._windows = windows
        weights = favour_early(windows.step / windows.contract.control_hz, early_s, early_factor)
        weights = windows.balanced(weights) if isinstance(windows, MixedWindows) else weights
        self._sampler = BatchSampler(len(windows), batch_size, seed, weights=weights)

    def stream(self, first_step: int, last_step: int, process: int = 0, processes: int = 1) -> Iterator[Mapping[str, Tensor]]:
        """Yields the batches of steps first_step (included) to last_step (excluded), read ahead in a thread."""

        def read(step: int) -> dict[str, Tensor]:
            return tensors(self._windows, self._sampler.batch(step * processes + process))

        with Prefetcher(read, first_step, last_step) as batches:
            yield from batches


def tensors(windows: Windows | MixedWindows, indices: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, Tensor]:
    """Reads windows as tensors."""
    return {key: torch.from_numpy(array) for key, array in windows.batch(indices).items()}


def train_policy(
    model: Mapping[str, Any],
    demonstrations: EpisodeStore | Sequence[Source],
    trainer: Trainer,
    directory: Path,
    *,
    early_s: float = 0.0,
    early_factor: float = 1.0,
    held_out: int = 16,
    augmentation: Mapping[str, Any] | None = None,
) -> History:
    """Trains a policy and writes `directory/checkpoint`; a stopped run continues.

    Args:
        model: Configuration of the policy, `_target_` included.
        demonstrations: A store, or the stores of a mixture.
        trainer: How to train.
        directory: Of the run.
        early_s: See `WindowBatches`.
        early_factor: See `WindowBatches`.
        held_out: Episodes that are not trained on but probed with, of each store; at most a fifth of it.
        augmentation: Configuration of an `Augmentation` of the batches trained on; None: none. Probes see pictures as they are.

    Returns:
        Losses and probes.

    Raises:
        ValueError: A store is empty, stores cannot be mixed, the configuration does not fit the data, or the directory holds
            another run.
    """
    data = TrainingData(demonstrations, held_out)
    torch.manual_seed(trainer.seed)
    policy = build_policy(model, data.contract, data.statistics())
    cameras = [camera.name for camera in policy.contract.cameras]
    windows = data.windows(data.training, policy.chunk, cameras)
    episodes = sum(map(len, data.training))
    size = sum(parameter.numel() for parameter in policy.parameters())
    logger.info("%d windows of %d episodes; %.2f million parameters.", len(windows), episodes, size / 1e6)
    batches = WindowBatches(windows, trainer.batch_size, seed=trainer.seed, early_s=early_s, early_factor=early_factor)
    augment = _augmentation(augmentation)
    # All that decides the course of a run: with any of it changed, its state and its statistics would not belong together.
    _claim(
        directory,
        {
            "model": dict(model),
            "trainer": vars(trainer),
            "early": [early_s, early_factor],
            "processes": int(os.environ.get("WORLD_SIZE", "1")),
            **data.describe(),
            "augmentation": dict(augmentation) if augment and augmentation else None,
        },
    )

    def save(trained: torch.nn.Module) -> None:
        record = {
            "episodes": episodes,
            "windows": len(windows),
            "steps": trainer.steps,
            "batch_size": trainer.batch_size,
            "seed": trainer.seed,
        }
        save_policy(directory / "checkpoint", policy, model, record)

    probe = _probe(data.windows(data.probing, policy.chunk, cameras)) if data.can_probe else None

    def prepare(batch: Mapping[str, Tensor], generator: torch.Generator) -> Mapping[str, Tensor]:
        return augment(batch, policy.contract.cameras, generator) if augment else batch

    return trainer.fit(policy, batches, directory, save_model=save, probe=probe, prepare=prepare if augment else None)


def _augmentation(configuration: Mapping[str, Any] | None) -> Augmentation | None:
    """Returns what a configuration describes, None where that changes nothing."""
    built = None if configuration is None else build(dict(configuration), torch.nn.Module)
    if built is not None and not isinstance(built, Augmentation):
        raise ValueError(f"augmentation is a {type(built).__name__}; allowed: {Augmentation.__name__}.")
    return built if built is not None and built.transforms else None


def main() -> None:
    """The command `stringline-train`."""
    run("train", _train)


def _train(config: DictConfig) -> None:
    settings = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(settings, dict)
    dataset, output = dict(settings["dataset"]), Path(settings["output"])
    mixture = dataset.pop("stores", None)
    store = EpisodeStore.open(dataset.pop("path")) if mixture is None else sources_of(mixture)
    trainer = build(settings["trainer"])
    train_policy(settings["policy"], store, trainer, output, augmentation=settings["augmentation"], **dataset)
    logger.info("The checkpoint is in %s.", output / "checkpoint")


def _claim(directory: Path, settings: Mapping[str, Any]) -> None:
    """Writes what is run into its directory; a directory that continues must have been claimed for the same."""
    file, plain = directory / "run.yaml", _plain(settings)
    if not file.exists():
        if os.environ.get("RANK", "0") == "0":
            directory.mkdir(parents=True, exist_ok=True)
            write_file(file, yaml.safe_dump(plain, sort_keys=False).encode())
        return
    old = yaml.safe_load(file.read_text())
    if not isinstance(old, dict):
        raise ValueError(f"{file} is broken; choose another output, or remove {directory} to start again.")
    if changed := [key for key, value in plain.items() if old.get(key) != value]:
        raise ValueError(f"{directory} holds a run with other settings ({', '.join(changed)}); choose another output.")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def _probe(windows: Windows | MixedWindows) -> LocalisationProbe:
    return LocalisationProbe(tensors(windows, np.flatnonzero(windows.step == 0)))
