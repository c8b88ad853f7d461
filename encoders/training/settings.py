"""Settings of a training run: their values, the hardware that they need, and their record.

A run stores the settings that decide its weights in its directory, and compares them when it
continues.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import yaml
from accelerate import Accelerator, InitProcessGroupKwargs
from torch import nn

from stringline.datasets.contract.argument_checks import (
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    WHOLE,
    Range,
)
from stringline.datasets.files.atomic import write_file
from stringline.encoders.training.optimisation import parameter_groups, warmup_cosine

logger = logging.getLogger(__name__)

# Settings that decide when a run is monitored, and have no effect on the weights.
MONITORING = ("probe_every", "save_every", "evaluate_every", "log_every", "read_every")
# Settings of the machine, which have no effect on the weights either.
MACHINE = ("device", "min_processes", "num_workers", "pin_memory")
CHOICES = {
    "precision": ("auto", "bf16", "no"),
    "compile": ("auto", True, False),
    "device": ("auto", "cuda"),
    "attention": ("float32", "bf16"),
}


@dataclass(kw_only=True, eq=False)
class TrainerSettings:
    """Settings of a run; `stringline.Trainer` derives from this class.

    Attributes:
        steps: Optimiser steps of the whole run.
        batch_size: Examples per step and process.
        accumulate: Number of parts that a batch is processed in, one after the other: less memory,
            the same gradients.
        learning_rate: Peak of the schedule: a linear rise, then a cosine decay.
        warmup_steps: Steps of the linear rise.
        final_learning_rate: End of the cosine decay, as a share of the peak.
        weight_decay: Weight decay of matrices, except frequencies and the like, which
            `no_weight_decay()` lists.
        clip_norm: Largest gradient norm; larger gradients are scaled.
        ema_decay: Decay of the moving average of the weights, which the checkpoint contains; 0 to
            1. It rises to it as (1 + n) / (10 + n).
        precision: bf16, no (float32), or auto: bf16 on hardware that supports it.
        compile: Whether `torch.compile` compiles the loss: `auto` (on GPUs), true or false. A
            compiled loss draws other random numbers.
        seed: Seed of the initial weights, the order of the windows and all random numbers.
        probe_every: Steps between probes, and between validation losses.
        save_every: Steps between resumable states; the state of each best model is saved too.
        evaluate_every: Steps between evaluations, if a task is given (in Python, an `evaluate`
            callback).
        log_every: Steps between logged metrics.
        read_every: Steps between reads of losses; above 1 no step waits for a GPU, and broken
            losses are found later. With 1, a loss that is not finite ends the run before its
            update. With more, it is found up to that many steps later, but before a state or
            checkpoint is written, and several processes stop after a signal that much later.
        device: `auto` (a GPU if there is one) or `cuda` (an error without a GPU).
        min_processes: Smallest number of processes of torchrun; with fewer the run does not begin.
        num_workers: Threads that read batches ahead.
        pin_memory: Whether batches are read into page-locked memory, which a GPU copies from while
            it computes.
        tf32: Whether products of float32 matrices are rounded to TF32 on GPUs. Phases of position
            encodings are not products of matrices and stay in float32.
        attention: Type of rotated queries, keys and values in attention over positions: `float32`,
            or `bf16`, for which GPUs have faster kernels. Phases, rotations and logits are float32
            in both.
        channels_last: Whether weights of convolutions are stored with channels last.
        fused: Whether AdamW updates all parameters in one kernel.
        gradient_checkpointing: Whether the entries of all lists of layers compute their activations
            again in the backward pass (Chen et al., 2016): less memory, the same gradients.
        learning_rate_factors: Factor of the learning rate by part, such as {observation_encoder:
            0.1}; * in names is a wildcard, see `PartPatterns`. Of several patterns that match a
            parameter the last one applies.
        freeze: Parts that are not trained, such as [observation_encoder] or
            [denoiser.blocks.*.cross_kv]; they stay in evaluation mode and have no moving average.
        lora: Rank of low-rank adapters by part, such as {observation_encoder: 8}; its other weights
            are frozen, see `LowRank`. Checkpoints contain the sums of weights and adapters.

    Other Args:
        betas: Coefficients of AdamW.
    """

    steps: int
    batch_size: int
    accumulate: int = 1
    learning_rate: float = 1e-3
    warmup_steps: int = 50
    final_learning_rate: float = 0.05
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    ema_decay: float = 0.995
    precision: str = "auto"
    compile: bool | str = "auto"
    seed: int = 0
    probe_every: int = 200
    save_every: int = 200
    evaluate_every: int = 500
    log_every: int = 10
    read_every: int = 1
    device: str = "auto"
    min_processes: int = 1
    num_workers: int = 1
    pin_memory: bool = False
    tf32: bool = False
    attention: str = "float32"
    channels_last: bool = False
    fused: bool = False
    gradient_checkpointing: bool = False
    learning_rate_factors: Mapping[str, float] | None = None
    freeze: Sequence[str] = ()
    lora: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        self._check(COUNT, "steps", "batch_size", "accumulate", "num_workers", "min_processes")
        self._check(COUNT, *MONITORING)
        self._check(WHOLE, "warmup_steps", "seed")
        self._check(NOT_NEGATIVE, "learning_rate", "final_learning_rate", "weight_decay")
        self._check(POSITIVE, "clip_norm")
        self._check(Range(least=0, most=1), "ema_decay")
        if len(self.betas) != 2 or not all(beta in SHARE for beta in self.betas):
            raise ValueError(f"trainer.betas is {list(self.betas)}; allowed: a pair, each {SHARE}.")
        self.betas = (self.betas[0], self.betas[1])  # YAML has lists.
        if self.accumulate > self.batch_size:
            raise ValueError(
                f"trainer.accumulate is {self.accumulate}; allowed: 1 to trainer.batch_size = "
                f"{self.batch_size}."
            )
        for name, allowed in CHOICES.items():
            if (value := getattr(self, name)) not in allowed:
                listed = ", ".join(
                    repr(one) if isinstance(one, str) else str(one).lower() for one in allowed
                )
                raise ValueError(f"trainer.{name} is {value!r}; allowed: {listed}.")
        self._check_parts()
        # So that an empty mapping and its absence have one fingerprint.
        self.learning_rate_factors = self.learning_rate_factors or None
        self.lora = self.lora or None

    def _check_parts(self) -> None:
        """Checks the types of settings that name parts; their names are checked with the model."""
        if isinstance(self.freeze, str):
            raise ValueError(
                f"trainer.freeze is {self.freeze!r}; allowed: a list of parts, such as "
                f"[{self.freeze}]."
            )
        for name, numbers, example in (
            ("learning_rate_factors", POSITIVE, "0.1"),
            ("lora", COUNT, "8"),
        ):
            if (parts := getattr(self, name)) is None:
                continue
            if not isinstance(parts, Mapping):
                raise ValueError(
                    f"trainer.{name} is {parts!r}; allowed: a number for each part, such as "
                    f"{{observation_encoder: {example}}}."
                )
            numbers.check(**{f"trainer.{name}.{part}": number for part, number in parts.items()})

    def _check(self, allowed: Range, *names: str) -> None:
        allowed.check(**{f"trainer.{name}": getattr(self, name) for name in names})

    def fingerprint(self) -> dict[str, Any]:
        """Returns the settings that decide the weights of a run, as plain data.

        `precision` is resolved for this machine, so a run that began in bf16 cannot continue in
        float32, and its record names the precision that was used.
        """
        chosen = {
            option.name: _plain(getattr(self, option.name))
            for option in fields(TrainerSettings)
            if option.name not in (*MONITORING, *MACHINE)
        }
        return chosen | {"precision": "bf16" if self.in_bf16() else "no"}

    def schedule(self, step: int) -> float:
        """Returns the learning rate of a step as a share of its peak."""
        return warmup_cosine(
            step, steps=self.steps, warmup_steps=self.warmup_steps, final=self.final_learning_rate
        )

    def in_bf16(self) -> bool:
        """Returns whether forward passes run in bfloat16."""
        if self.precision != "auto":
            return self.precision == "bf16"
        return (
            torch.cuda.is_bf16_supported()
            if torch.cuda.is_available()
            else torch.cpu._is_avx512_bf16_supported()
        )

    def compiles(self, device: torch.device) -> bool:
        """Returns whether the loss is compiled on a device."""
        return device.type == "cuda" if self.compile == "auto" else bool(self.compile)

    def parameter_groups(self, model: nn.Module) -> list[dict[str, object]]:
        """Returns the optimiser's parameter groups, with and without weight decay.

        Raises:
            ValueError: A pattern of `learning_rate_factors` matches nothing.
        """
        return parameter_groups(model, self.weight_decay, self.learning_rate_factors or {})


def _plain(value: object) -> object:
    """Returns a value with lists in place of other sequences, as YAML has them."""
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


PATIENCE = timedelta(hours=6)  # The other processes wait while the main one evaluates.
ON_CPU = "trainer=laptop is the preset for CPUs"
SEVERAL = "torchrun --standalone --nproc-per-node GPUS --no-python stringline-train ..."


def check_hardware(settings: TrainerSettings) -> None:
    """Raises a ValueError if a GPU or processes that the settings need are missing.

    It reads nothing but the state of torch and the environment of `torchrun`.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if settings.device == "cuda" and not gpus:
        why = "" if torch.version.cuda else f" (torch {torch.__version__} is built without CUDA)"
        raise ValueError(f"trainer.device is 'cuda', but there is no GPU{why}; {ON_CPU}.")
    if settings.pin_memory and not gpus:
        raise ValueError(
            f"trainer.pin_memory is true, but there is no GPU; allowed: false. {ON_CPU}."
        )
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes < settings.min_processes:
        raise ValueError(
            f"trainer.min_processes is {settings.min_processes}, but the number of processes "
            f"is {processes}; start them by `{SEVERAL}`, or choose trainer=gpu for one GPU."
        )
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if settings.device == "cuda" and here > gpus:
        raise ValueError(
            f"{here} processes on this machine share {gpus} GPU{'s' if gpus > 1 else ''}; "
            f"allowed: --nproc-per-node up to {gpus}."
        )


