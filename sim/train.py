"""The command `stringline-train`: trains a policy on episode stores."""

import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import numpy as np
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from stringline.datasets.command.application import report_next, run
from stringline.datasets.command.configuration import command_recipe
from stringline.datasets.extensions.trust import Trust
from stringline.datasets.files.atomic import exclusive
from stringline.datasets.loading.mixture import MixedWindows, Source
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.store import EpisodeStore
from stringline.encoders.training.checkpoint import build
from stringline.encoders.training.interfaces import (
    BackgroundEvaluation,
    Callbacks,
    Probe,
    Validate,
)
from stringline.encoders.training.monitor import BEST, LATEST, History, Stopped, process_group
from stringline.encoders.training.settings import (
    EARLIER_STEPS,
    END,
    check_hardware,
    check_run_directory,
    is_main_process,
    record_steps,
)
from stringline.encoders.training.trainer import Trainer, ValidationLoss, augment_batches
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.algorithms.keypose_policy import KeyposePolicy
from stringline.policies.algorithms.learned_policy import LearnedPolicy
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
from stringline.sim.evaluation.suites import check_overrides, suite_of_training, with_suites
from stringline.sim.evaluation.trained_settings import is_simulated
from stringline.sim.training.training_data import (
    HeldOutBatches,
    RunCheckpoints,
    TrainingData,
    changed_episodes,
    sources_of,
    tensors,
    training_batches,
)
from stringline.sim.training.training_plan import (
    TrainingPlan,
    decided,
    report_placed_tokens,
    with_policy_of_checkpoint,
)
from stringline.sim.training.training_settings import Initialisation, TrainingSettings

if TYPE_CHECKING:
    from stringline.sim.training.training_evaluation import TrainingEvaluation

logger = logging.getLogger(__name__)
DEFAULTS = TrainingSettings()
EVALUATION = "stringline.sim.training.training_evaluation:training_evaluation"
"""It loads the simulation, so it is imported for the trainings that are evaluated."""


