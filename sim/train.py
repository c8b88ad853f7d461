"""`stringline-train`: trains a policy on episode stores, and says beside the loss whether it sees where things are."""

import logging
import signal
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from stringline.datasets.augmentation.augment import Augmentation
from stringline.datasets.command.application import run
from stringline.datasets.files.lock import exclusive
from stringline.datasets.loading.mixture import Source
from stringline.datasets.store.store import EpisodeStore
from stringline.encoders.training.checkpoint import build
from stringline.encoders.training.history import History
from stringline.encoders.training.interfaces import Asides, Prepare, Probe, Validate
from stringline.encoders.training.monitor import LATEST
from stringline.encoders.training.process_group import process_group
from stringline.encoders.training.stopping import Stopped
from stringline.encoders.training.trainer import Trainer
from stringline.encoders.training.validation import ValidationLoss
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.checkpoints.load import build_policy
from stringline.policies.probes.localisation import LocalisationProbe
from stringline.sim.evaluation.checkpoint_evaluation import refuse_as_trained
from stringline.sim.training.initialisation import Start, start_of
from stringline.sim.training.run_directory import END, KeptCheckpoints, claim, leads, processes
from stringline.sim.training.training_data import (
    HeldOutBatches,
    TrainingData,
    WindowBatches,
    sources_of,
    tensors,
)
from stringline.sim.training.training_evaluation import training_evaluation
from stringline.sim.training.training_settings import TrainingSettings

logger = logging.getLogger(__name__)

USUAL = TrainingSettings()


def train_policy(
    model: Mapping[str, Any],
    demonstrations: EpisodeStore | Sequence[Source],
    trainer: Trainer,
    directory: Path,
    settings: TrainingSettings = USUAL,
) -> History:
    """Trains a policy and writes `directory/checkpoint`; a stopped run continues.

    Beside it stand `latest`, which is as new as the last resumable state, and `best`, the one with
    the most success or else the smallest validation loss so far.

    Args:
        model: Configuration of the policy, `_target_` included.
        demonstrations: A store, or the stores of a mixture.
        trainer: How to train.
        directory: Of the run.
        settings: What else is chosen.

    Returns:
        Losses and what was found beside them.

    Raises:
        ValueError: A store is empty, stores cannot be mixed, the configuration or the weights to
            begin with do not fit the data, or the directory holds another run.
    """
    data = TrainingData(demonstrations, settings.held_out)
    policy = _policy(model, data, trainer.seed, settings.start)
    windows = data.windows_for(policy, data.training)
    record = _record(trainer, data, len(windows), settings.start)
    millions = sum(parameter.numel() for parameter in policy.parameters()) / 1e6
    logger.info(
        "%d windows of %d episodes; %.2f million parameters.",
        len(windows),
        record["episodes"],
        millions,
    )
    early_s = settings.early_s
    early_factor = settings.early_factor
    batches = WindowBatches(
        windows, trainer.batch_size, seed=trainer.seed, early_s=early_s, early_factor=early_factor
    )
    claim(
        directory, _course(model, data, trainer) | settings.course()
    )  # By now what is chosen can be run.
    kept = KeptCheckpoints(directory, policy, model, record, trainer.steps)
    asides = replace(
        _asides(data, policy, trainer, settings), keep=kept.keep, describe=batches.describe
    )
    with exclusive(directory) if leads() else nullcontext():
        return trainer.fit(policy, batches, directory, save_model=kept.end, asides=asides)


def _policy(
    model: Mapping[str, Any], data: TrainingData, seed: int, start: Start | None
) -> ChunkPolicy:
    """Returns the policy with the weights that it begins with."""
    statistics = start.statistics(data.contract, data.statistics()) if start else data.statistics()
    torch.manual_seed(seed)
    policy = build_policy(model, data.contract, statistics)
    if start:
        start.fill(policy)
    return policy


def _course(model: Mapping[str, Any], data: TrainingData, trainer: Trainer) -> dict[str, Any]:
    """Returns what decides the course of a run: with any of it changed, its state and statistics would not belong together."""
    return {
        "model": dict(model),
        "trainer": trainer.course(),
        "processes": processes(),
        **data.describe(),
    }


def _record(
    trainer: Trainer, data: TrainingData, windows: int, start: Start | None
) -> dict[str, Any]:
    """Returns what a checkpoint says of its training."""
    record = {
        "episodes": sum(map(len, data.training)),
        "windows": windows,
        "steps": trainer.steps,
        "batch_size": trainer.batch_size,
        "seed": trainer.seed,
    }
    drawn = {"robot_models": models} if (models := data.robot_models()) else {}
    return record | drawn | ({"start": start.describe()} if start else {})


def _asides(
    data: TrainingData, policy: ChunkPolicy, trainer: Trainer, settings: TrainingSettings
) -> Asides:
    """Returns what is done besides training, as far as data and settings say so."""
    augment = settings.augment()
    probe, validate = _looks(data, policy, settings.validation_windows, trainer.batch_size)
    return Asides(
        probe=probe,
        validate=validate,
        evaluate=settings.evaluate,
        prepare=_prepare(augment, policy) if augment else None,
        weigh=actions_within,
        logger=settings.log,
    )


def _looks(
    data: TrainingData, policy: ChunkPolicy, windows: int, batch_size: int
) -> tuple[Probe | None, Validate | None]:
    """Returns what is found out with the episodes that are held out, as far as there are enough."""
    if not all(data.probing):
        return None, None
    held = data.windows_for(policy, data.probing)
    probe = (
        LocalisationProbe(tensors(held, np.flatnonzero(held.step == 0))) if data.can_probe else None
    )
    return probe, ValidationLoss(
        HeldOutBatches(held, batch_size, windows), weigh=actions_within
    ) if windows else None


def actions_within(batch: Mapping[str, Tensor]) -> Tensor:
    """Returns how many actions of a batch lie within their episodes: what the losses of our policies are means of."""
    return batch["action_mask"].sum()


def _prepare(augment: Augmentation, policy: ChunkPolicy) -> Prepare:
    def prepare(batch: Mapping[str, Tensor], generator: torch.Generator) -> Mapping[str, Tensor]:
        changed: Mapping[str, Tensor] = augment(batch, policy.contract.cameras, generator)
        return changed

    return prepare


def main() -> None:
    """The command `stringline-train`; stopped by SIGTERM its exit code is 143, by Ctrl-C 130."""
    run("train", _train)


def _train(config: DictConfig) -> None:
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    settings = {str(key): value for key, value in plain.items()}
    refuse_as_trained(HydraConfig.get().overrides.task)
    dataset = dict(settings["dataset"])
    output = Path(str(settings["output"]))
    mixture = dataset.pop("stores", None)
    store = EpisodeStore.open(str(dataset.pop("path"))) if mixture is None else sources_of(mixture)
    chosen = TrainingSettings(
        augmentation=settings["augmentation"],
        validation_windows=settings["validation_windows"],
        start=start_of(settings),
        evaluate=training_evaluation(
            output,
            output / LATEST,
            settings.get("task"),
            settings["evaluation"],
            settings["robot"]["model"],
        ),
        log=build(settings.get("logger")),
        **dataset,
    )
    try:
        with process_group():
            train_policy(settings["policy"], store, build(settings["trainer"]), output, chosen)
    except Stopped as stopped:
        logger.info("%s", stopped)
        if stopped.number == signal.SIGTERM:
            raise SystemExit(stopped.exit_code) from None
        raise
    logger.info("The checkpoint is in %s.", output / END)