def make_accelerator() -> Accelerator:
    """Returns the accelerator of this process, on a GPU if there is one."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    handlers = [InitProcessGroupKwargs(timeout=PATIENCE)] if several else []
    return Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=handlers)


@contextmanager
def rounding(settings: TrainerSettings) -> Iterator[None]:
    """Rounds products of float32 matrices to TF32 on GPUs, if it is set, for a block."""
    if not settings.tf32:
        yield
        return
    flags = torch.backends.cuda.matmul
    before = flags.allow_tf32
    flags.allow_tf32 = True
    try:
        yield
    finally:
        flags.allow_tf32 = before


# Those of libyaml need a tenth of the time for the names of many episodes.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

RUN_FILE = "run.yaml"
EARLIER_STEPS = "earlier_steps"
END = "checkpoint"

Explain = Callable[[Mapping[str, Any], Mapping[str, Any]], str]
"""Explains a difference, given the stored and the new fingerprint; "": there is nothing to add."""


def is_main_process() -> bool:
    """Returns whether this is the first or only process of a run."""
    return os.environ.get("RANK", "0") == "0"


def process_count() -> int:
    """Returns the number of processes of a run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def stored_fingerprint(directory: Path) -> Any:
    """Returns the fingerprint of the run in a directory, as the file has it; None means no run.

    Raises:
        yaml.YAMLError: The file is damaged.
    """
    file = directory / RUN_FILE
    return yaml.load(file.read_bytes(), _Loader) if file.is_file() else None


