"""The command `stringline-train`: trains a policy on episode stores."""

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

from stringline.datasets.command.application import run
from stringline.datasets.command.command_line import report_next
from stringline.datasets.command.configuration import command_recipe
from stringline.datasets.contract.contract import Contract
from stringline.datasets.files.atomic import exclusive
from stringline.datasets.loading.mixture import MixedWindows, Source
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.store import EpisodeStore
from stringline.encoders.training.checkpoint import build
from stringline.encoders.training.interfaces import Callbacks, Probe, Validate
from stringline.encoders.training.monitor import BEST, LATEST, History
from stringline.encoders.training.settings import (
    END,
    check_hardware,
    check_run_directory,
    is_main_process,
    process_count,
)
from stringline.encoders.training.stopping import Stopped, process_group
from stringline.encoders.training.trainer import Trainer, ValidationLoss, augment_batches
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.algorithms.keypose_policy import KeyposePolicy
from stringline.policies.algorithms.learned_policy import LearnedPolicy
from stringline.policies.checkpoints.load import build_policy
from stringline.policies.checkpoints.training_record import RecordedExecution, TrainingRecord
from stringline.policies.execution.execution import Execution
from stringline.policies.probes.probes import (
    FIRST_WINDOWS,
    MOTION_WINDOWS,
    PROBED_WINDOWS,
    AimProbe,
    KeyposeProbe,
    MotionProbe,
    Probes,
    first_grasp,
)
from stringline.sim.evaluation.checkpoint_evaluation import check_overrides
from stringline.sim.evaluation.suites import suite_of_training, with_suites
from stringline.sim.training.placed_tokens import choose_coordinates, report_placed_tokens
from stringline.sim.training.training_data import (
    HeldOutBatches,
    RunCheckpoints,
    TrainingData,
    changed_episodes,
    sources_of,
    tensors,
    training_batches,
)
from stringline.sim.training.training_evaluation import (
    ProcessEvaluation,
    TrainingEvaluation,
    training_evaluation,
)
from stringline.sim.training.training_settings import Initialisation, TrainingSettings

logger = logging.getLogger(__name__)
DEFAULTS = TrainingSettings()


def train_policy(
    model: Mapping[str, Any],
    demonstrations: EpisodeStore | Sequence[Source],
    trainer: Trainer,
    directory: Path,
    settings: TrainingSettings = DEFAULTS,
) -> History:
    """Trains a policy and writes `directory/checkpoint`; a stopped run continues.

    It also writes `latest`, the checkpoint of the last resumable state, and `best`, the checkpoint
    with the largest success or else the smallest validation loss.

    Args:
        model: Configuration of the policy with `_target_`.
        demonstrations: A store, or the sources of a mixture.
        trainer: Optimisation settings.
        directory: Directory of the run.
        settings: Data, initial weights and evaluation.
    """
    data = TrainingData(demonstrations, settings.held_out, directory)
    policy = _policy(model, data, trainer.seed, settings.initialisation)
    if isinstance(policy, ChunkPolicy):
        data.check_chunk(policy, settings.hold_s)
    windows = data.windows_for(
        policy, data.training, segments=settings.reads_segments, hold_s=settings.hold_s
    )
    record = _record(trainer, data, len(windows)) | settings.record()
    if is_main_process():
        _warn(TrainingRecord.of(str(directory), record), settings.evaluate, data.changes)
    logger.info(
        "%d windows of %d episodes; %.2f million parameters.",
        len(windows),
        record["episodes"],
        sum(parameter.numel() for parameter in policy.parameters()) / 1e6,
    )
    if is_main_process():
        report_placed_tokens(policy, windows)
        if settings.reads_segments:
            _report_segments(windows)
    batches = training_batches(windows, trainer, settings)
    # Settings that cannot be run have failed before, so the directory is not created for them.
    fingerprint = _fingerprint(model, data, trainer) | settings.fingerprint()
    check_run_directory(directory, fingerprint, changed_episodes)
    checkpoints = RunCheckpoints(directory, policy, model, record, trainer.steps)
    callbacks = replace(
        _callbacks(data, policy, trainer, settings),
        keep=checkpoints.keep,
        background=_background(directory, settings.evaluate),
        describe=batches.describe,
    )
    with exclusive(directory) if is_main_process() else nullcontext():
        return trainer.fit(
            policy, batches, directory, save_model=checkpoints.end, callbacks=callbacks
        )


