"""The training loop: whatever has a loss is trained here, stopped, and continued exactly."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Never, Protocol

import torch
from accelerate import Accelerator
from diffusers.training_utils import EMAModel
from torch import Tensor, nn
from tqdm import tqdm

from stringline.encoders.training.history import History
from stringline.encoders.training.progress import latest_state, restore_state, save_state

logger = logging.getLogger(__name__)

Batch = Mapping[str, Tensor]
Probe = Callable[[nn.Module], Mapping[str, float]]
SaveModel = Callable[[nn.Module], None]


class Batches(Protocol):
    """Gives the batches of a run; what step n sees depends on n alone, so that a continued run sees the same."""

    def stream(self, first_step: int, last_step: int) -> Iterator[Batch]:
        """Yields the batches of steps first_step (included) to last_step (excluded)."""
        ...


class Trainer:
    """Trains a module whose `loss(batch)` returns a scalar.

    AdamW with a linear warm-up and a cosine decay, gradients clipped, a moving average of the weights (diffusers' `EMAModel`).
    Accelerate places it: one process and `torchrun` are the same code. Random numbers are drawn from a state
    that (seed, step, process) alone decides, so a stopped and continued run equals an uninterrupted one to the bit.
    """

    def __init__(
        self,
        *,
        steps: int,
        batch_size: int,
        learning_rate: float = 1e-3,
        warmup_steps: int = 50,
        final_learning_rate: float = 0.05,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.01,
        clip_norm: float = 1.0,
        ema_decay: float = 0.995,
        precision: str = "auto",
        seed: int = 0,
        probe_every: int = 200,
        save_every: int = 200,
    ) -> None:
        """Sets what stays fixed over a run.

        Args:
            steps: Optimiser steps in all.
            batch_size: Windows per step and process.
            learning_rate: Peak of the schedule.
            warmup_steps: Steps of the linear rise.
            final_learning_rate: End of the cosine, as a share of the peak.
            betas: Adam's.
            weight_decay: Of matrices; vectors and parameters that a module lists in `no_weight_decay()` have none.
            clip_norm: Largest gradient norm.
            ema_decay: Decay of the moving average, reached from below as (1 + n) / (10 + n).
            precision: `auto` (bf16 where the processor computes in it), `bf16` or `no`.
            seed: Of the draws within the losses.
            probe_every: Steps between probes.
            save_every: Steps between resumable states.

        Raises:
            ValueError: A number is out of range.
        """
        for name, value in {
            "steps": steps,
            "batch_size": batch_size,
            "probe_every": probe_every,
            "save_every": save_every,
        }.items():
            if value < 1:
                raise ValueError(f"trainer.{name} is {value}; it must be at least 1.")
        if precision not in ("auto", "bf16", "no"):
            raise ValueError(f"trainer.precision is {precision!r}; allowed: 'auto', 'bf16', 'no'.")
        self.steps, self.batch_size = steps, batch_size
        self.learning_rate, self.warmup_steps, self.final_learning_rate = learning_rate, warmup_steps, final_learning_rate
        self.betas, self.weight_decay, self.clip_norm, self.ema_decay = (betas[0], betas[1]), weight_decay, clip_norm, ema_decay
        self.precision, self.seed, self.probe_every, self.save_every = precision, seed, probe_every, save_every

    def fit(
        self, model: nn.Module, batches: Batches, directory: Path, *, save_model: SaveModel, probe: Probe | None = None
    ) -> History:
        """Trains to the last step, from wherever an earlier call in the same directory stopped.

        Args:
            model: Has `loss(batch) -> scalar tensor`; ends with the averaged weights.
            batches: Gives the batch of each step.
            directory: Keeps the history and the resumable state.
            save_model: Called with the averaged model after the last step.
            probe: Called with the averaged model every `probe_every` steps; what it returns goes into the history.

        Returns:
            The history of the whole run.
        """
        accelerator = Accelerator(cpu=not torch.cuda.is_available())
        optimizer = torch.optim.AdamW(self._parameter_groups(model), lr=self.learning_rate, betas=self.betas)
        prepared, optimizer = accelerator.prepare(_LossModule(model), optimizer)
        average = EMAModel(model.parameters(), decay=self.ema_decay, use_ema_warmup=False)
        average.to(accelerator.device)
        with closing(History.open(directory / "history.jsonl")) as history:
            first = self._continue(directory, model, optimizer, average, history)
            bar = tqdm(
                total=self.steps,
                initial=first,
                desc="training",
                unit="step",
                disable=not accelerator.is_main_process,
                mininterval=0.5,
            )
            with closing(bar):
                before, started = history.seconds(), time.monotonic()
                for step, batch in enumerate(batches.stream(first, self.steps), start=first):
                    loss = self._step(step, prepared, optimizer, average, batch, accelerator)
                    history.add(step=step, seconds=before + time.monotonic() - started, loss=loss)
                    bar.set_postfix(loss=f"{history.recent_loss():.4f}", refresh=False)
                    bar.update()
                    done = step + 1
                    if probe and (done % self.probe_every == 0 or done == self.steps):
                        self._probe(probe, model, average, history, bar, done)
                    if accelerator.is_main_process and (done % self.save_every == 0 or done == self.steps):
                        save_state(directory, done, model, optimizer, average)
        average.copy_to(model.parameters())
        model.eval()
        if accelerator.is_main_process:
            save_model(model)
        accelerator.wait_for_everyone()
        return history

    @staticmethod
    def _continue(
        directory: Path, model: nn.Module, optimizer: torch.optim.Optimizer, average: EMAModel, history: History
    ) -> int:
        state = latest_state(directory)
        if state is None:
            history.truncate(0)
            return 0
        first = restore_state(state, model, optimizer, average)
        history.truncate(first)
        logger.info("Continuing after step %d.", first)
        return first

    def _step(
        self,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        average: EMAModel,
        batch: Batch,
        accelerator: Accelerator,
    ) -> float:
        torch.manual_seed((self.seed * 1_000_003 + step) * 1_009 + accelerator.process_index)
        for group in optimizer.param_groups:
            group["lr"] = self.learning_rate * self.schedule(step)
        model.train()
        batch = {key: value.to(accelerator.device, non_blocking=True) for key, value in batch.items()}
        with torch.autocast(accelerator.device.type, torch.bfloat16, enabled=self._in_bf16()):
            loss: Tensor = model(batch)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), self.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average.step(model.parameters())
        value = loss.item()
        if not math.isfinite(value):
            raise ValueError(f"The loss is {value} at step {step}; lower trainer.learning_rate or set trainer.precision=no.")
        return value

    def schedule(self, step: int) -> float:
        """Returns the learning rate of a step as a share of its peak."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        share = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        return self.final_learning_rate + (1 - self.final_learning_rate) * 0.5 * (1 + math.cos(math.pi * share))

    @staticmethod
    def _probe(probe: Probe, model: nn.Module, average: EMAModel, history: History, bar: "tqdm[Never]", done: int) -> None:
        average.store(model.parameters())
        average.copy_to(model.parameters())
        model.eval()
        with torch.no_grad():
            found = dict(probe(model))
        average.restore(model.parameters())
        history.add(step=done - 1, probe=found)
        bar.write(f"step {done}: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items()))

    def _in_bf16(self) -> bool:
        if self.precision != "auto":
            return self.precision == "bf16"
        return torch.cuda.is_bf16_supported() if torch.cuda.is_available() else torch.cpu._is_avx512_bf16_supported()

    def _parameter_groups(self, model: nn.Module) -> list[dict[str, object]]:
        spared = {
            id(parameter)
            for module in model.modules()
            for name, parameter in module.named_parameters(recurse=False)
            if parameter.ndim < 2 or name in getattr(module, "no_weight_decay", tuple)()
        }
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return [
            {"params": [p for p in parameters if id(p) not in spared], "weight_decay": self.weight_decay},
            {"params": [p for p in parameters if id(p) in spared], "weight_decay": 0.0},
        ]


class _LossModule(nn.Module):
    """Makes the loss the forward pass, which is what Accelerate and data parallelism wrap."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Tensor:
        loss: Tensor = self.model.loss(batch)  # type: ignore[operator]  # nn.Module types every attribute as Tensor | Module.
        return loss
