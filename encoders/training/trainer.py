"""The training loop: it trains anything that has a loss, stops on request, and continues exactly."""

import logging
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Never

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from torch import nn
from tqdm import tqdm

from stringline.encoders.training.broken_batch import check_finite
from stringline.encoders.training.history import History
from stringline.encoders.training.interfaces import (
    Asides,
    Batch,
    Batches,
    Prepare,
    Probe,
    SaveModel,
)
from stringline.encoders.training.monitor import LATEST, Meter, Observer
from stringline.encoders.training.optimisation import LossModule, MovingAverage, accumulate, split
from stringline.encoders.training.run_state import latest_state, restore_state, save_state
from stringline.encoders.training.settings import TrainerSettings
from stringline.encoders.training.stopping import Stopped, StopSignals

logger = logging.getLogger(__name__)

PATIENCE = timedelta(hours=6)  # The other processes wait while the first one evaluates.


class Run:
    """A run: made, trained, finished."""

    def __init__(
        self, settings: TrainerSettings, model: nn.Module, directory: Path, asides: Asides
    ) -> None:
        """Places the model; see `Trainer.fit`."""
        self.settings = settings
        self.model = model
        self.directory = directory
        self.asides = asides
        self.accelerator = _accelerator()
        wrapped = LossModule(model)
        if settings.compiles(self.accelerator.device):
            wrapped.compile(dynamic=False)
        optimizer = torch.optim.AdamW(
            settings.parameter_groups(model), lr=settings.learning_rate, betas=settings.betas
        )
        self.prepared, self.optimizer = self.accelerator.prepare(wrapped, optimizer)
        self.average = MovingAverage(model, settings.ema_decay)
        self.leads = bool(self.accelerator.is_main_process)
        self.process = int(self.accelerator.process_index)
        self.history = History.open(
            directory / ("history.jsonl" if self.leads else f"history_{self.process}.jsonl")
        )
        self.observer = Observer(
            settings,
            asides,
            self.accelerator,
            lend=self.average.lent,
            history=self.history,
            directory=directory,
        )

    def train(self, batches: Batches) -> None:
        """Does all steps that are still to do."""
        settings = self.settings
        history = self.history
        processes = int(self.accelerator.num_processes)
        meter = Meter(settings.batch_size * processes)
        with ExitStack() as stack:
            stack.enter_context(closing(history))
            first = self._resume()
            stack.enter_context(closing(self.observer)).begin(first)
            stop = stack.enter_context(StopSignals())
            self.observer.evaluate(
                first, stop
            )  # An earlier call may have been stopped before it did.
            bar: tqdm[Never] = tqdm(
                total=settings.steps,
                initial=first,
                desc="training",
                unit="step",
                disable=not self.leads,
                mininterval=0.5,
            )
            stack.enter_context(closing(bar))
            before = history.seconds()
            started = time.monotonic()
            stream = meter.waits(batches.stream(first, settings.steps, self.process, processes))
            for step, batch in enumerate(stack.enter_context(closing(stream)), start=first):
                loss, norm = self._step(step, batch)
                meter.step_done()
                history.add(
                    step=step,
                    seconds=before + time.monotonic() - started,
                    loss=loss,
                    gradient_norm=norm,
                )
                self.observer.show(step, loss, norm, meter, bar)
                self.observer.look(step + 1, meter, bar)
                self._save(step + 1, stop)
                self.observer.evaluate(step + 1, stop)

    def finish(self, save_model: SaveModel) -> History:
        """Leaves the averaged weights in the model and has them saved."""
        self.average.give()
        self.model.eval()
        if self.leads:
            save_model(self.model)
        self.accelerator.wait_for_everyone()
        return self.history

    def _resume(self) -> int:
        """Returns the first step that is still to do.

        Raises:
            ValueError: The state is broken, or some processes see another one than others.
        """
        state = latest_state(self.directory)
        first = (
            0 if state is None else restore_state(state, self.model, self.optimizer, self.average)
        )
        if (furthest := self._most(first)) != first:
            raise ValueError(
                f"Process {self.process} sees a state after {first} steps in "
                f"{self.directory.absolute()}, others one after "
                f"{furthest}; put the output where all machines see the same files."
            )
        self.history.truncate(first)
        if first:
            logger.info("Continuing after step %d.", first)
        return first

    def _step(self, step: int, batch: Batch) -> tuple[float, float]:
        """Does one optimiser step and returns its loss and the norm of its gradients."""
        settings = self.settings
        accelerator = self.accelerator
        seed = (settings.seed * 1_000_003 + step) * 1_009 + self.process
        torch.manual_seed(seed)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate * settings.schedule(step)
        self.prepared.train()
        batch = {
            key: value.to(accelerator.device, non_blocking=True) for key, value in batch.items()
        }
        if (
            self.asides.prepare is not None
        ):  # Another stream than that of the loss, or both would draw the same numbers.
            batch = self.asides.prepare(
                batch, torch.Generator(accelerator.device).manual_seed(seed ^ 0x5A5A5A5A)
            )
        parts = split(batch, settings.accumulate)
        loss = accumulate(
            accelerator, self.prepared, parts, bf16=settings.in_bf16(), weigh=self.asides.weigh
        )
        norm = float(accelerator.clip_grad_norm_(self.prepared.parameters(), settings.clip_norm))
        file = self.directory / f"broken_batch_{self.process}.txt"
        check_finite(
            loss, norm, step=step, batch=batch, names=partial(self._names, step), file=file
        )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.average.step()
        return loss, norm

    def _save(self, done: int, stop: StopSignals) -> None:
        """Saves the state when it is time to, when a stop was asked for, or when the model is the best so far.

        The best model is kept after its state. So no killed run goes on from before a model that it
        has kept, whose loss might come out otherwise the second time.

        Raises:
            Stopped: A stop was asked for, and there is still something to do.
        """
        asked = self._most(
            stop.asked
        )  # The signal that any of the processes got: all have to stop after the same step.
        last = done == self.settings.steps
        evaluates = self.observer.evaluates(done)
        due = bool(last or evaluates or asked or done % self.settings.save_every == 0)
        if self.leads and (due or self.observer.found_best(done)):
            save_state(self.directory, done, self.model, self.optimizer, self.average)
            self.observer.keep(LATEST, done)
            self.observer.keep_best(done)
        if due:  # Only the first process knows of the best one; the others need not wait for it.
            self.accelerator.wait_for_everyone()
        if asked and (evaluates or not last):
            raise Stopped(asked, done, self.directory)

    def _most(self, number: int) -> int:
        """Returns the largest number that any of the processes has."""
        if self.accelerator.num_processes == 1:
            return number
        return int(
            self.accelerator.reduce(
                torch.tensor([number], device=self.accelerator.device), "max"
            ).item()
        )

    def _names(self, step: int) -> Sequence[str]:
        """Names the examples of a step in this process."""
        return (
            self.asides.describe(step, self.process, int(self.accelerator.num_processes))
            if self.asides.describe
            else ()
        )


