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
from torch import Tensor, nn
from tqdm import tqdm

from stringline.encoders.torchvision_operators import declare_torchvision_operators
from stringline.encoders.training.history import History
from stringline.encoders.training.progress import latest_state, restore_state, save_state

declare_torchvision_operators()  # Before diffusers, which imports torchvision where that is installed.
from diffusers.training_utils import EMAModel  # noqa: E402

logger = logging.getLogger(__name__)

Batch = Mapping[str, Tensor]
Probe = Callable[[nn.Module], Mapping[str, float]]
SaveModel = Callable[[nn.Module], None]
Prepare = Callable[[Batch, torch.Generator], Batch]


class Batches(Protocol):
    """Gives the batches of a run; what a process sees in step n depends on both alone, so a continued run sees the same."""

    def stream(self, first_step: int, last_step: int, process: int = 0, processes: int = 1) -> Iterator[Batch]:
        """Yields the batches of steps first_step (included) to last_step (excluded) for one of several processes."""
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
        self,
        model: nn.Module,
        batches: Batches,
        directory: Path,
        *,
        save_model: SaveModel,
        probe: Probe | None = None,
        prepare: Prepare | None = None,
    ) -> History:
        """Trains to the last step, from wherever an earlier call in the same directory stopped.

        Args:
            model: Has `loss(batch) -> scalar tensor`; ends with the averaged weights.
            batches: Gives the batch of each step.
            directory: Keeps the history and the resumable state.
            save_model: Called with the averaged model after the last step.
            probe: Called with the averaged model every `probe_every` steps; what it returns goes into the history.
            prepare: Changes each batch on the device before the loss, such as augmentation; its generator is on the device too
                and depends on seed, step and process only.

        Returns:
            The history of the whole run.
        """
        run = _Run(self, model, directory, probe, prepare)
        with closing(run.history):
            first = run.resume()
            bar = tqdm(total=self.steps, initial=first, desc="training", unit="step", disable=not run.leads, mininterval=0.5)
            with closing(bar):
                before, started = run.history.seconds(), time.monotonic()
                places = run.accelerator.process_index, run.accelerator.num_processes
                for step, batch in enumerate(batches.stream(first, self.steps, *places), start=first):
                    loss = run.step(step, batch)
                    run.history.add(step=step, seconds=before + time.monotonic() - started, loss=loss)
                    bar.set_postfix(loss=f"{run.history.recent_loss():.4f}", refresh=False)
                    bar.update()
                    run.after(step + 1, bar)
        return run.finish(save_model)

    def schedule(self, step: int) -> float:
        """Returns the learning rate of a step as a share of its peak."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        share = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        return self.final_learning_rate + (1 - self.final_learning_rate) * 0.5 * (1 + math.cos(math.pi * share))

    def in_bf16(self) -> bool:
        """Says whether forward passes run in bfloat16."""
        if self.precision != "auto":
            return self.precision == "bf16"
        return torch.cuda.is_bf16_supported() if torch.cuda.is_available() else torch.cpu._is_avx512_bf16_supported()

    def parameter_groups(self, model: nn.Module) -> list[dict[str, object]]:
        """Returns the optimiser's groups: parameters with weight decay, and those that are spared."""
        spared = {id(parameter) for parameter in model.parameters() if parameter.ndim < 2}
        for module in model.modules():
            listed: set[str] = getattr(module, "no_weight_decay", set)()
            spared |= {id(parameter) for name, parameter in module.named_parameters() if name in listed}
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


class _Run:
    """One training run in one of its processes."""

    def __init__(
        self, trainer: Trainer, model: nn.Module, directory: Path, probe: Probe | None, prepare: Prepare | None = None
    ) -> None:
        self.trainer, self.model, self.directory, self.probe, self.prepare = trainer, model, directory, probe, prepare
        self.accelerator = Accelerator(cpu=not torch.cuda.is_available())
        optimizer = torch.optim.AdamW(trainer.parameter_groups(model), lr=trainer.learning_rate, betas=trainer.betas)
        self.prepared, self.optimizer = self.accelerator.prepare(_LossModule(model), optimizer)
        self.average = EMAModel(model.parameters(), decay=trainer.ema_decay, use_ema_warmup=False)
        self.average.to(self.accelerator.device)
        self.leads = self.accelerator.is_main_process
        name = "history.jsonl" if self.leads else f"history_{self.accelerator.process_index}.jsonl"
        self.history = History.open(directory / name)

    def resume(self) -> int:
        """Returns the first step that is still to do."""
        state = latest_state(self.directory)
        first = 0 if state is None else restore_state(state, self.model, self.optimizer, self.average)
        self.history.truncate(first)
        if first:
            logger.info("Continuing after step %d.", first)
        return first

    def step(self, step: int, batch: Batch) -> float:
        """Does one optimiser step and returns its loss."""
        trainer, accelerator = self.trainer, self.accelerator
        seed = (trainer.seed * 1_000_003 + step) * 1_009 + accelerator.process_index
        torch.manual_seed(seed)
        for group in self.optimizer.param_groups:
            group["lr"] = trainer.learning_rate * trainer.schedule(step)
        self.prepared.train()
        batch = {key: value.to(accelerator.device, non_blocking=True) for key, value in batch.items()}
        if self.prepare is not None:  # Another stream than that of the loss, or both would draw the same numbers.
            batch = self.prepare(batch, torch.Generator(accelerator.device).manual_seed(seed ^ 0x5A5A5A5A))
        with torch.autocast(accelerator.device.type, torch.bfloat16, enabled=trainer.in_bf16()):
            loss: Tensor = self.prepared(batch)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(self.prepared.parameters(), trainer.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.average.step(self.model.parameters())
        value = loss.item()
        if not math.isfinite(value):
            raise ValueError(f"The loss is {value} at step {step}; lower trainer.learning_rate or set trainer.precision=no.")
        return value

    def after(self, done: int, bar: "tqdm[Never]") -> None:
        """Probes and saves when it is time to."""
        last = done == self.trainer.steps
        if self.leads and self.probe and (last or done % self.trainer.probe_every == 0):
            found = self._probed(self.probe)
            self.history.add(step=done - 1, probe=found)
            bar.write(f"step {done}: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items()))
        if self.leads and (last or done % self.trainer.save_every == 0):
            save_state(self.directory, done, self.model, self.optimizer, self.average)

    def finish(self, save_model: SaveModel) -> History:
        """Leaves the averaged weights in the model and has them saved."""
        self.average.copy_to(self.model.parameters())
        self.model.eval()
        if self.leads:
            save_model(self.model)
        self.accelerator.wait_for_everyone()
        return self.history

    def _probed(self, probe: Probe) -> dict[str, float]:
        self.average.store(self.model.parameters())
        self.average.copy_to(self.model.parameters())
        self.model.eval()
        with torch.no_grad():
            found = dict(probe(self.model))
        self.average.restore(self.model.parameters())
        return found
