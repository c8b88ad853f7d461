"""Settings of a training run."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stringline.datasets.contract.argument_checks import (
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    WHOLE,
    Range,
)
from stringline.encoders.training.optimisation import parameter_groups, warmup_cosine

# Settings that decide when a run is monitored, and have no effect on the weights.
MONITORING = ("probe_every", "save_every", "evaluate_every", "log_every")


@dataclass(kw_only=True, eq=False)
class TrainerSettings:
    """Settings of a run; `stringline.Trainer` derives from this class.

    Attributes:
        steps: Total number of optimiser steps.
        batch_size: Examples per step and process.
        accumulate: Number of parts that a batch is processed in, one after the other: less memory,
            the same gradients.
        learning_rate: Peak of the schedule.
        warmup_steps: Steps of the linear rise.
        final_learning_rate: End of the cosine decay, as a share of the peak.
        betas: Coefficients of AdamW.
        weight_decay: Weight decay of matrices, except parameters listed in `no_weight_decay()`.
        clip_norm: Largest gradient norm.
        ema_decay: Decay of the moving average, which rises to it as (1 + n) / (10 + n).
        precision: `auto` (bf16 on hardware that supports it), `bf16` or `no`.
        compile: Whether `torch.compile` compiles the loss: `auto` (on GPUs), true or false. A
            compiled loss draws other random numbers.
        seed: Seed of the random numbers of the loss.
        probe_every: Steps between probes, and between validation losses.
        save_every: Steps between resumable states; the state of each best model is saved too.
        evaluate_every: Steps between evaluations, if there is an `evaluate` callback.
        log_every: Steps between logged metrics.
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

    def __post_init__(self) -> None:
        self._check(COUNT, "steps", "batch_size", "accumulate", *MONITORING)
        self._check(WHOLE, "warmup_steps", "seed")
        self._check(NOT_NEGATIVE, "learning_rate", "final_learning_rate", "weight_decay")
        self._check(POSITIVE, "clip_norm")
        self._check(Range(least=0, most=1), "ema_decay")
        if len(self.betas) != 2 or not all(beta in SHARE for beta in self.betas):
            raise ValueError(
                f"trainer.betas is {list(self.betas)}; allowed: two numbers, each {SHARE}."
            )
        self.betas = (self.betas[0], self.betas[1])  # YAML has lists.
        if self.accumulate > self.batch_size:
            raise ValueError(
                f"trainer.accumulate is {self.accumulate}; allowed: 1 to trainer.batch_size = "
                f"{self.batch_size}."
            )
        if self.precision not in ("auto", "bf16", "no"):
            raise ValueError(
                f"trainer.precision is {self.precision!r}; allowed: 'auto', 'bf16', 'no'."
            )
        if self.compile not in ("auto", True, False):
            raise ValueError(f"trainer.compile is {self.compile!r}; allowed: 'auto', true, false.")

    def _check(self, allowed: Range, *names: str) -> None:
        allowed.check(**{f"trainer.{name}": getattr(self, name) for name in names})

    def fingerprint(self) -> dict[str, Any]:
        """Returns the settings that decide the weights of a run, as plain data.

        `precision` is resolved for this machine, so a run that began in bf16 cannot continue in
        float32, and its record names the precision that was used.
        """
        chosen = {name: value for name, value in vars(self).items() if name not in MONITORING}
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
        """Returns the optimiser's parameter groups, with and without weight decay."""
        return parameter_groups(model, self.weight_decay)