def _background(directory: Path, evaluation: TrainingEvaluation | None) -> ProcessEvaluation | None:
    """Returns the evaluations in another process; a stopped run may have begun some."""
    if evaluation is None:
        return None
    return ProcessEvaluation(evaluation, directory / LATEST, directory / BEST)


def _report_segments(windows: Windows | MixedWindows) -> None:
    """Warns of cameras in whose images the augmentation finds no segments."""
    names = [camera.name for camera in windows.contract.cameras]
    if blind := [name for name in names if name not in windows.segmented]:
        logger.warning(
            "The augmentation draws no textures in the images of %s: not all episodes have "
            "segments of them. stringline-collect segments=true stores segments.",
            ", ".join(blind),
        )


def _warn(
    record: TrainingRecord, evaluation: TrainingEvaluation | None, changes: Sequence[str]
) -> None:
    """Logs a warning for each edited store, and each task whose settings differ from the data."""
    for options in evaluation.options() if evaluation else ():
        record.warn(options)
    for change in changes:
        logger.warning("%s The run keeps the episodes with which it began.", change)


def _policy(
    model: Mapping[str, Any], data: TrainingData, seed: int, initialisation: Initialisation | None
) -> LearnedPolicy:
    """Returns the policy with its initial weights."""
    statistics = data.statistics(model)
    if initialisation:
        statistics = initialisation.statistics(data.contract, statistics)
    torch.manual_seed(seed)
    policy = build_policy(model, data.contract, statistics)
    if initialisation:
        initialisation.load(policy)
    keeps = initialisation is not None and initialisation.keep_ranges
    if isinstance(policy, ChunkPolicy) and not keeps:
        data.fit(policy)
    return policy


def _fingerprint(model: Mapping[str, Any], data: TrainingData, trainer: Trainer) -> dict[str, Any]:
    return {
        "model": dict(model),
        "trainer": trainer.fingerprint(),
        "processes": process_count(),
        **data.describe(),
    }


def _record(trainer: Trainer, data: TrainingData, windows: int) -> dict[str, Any]:
    """Returns the description of the training in a checkpoint."""
    record: dict[str, Any] = {
        "episodes": sum(map(len, data.training)),
        "windows": windows,
        "steps": trainer.steps,
        "batch_size": trainer.batch_size,
        "seed": trainer.seed,
        "tasks": data.tasks(),
        "stores": data.digests(),
    }
    if texts := data.instructions():
        record["instructions"] = texts
    if data.worlds:
        record |= {"robot_models": data.robot_models(), "worlds": data.worlds}
    return record


def _callbacks(
    data: TrainingData, policy: LearnedPolicy, trainer: Trainer, settings: TrainingSettings
) -> Callbacks:
    augment = settings.build_augmentation()
    probe, validate = _held_out_callbacks(data, policy, settings, trainer.batch_size)
    return Callbacks(
        probe=probe,
        validate=validate,
        evaluate=settings.evaluate,
        prepare=augment_batches(augment, policy.contract.cameras) if augment else None,
        weigh=policy.counted_actions,
        logger=settings.log,
    )


def _held_out_callbacks(
    data: TrainingData, policy: LearnedPolicy, settings: TrainingSettings, batch_size: int
) -> tuple[Probe | None, Validate | None]:
    """Returns probe and validation, if there are enough held-out episodes."""
    if not all(data.held_out):
        return None, None
    held_out = data.windows_for(policy, data.held_out, hold_s=settings.hold_s)
    validate: Validate | None = None
    if settings.validation_windows:
        batches = HeldOutBatches(held_out, batch_size, settings.validation_windows)
        validate = ValidationLoss(batches, weigh=policy.counted_actions)
    return Probes(_probes(data, policy, held_out)), validate