def _accelerator() -> Accelerator:
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    handlers = [InitProcessGroupKwargs(timeout=PATIENCE)] if several else []
    return Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=handlers)


class Trainer(TrainerSettings):
    """Trains a module whose `loss(batch)` returns a scalar.

    AdamW with a linear warm-up and a cosine decay, gradients clipped, a moving average of the
    weights. Accelerate places it: one process and `torchrun` are the same code, and a program that
    is to run in several processes has it in a `process_group` block. Random numbers are drawn from
    a state that (seed, step, process) alone decides, so a stopped and continued run equals an
    uninterrupted one to the bit.
    """

    def fit(
        self,
        model: nn.Module,
        batches: Batches,
        directory: Path,
        *,
        save_model: SaveModel,
        probe: Probe | None = None,
        prepare: Prepare | None = None,
        asides: Asides | None = None,
    ) -> History:
        """Trains to the last step, from wherever an earlier call in the same directory stopped.

        Args:
            model: Has `loss(batch) -> scalar tensor`; ends with the averaged weights.
            batches: Gives the batch of each step.
            directory: Keeps the history and the resumable state.
            save_model: Called with the averaged model after the last step.
            probe: See `Asides`; either there or here.
            prepare: The same.
            asides: Whatever else is to be done.

        Returns:
            The history of the whole run.

        Raises:
            BrokenLossError: The loss or its gradients are not finite; the last state stays.
            Stopped: Ctrl-C or SIGTERM came; a state of the step that was done is kept.
        """
        asides = asides or Asides()
        asides = replace(asides, probe=probe or asides.probe, prepare=prepare or asides.prepare)
        run = Run(self, model, directory, asides)
        run.train(batches)
        return run.finish(save_model)