def check_run_directory(
    directory: Path, fingerprint: Mapping[str, Any], explain: Explain | None = None
) -> None:
    """Stores the fingerprint of a run, or compares it with that of the run to continue.

    The fingerprint is all settings that decide the weights, plain data. Its number of steps may be
    larger than that of the run; then `record_steps` follows, under the lock of the directory.

    Raises:
        ValueError: The directory holds a run with another fingerprint, or its file is damaged.
    """
    file = directory / RUN_FILE
    plain = _plain_data(fingerprint)
    if not file.exists():
        if is_main_process():
            directory.mkdir(parents=True, exist_ok=True)
            write_file(file, yaml.dump(plain, Dumper=_Dumper, sort_keys=False).encode())
        return
    stored = stored_fingerprint(directory)
    if not isinstance(stored, dict):
        raise ValueError(
            f"{file} is damaged. Choose another output, or remove {directory} to start again."
        )
    if not (changed := list(_changed(stored, plain))):
        return
    if changed != ["trainer.steps"]:
        raise ValueError(
            f"{directory} holds a run with other settings ({', '.join(changed)}). Choose another "
            f"output.{explain(stored, plain) if explain else ''}"
        )
    before = stored["trainer"]["steps"]
    now = plain["trainer"]["steps"]
    if now < before:
        raise ValueError(
            f"{directory} holds a run of {before} steps; got trainer.steps={now}; allowed: "
            f"{before}, or more to train it further. Choose another output for fewer."
        )
    if latest_state(directory) is None:
        raise ValueError(
            f"{directory / STATES} has no state of the run of {before} steps, from which "
            f"trainer.steps={now} could continue. Choose another output, with "
            "initialise_from=CHECKPOINT to begin with its weights."
        )