def _probes(
    data: TrainingData, policy: LearnedPolicy, held_out: Windows | MixedWindows
) -> list[Probe]:
    """Returns the probes of a policy on held-out windows."""
    if isinstance(policy, KeyposePolicy):
        return [KeyposeProbe(_spaced(held_out, PROBED_WINDOWS))]
    if not isinstance(policy, ChunkPolicy):
        return []
    probes: list[Probe] = []
    if data.can_probe:
        first = np.flatnonzero(held_out.step == 0)[:FIRST_WINDOWS]
        episodes = data.held_out_episodes()
        grasps = [
            first_grasp(episode.arrays, episode.attributes.contract)
            for episode in (episodes[number] for number in held_out.episode[first])
        ]
        probes.append(AimProbe(tensors(held_out, first), grasps))
    windows = _spaced(held_out, MOTION_WINDOWS)
    return [*probes, MotionProbe(windows, data.linear_motion(policy), policy.contract)]


def _spaced(windows: Windows | MixedWindows, count: int) -> dict[str, Tensor]:
    """Returns up to `count` windows, evenly spaced."""
    chosen = np.linspace(0, len(windows) - 1, min(count, len(windows))).round()
    return tensors(windows, np.unique(chosen.astype(np.int64)))


def main() -> None:
    """The command `stringline-train`; the exit code is 143 after SIGTERM and 130 after Ctrl-C."""
    run("train", _train, complete=with_suites)


def _train(config: DictConfig) -> None:
    overrides = HydraConfig.get().overrides.task
    check_overrides(overrides)
    trainer: Trainer = build(_plain(config.trainer))
    check_hardware(trainer)
    dataset = _plain(config.dataset)
    mixture = dataset.pop("stores", None)
    store = EpisodeStore.open(str(dataset.pop("path"))) if mixture is None else sources_of(mixture)
    begun = TrainingData(store, 0, Path(str(config.output)))
    coordinates = choose_coordinates(config, begun, overrides)
    _choose_posture(config, begun.contract, overrides)
    settings = _plain(config)
    output = Path(str(settings["output"]))
    execution = Execution.of(settings["execution"])
    chosen = TrainingSettings(
        augmentation=settings["augmentation"],
        validation_windows=settings["validation_windows"],
        initialisation=Initialisation.of(settings, "keep_ranges"),
        evaluate=training_evaluation(
            output,
            output / LATEST,
            settings.get("task"),
            settings["evaluation"],
            robot_model=settings["robot"]["model"],
            execution=execution,
            suite=suite_of_training(settings, overrides),
        ),
        execution=RecordedExecution(execution, settings["evaluation"]["execute_steps"]),
        recipe=_recipe(coordinates),
        log=build(settings.get("logger")),
        **dataset,
    )
    try:
        with process_group():
            train_policy(settings["policy"], store, trainer, output, chosen)
    except Stopped as stopped:
        logger.info("%s", stopped)
        if stopped.number == signal.SIGTERM:
            raise SystemExit(stopped.exit_code) from None
        raise
    _report_checkpoint(output)


def _choose_posture(config: DictConfig, contract: Contract, overrides: Sequence[str]) -> None:
    """Leaves the posture out if nothing measures the joints, unless the command line asks for it.

    The log says so. The configuration is changed in place.
    """
    asked = any(override.lstrip("+").startswith("policy.posture") for override in overrides)
    if asked or contract.joints or config.policy.get("posture") is None:
        return
    config.policy.posture = None
    logger.info("The data have no measured joints, so policy.posture=null was chosen.")


def _plain(config: DictConfig) -> dict[str, Any]:
    """Returns a configuration as plain values."""
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _recipe(coordinates: str | None) -> dict[str, Any]:
    """Returns the recipe of the command, with the coordinates that the data chose."""
    recipe = command_recipe()
    if coordinates is not None:
        recipe["choices"]["coordinates"] = coordinates
    return recipe


def _report_checkpoint(output: Path) -> None:
    logger.info("The checkpoint is in %s.", output / END)
    if is_main_process():
        report_next(
            "stringline-eval",
            {"checkpoint": str(output / END), "output": str(output / "evaluation")},
        )