def train_policy(
    model: Mapping[str, Any],
    demonstrations: EpisodeStore | Sequence[Source],
    trainer: Trainer,
    directory: Path,
    settings: TrainingSettings = DEFAULTS,
    *,
    trust: Sequence[str] = (),
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
        trust: Packages whose classes `model` may name, see `load_policy`.

    Raises:
        ValueError: The policy does not fit the data, `model` names a class of a package that is not
            trusted, or the directory has another run.
    """
    data = TrainingData(demonstrations, settings.held_out, directory)
    consent = Trust("The configuration", frozenset(trust))
    return train(TrainingPlan(model, data, trainer, directory, settings, trust=consent))


def train(plan: TrainingPlan) -> History:
    """Trains by a plan; see `train_policy`."""
    policy = plan.policy()
    windows = plan.windows(policy)
    record = plan.record(len(windows))
    if is_main_process():
        _warn(plan, record.training)
    logger.info(
        "%d windows of %d episodes; %.2f million parameters.",
        len(windows),
        record.training["episodes"],
        sum(parameter.numel() for parameter in policy.parameters()) / 1e6,
    )
    if is_main_process():
        report_placed_tokens(policy, windows)
        if plan.settings.reads_segments:
            _report_segments(windows)
    batches = training_batches(windows, plan.trainer, plan.settings)
    directory = plan.directory
    # Settings that cannot be run have failed before, so the directory is not created for them.
    check_run_directory(directory, record.deciding, changed_episodes)
    callbacks = replace(
        _callbacks(plan, policy), background=_background(plan), describe=batches.describe
    )
    with exclusive(directory) if is_main_process() else nullcontext():
        earlier = record_steps(directory, record.deciding) if is_main_process() else []
        facts = {**record.training, **({EARLIER_STEPS: earlier} if earlier else {})}
        checkpoints = RunCheckpoints(directory, policy, plan.model, facts, plan.trainer.steps)
        callbacks = replace(callbacks, keep=checkpoints.keep)
        return plan.trainer.fit(
            policy, batches, directory, save_model=checkpoints.end, callbacks=callbacks
        )


def _report_segments(windows: Windows | MixedWindows) -> None:
    """Warns of cameras in whose images the augmentation finds no segments."""
    names = [camera.name for camera in windows.contract.cameras]
    if blind := [name for name in names if name not in windows.segmented]:
        logger.warning(
            "The augmentation draws no textures in the images of %s: not all episodes have "
            "segments of them. stringline-collect segments=true stores segments.",
            ", ".join(blind),
        )


def _warn(plan: TrainingPlan, training: Mapping[str, Any]) -> None:
    """Logs a warning for each edited store, and each task whose settings differ from the data."""
    record = TrainingRecord.of(str(plan.directory), training)
    for options in plan.settings.evaluate.options() if plan.settings.evaluate else ():
        record.warn(options)
    for change in plan.data.changes:
        logger.warning("%s The run keeps the episodes with which it began.", change)


def _background(plan: TrainingPlan) -> BackgroundEvaluation | None:
    """Returns the evaluations in other processes; a stopped run may have begun some."""
    if plan.settings.evaluate is None:
        return None
    return plan.settings.evaluate.in_background(plan.directory / LATEST, plan.directory / BEST)


def _callbacks(plan: TrainingPlan, policy: LearnedPolicy) -> Callbacks:
    """Returns augmentation, evaluation and logger; with held-out windows probe and validation."""
    settings = plan.settings
    augment = settings.build_augmentation()
    probe: Probe | None = None
    validate: Validate | None = None
    if (held_out := plan.held_out_windows(policy)) is not None:
        probe = Probes(_probes(plan.data, policy, held_out))
        if settings.validation_windows:
            batches = HeldOutBatches(held_out, plan.trainer.batch_size, settings.validation_windows)
            validate = ValidationLoss(batches, loss_weight=policy.loss_weight)
    return Callbacks(
        probe=probe,
        validate=validate,
        evaluate=settings.evaluate,
        prepare=augment_batches(augment, policy.contract.cameras) if augment else None,
        loss_weight=policy.loss_weight,
        logger=settings.log,
    )


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
    numbers = np.linspace(0, len(windows) - 1, min(count, len(windows))).round()
    return tensors(windows, np.unique(numbers.astype(np.int64)))


def main() -> None:
    """The command `stringline-train`; the exit code is 143 after SIGTERM and 130 after Ctrl-C."""
    run("train", _train, complete=with_suites)


def _train(config: DictConfig) -> None:
    plan = _plan(config, HydraConfig.get().overrides.task)
    try:
        with process_group():
            train(plan)
    except Stopped as stopped:
        logger.info("%s", stopped)
        if stopped.number == signal.SIGTERM:
            raise SystemExit(stopped.exit_code) from None
        raise
    logger.info("The checkpoint is in %s.", plan.directory / END)
    if is_main_process():
        report_next("stringline-eval", _next_evaluation(plan))


def _next_evaluation(plan: TrainingPlan) -> dict[str, str]:
    """Returns the options of the next evaluation: on the recordings, if no task is simulated."""
    checkpoint = {"checkpoint": str(plan.directory / END)}
    if any(map(is_simulated, plan.data.tasks())):
        return {**checkpoint, "output": str(plan.directory / "evaluation")}
    places = {"dataset": plan.data.paths[0], "output": plan.directory / "offline"}
    return checkpoint | {name: str(place) for name, place in places.items()}


def _plan(config: DictConfig, overrides: Sequence[str]) -> TrainingPlan:
    """Reads the configuration, looks at the data, and decides what the command line leaves open."""
    check_overrides(overrides)
    config = with_policy_of_checkpoint(config, overrides)
    trainer: Trainer = build(_plain(config.trainer))
    check_hardware(trainer)
    plain = _plain(config)
    output = Path(str(plain["output"]))
    dataset = plain["dataset"]
    mixture = dataset.pop("stores", None)
    path = dataset.pop("path", None)
    execution = Execution.of(plain["execution"])
    settings = TrainingSettings(
        augmentation=plain["augmentation"],
        validation_windows=plain["validation_windows"],
        initialisation=Initialisation.of(plain, "keep_normalisation"),
        evaluate=_evaluation(plain, overrides, output, execution),
        execution=RecordedExecution(execution, plain["evaluation"]["execute_steps"]),
        recipe=command_recipe(),
        log=build(plain.get("logger")),
        **dataset,
    )
    demonstrations = EpisodeStore.open(str(path)) if mixture is None else sources_of(mixture)
    data = TrainingData(demonstrations, settings.held_out, output)
    config, decisions = decided(config, data, overrides)
    return TrainingPlan(_plain(config.policy), data, trainer, output, settings, decisions)


def _evaluation(
    plain: Mapping[str, Any], overrides: Sequence[str], output: Path, execution: Execution
) -> "TrainingEvaluation | None":
    """Reads the evaluation; None without a task, and then the simulation is not loaded."""
    suite = suite_of_training(plain, overrides)
    if suite is None and plain.get("task") is None:
        return None
    read: Callable[..., TrainingEvaluation] = resolve_name(EVALUATION)
    return read(
        output,
        output / LATEST,
        plain.get("task"),
        plain["evaluation"],
        robot_model=plain["robot"]["model"],
        execution=execution,
        suite=suite,
    )


def _plain(config: DictConfig) -> dict[str, Any]:
    """Returns a configuration as plain values."""
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}
