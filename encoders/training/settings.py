"""What stays fixed over a training run."""

from typing import Any

import torch
from torch import nn

from stringline.datasets.ranges import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, WHOLE, Range
from stringline.encoders.training.parameter_groups import parameter_groups
from stringline.encoders.training.schedule import warmup_cosine

# They say how often a run is looked at, and change nothing about what it learns.
OBSERVING = ("probe_every", "save_every", "evaluate_every", "log_every")


class TrainerSettings:
    """Numbers of a run, checked; `stringline.encoders.training.loop.Trainer` trains by them."""

    def __init__(
        self,
        *,
        steps: int,
        batch_size: int,
        accumulate: int = 1,
        learning_rate: float = 1e-3,
        warmup_steps: int = 50,
        final_learning_rate: float = 0.05,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.01,
        clip_norm: float = 1.0,
        ema_decay: float = 0.995,
        precision: str = "auto",
        compile: bool | str = "auto",
        seed: int = 0,
        probe_every: int = 200,
        save_every: int = 200,
        evaluate_every: int = 500,
        log_every: int = 10,
    ) -> None:
        """Sets what stays fixed over a run.

        Args:
            steps: Optimiser steps in all.
            batch_size: Windows per step and process.
            accumulate: Parts that a batch is worked off in, one after the other: less memory, the same gradients.
            learning_rate: Peak of the schedule.
            warmup_steps: Steps of the linear rise.
            final_learning_rate: End of the cosine, as a share of the peak.
            betas: Adam's.
            weight_decay: Of matrices; vectors and parameters that a module lists in `no_weight_decay()` have none.
            clip_norm: Largest gradient norm.
            ema_decay: Decay of the moving average, reached from below as (1 + n) / (10 + n).
            precision: `auto` (bf16 where the processor computes in it), `bf16` or `no`.
            compile: Whether `torch.compile` translates the loss: `auto` (on GPUs), true or false. Random numbers that a
                compiled loss draws are others.
            seed: Of the draws within the losses.
            probe_every: Steps between probes, and between validation losses.
            save_every: Steps between resumable states; there is one of every model that is the best so far, too.
            evaluate_every: Steps between evaluations, where there is something to evaluate on.
            log_every: Steps between figures that are logged.

        Raises:
            ValueError: A number is out of range.
        """
        _check(COUNT, steps=steps, batch_size=batch_size, accumulate=accumulate)
        _check(COUNT, probe_every=probe_every, save_every=save_every, evaluate_every=evaluate_every, log_every=log_every)
        _check(WHOLE, warmup_steps=warmup_steps, seed=seed)
        _check(NOT_NEGATIVE, learning_rate=learning_rate, final_learning_rate=final_learning_rate, weight_decay=weight_decay)
        _check(POSITIVE, clip_norm=clip_norm)
        _check(Range(least=0, most=1), ema_decay=ema_decay)
        if len(betas) != 2 or not all(beta in SHARE for beta in betas):
            raise ValueError(f"trainer.betas is {list(betas)}; allowed: two numbers, each {SHARE}.")
        if accumulate > batch_size:
            raise ValueError(f"trainer.accumulate is {accumulate}; allowed: 1 to trainer.batch_size = {batch_size}.")
        if precision not in ("auto", "bf16", "no"):
            raise ValueError(f"trainer.precision is {precision!r}; allowed: 'auto', 'bf16', 'no'.")
        if compile not in ("auto", True, False):
            raise ValueError(f"trainer.compile is {compile!r}; allowed: 'auto', true, false.")
        self.steps, self.batch_size, self.accumulate = steps, batch_size, accumulate
        self.learning_rate, self.warmup_steps, self.final_learning_rate = learning_rate, warmup_steps, final_learning_rate
        self.betas, self.weight_decay, self.clip_norm, self.ema_decay = (betas[0], betas[1]), weight_decay, clip_norm, ema_decay
        self.precision, self.compile, self.seed = precision, compile, seed
        self.probe_every, self.save_every = probe_every, save_every
        self.evaluate_every, self.log_every = evaluate_every, log_every

    def course(self) -> dict[str, Any]:
        """Returns, as plain data, the settings that decide what a run learns."""
        return {name: value for name, value in vars(self).items() if name not in OBSERVING}

    def schedule(self, step: int) -> float:
        """Returns the learning rate of a step as a share of its peak."""
        return warmup_cosine(step, steps=self.steps, warmup_steps=self.warmup_steps, final=self.final_learning_rate)

    def in_bf16(self) -> bool:
        """Says whether forward passes run in bfloat16."""
        if self.precision != "auto":
            return self.precision == "bf16"
        return torch.cuda.is_bf16_supported() if torch.cuda.is_available() else torch.cpu._is_avx512_bf16_supported()

    def compiles(self, device: torch.device) -> bool:
        """Says whether the loss is compiled on a device."""
        return device.type == "cuda" if self.compile == "auto" else bool(self.compile)

    def parameter_groups(self, model: nn.Module) -> list[dict[str, object]]:
        """Returns the optimiser's groups: parameters with weight decay, and those that are spared."""
        return parameter_groups(model, self.weight_decay)


def _check(allowed: Range, **numbers: float) -> None:
    allowed.check(**{f"trainer.{name}": number for name, number in numbers.items()})