def _changed(stored: Mapping[str, Any], plain: Mapping[str, Any]) -> Iterator[str]:
    """Yields the names of the entries of a fingerprint that differ, those of the trainer singly."""
    for key, value in plain.items():
        before = stored.get(key)
        if before == value:
            continue
        if key == "trainer" and isinstance(before, Mapping):
            yield from (f"{key}.{name}" for name in value if before.get(name) != value[name])
        else:
            yield key


def record_steps(directory: Path, fingerprint: Mapping[str, Any]) -> list[int]:
    """Stores a number of steps that was raised since the run began.

    The fingerprint was checked by `check_run_directory`, and the caller holds the lock.

    Returns:
        The earlier numbers. Up to the last step of each, the learning rate followed its schedule.
    """
    stored = stored_fingerprint(directory)
    earlier: list[int] = list(stored.get(EARLIER_STEPS, ()))
    before = stored["trainer"]["steps"]
    now = fingerprint["trainer"]["steps"]
    if now != before:
        earlier.append(before)
        plain = {**_plain_data(fingerprint), EARLIER_STEPS: earlier}
        text = yaml.dump(plain, Dumper=_Dumper, sort_keys=False)
        write_file(directory / RUN_FILE, text.encode())
        logger.info(
            "The run of %d steps continues to %d; the learning rate is now that of %d steps.",
            before,
            now,
            now,
        )
    return earlier


STATES = "state"


def latest_state(directory: Path) -> Path | None:
    """Returns the newest state of a run; None means no state."""
    states = sorted((directory / STATES).glob("step_*"))
    return states[-1] if states else None


def completed_steps(state: Path) -> int:
    """Returns the number of steps after which a state was saved."""
    return int(state.name.removeprefix("step_"))


def _plain_data(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain_data(entry) for key, entry in value.items()}
    return [_plain_data(entry) for entry in value] if isinstance(value, (list, tuple)) else value
