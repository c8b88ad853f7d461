"""The training loop: it trains any module with a loss, stops on request and continues exactly."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Never

import torch
from torch import Tensor, nn
from tqdm import tqdm

from stringline.datasets.contract.value_checks import without_value_checks
from stringline.encoders.training.adaptation import Adaptation
from stringline.encoders.training.hardware import check_hardware, make_accelerator, rounding
from stringline.encoders.training.history import History
from stringline.encoders.training.interfaces import (
    Batch,
    Batches,
    Callbacks,
    Prepare,
    Probe,
    SaveModel,
)
from stringline.encoders.training.losses import check_finite
from stringline.encoders.training.monitor import LATEST, Meter, Monitor
from stringline.encoders.training.optimisation import (
    FACTOR,
    LossModule,
    MovingAverage,
    accumulate,
    split,
)
from stringline.encoders.training.readings import Readings
from stringline.encoders.training.run_state import latest_state, restore_state, save_state
from stringline.encoders.training.settings import TrainerSettings
from stringline.encoders.training.stopping import Stopped, StopSignals

logger = logging.getLogger(__name__)


class Run:
    """One training run; see `Trainer.fit`."""

    def __init__(
        self,
        settings: TrainerSettings,
        model: nn.Module,
        adaptation: Adaptation,
        directory: Path,
        callbacks: Callbacks,
    ) -> None:
        self.settings = settings
        self.model = model
        self.adaptation = adaptation
        self.readings = Readings()
        self.directory = directory
        self.callbacks = callbacks
        self.accelerator = make_accelerator()
        wrapped = LossModule(model)
        if settings.compiles(self.accelerator.device):
            wrapped.compile(dynamic=False)
        optimizer = torch.optim.AdamW(
            settings.parameter_groups(model),
            lr=settings.learning_rate,
            betas=settings.betas,
            fused=settings.fused or None,
        )
        self.prepared, self.optimizer = self.accelerator.prepare(wrapped, optimizer)
        self.average = MovingAverage(model, settings.ema_decay)
        self.is_main_process = bool(self.accelerator.is_main_process)
        self.process = int(self.accelerator.process_index)
        name = "history.jsonl" if self.is_main_process else f"history_{self.process}.jsonl"
        self.history = History.open(directory / name)
        self.monitor = Monitor(
            settings,
            callbacks,
            self.accelerator,
            averaged=self._averaged,
            history=self.history,
            directory=directory,
        )

    def train(self, batches: Batches) -> None:
        """Does all remaining steps."""
        settings = self.settings
        history = self.history
        processes = int(self.accelerator.num_processes)
        meter = Meter(settings.batch_size * processes)
        with ExitStack() as stack:
            stack.enter_context(closing(history))
            first = self._resume()
            stack.enter_context(closing(self.monitor)).begin(first)
            stop = stack.enter_context(StopSignals())
            # An earlier call may have been stopped before its evaluation.
            self.monitor.evaluate(first, stop)
            bar: tqdm[Never] = tqdm(
                total=settings.steps,
                initial=first,
                desc="training",
                unit="step",
                disable=not self.is_main_process,
                mininterval=0.5,
            )
            stack.enter_context(closing(bar))
            before = history.seconds()
            started = time.monotonic()
            stream = meter.waits(batches.stream(first, settings.steps, self.process, processes))
            for step, batch in enumerate(stack.enter_context(closing(stream)), start=first):
                loss, norm = self._step(step, batch)
                meter.step_done()
                self.readings.add(step, before + time.monotonic() - started, loss, norm)
                if self._reads(step + 1, stop):
                    self._read(meter, bar)
                    self.monitor.validate(step + 1, meter, bar)
                    self._save(step + 1, stop)
                    self.monitor.evaluate(step + 1, stop)

    def finish(self, save_model: SaveModel) -> History:
        """Copies the averaged weights into the model and saves it."""
        self.average.copy_to_model()
        self.model.eval()
        if self.is_main_process:
            with self.adaptation.merged():
                save_model(self.model)
        self.accelerator.wait_for_everyone()
        return self.history

    def _resume(self) -> int:
        """Restores the newest state and returns the number of completed steps."""
        state = latest_state(self.directory)
        first = (
            0 if state is None else restore_state(state, self.model, self.optimizer, self.average)
        )
        if (furthest := self._most(first)) != first:
            raise ValueError(
                f"Process {self.process} finds a state after {first} steps in "
                f"{self.directory.absolute()}, other processes one after {furthest}. Put the "
                f"output into a directory that all machines share."
            )
        self.history.truncate(first)
        if first:
            logger.info("Continuing after step %d.", first)
        return first

    @contextmanager
    def _averaged(self) -> Iterator[nn.Module]:
        """Yields the averaged model, whose state dictionary has the names of the whole model."""
        with self.average.applied() as model, self.adaptation.merged():
            yield model

    def _step(self, step: int, batch: Batch) -> tuple[Tensor, Tensor]:
        """Does one optimiser step and returns its loss and gradient norm, on the device."""
        settings = self.settings
        accelerator = self.accelerator
        device = accelerator.device
        seed = (settings.seed * 1_000_003 + step) * 1_009 + self.process
        torch.manual_seed(seed)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate * settings.schedule(step) * group[FACTOR]
        self.adaptation.train()
        batch = {key: value.to(device, non_blocking=True) for key, value in batch.items()}
        if self.callbacks.prepare is not None:
            # Another seed than that of the loss, or both would draw the same numbers.
            generator = torch.Generator(device).manual_seed(seed ^ 0x5A5A5A5A)
            batch = self.callbacks.prepare(batch, generator)
        with without_value_checks() if settings.read_every > 1 else nullcontext():
            loss = accumulate(
                accelerator,
                self.prepared,
                split(batch, settings.accumulate),
                bf16=settings.in_bf16(),
                weigh=self.callbacks.weigh,
            )
        norm = accelerator.clip_grad_norm_(self.prepared.parameters(), settings.clip_norm)
        if settings.read_every == 1:
            self._check(step, float(loss), float(norm), batch)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.average.step()
        return loss, norm

    def _check(self, step: int, loss: float, norm: float, batch: Batch | None) -> None:
        """Raises a BrokenLossError if a number is not finite."""
        file = self.directory / f"broken_batch_{self.process}.txt"
        check_finite(
            loss, norm, step=step, batch=batch, names=partial(self._names, step), file=file
        )

    def _reads(self, done: int, stop: StopSignals) -> bool:
        """Returns whether loss and signals are read after `done` steps, alike in all processes.

        They are read before everything else that is due. A single process need not wait for others
        to stop.
        """
        settings = self.settings
        due = (settings.read_every, settings.save_every, settings.probe_every)
        alone = self.accelerator.num_processes == 1
        return (
            done == settings.steps
            or any(done % every == 0 for every in due)
            or self.monitor.evaluates(done)
            or (alone and bool(stop.received))
        )

    def _read(self, meter: Meter, bar: "tqdm[Never]") -> None:
        """Reads and logs the numbers of the steps since the last call."""
        for found in self.readings.read():
            self._check(found.step, found.loss, found.gradient_norm, None)
            self.history.add(**vars(found))
            self.monitor.log(found.step, found.loss, found.gradient_norm, meter, bar)

    def _save(self, done: int, stop: StopSignals) -> None:
        """Saves the state if it is due, a stop was requested, or the model is the best so far.

        The best model is kept after its state is saved. So a killed run never continues from a step
        before a model that it has kept, and its validation loss is not computed twice.
        """
        # All processes have to stop after the same step, whichever of them got the signal.
        signalled = self._most(stop.received)
        last = done == self.settings.steps
        evaluates = self.monitor.evaluates(done)
        due = bool(last or evaluates or signalled or done % self.settings.save_every == 0)
        if self.is_main_process and (due or self.monitor.improved(done)):
            save_state(self.directory, done, self.model, self.optimizer, self.average)
            self.monitor.keep(LATEST, done)
            self.monitor.keep_best(done)
        if due:  # For a best model alone, which only the main process detects, the others go on.
            self.accelerator.wait_for_everyone()
        if signalled and (evaluates or not last):
            raise Stopped(signalled, done, self.directory)

    def _most(self, number: int) -> int:
        """Returns the largest of the numbers of all processes."""
        if self.accelerator.num_processes == 1:
            return number
        own = torch.tensor([number], device=self.accelerator.device)
        return int(self.accelerator.reduce(own, "max").item())

    def _names(self, step: int) -> Sequence[str]:
        """Returns the names of this process's examples of a step."""
        describe = self.callbacks.describe
        if describe is None:
            return ()
        return describe(step, self.process, int(self.accelerator.num_processes))


class Trainer(TrainerSettings):
    """Trains a module whose `loss(batch)` returns a scalar.

    AdamW with a linear warm-up and a cosine decay, clipped gradients and a moving average of the
    weights. Accelerate distributes the run: one process and `torchrun` use the same code, and a
    program with several processes calls `fit` in a `process_group` block. The random numbers of a
    step depend on seed, step and process alone, so a continued run equals an uninterrupted one to
    the bit.
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
        callbacks: Callbacks | None = None,
    ) -> History:
        """Trains to the last step, from the newest state in the directory, if there is one.

        Args:
            model: A module with `loss(batch) -> scalar tensor`; it ends with the averaged weights.
            batches: The batch of each step.
            directory: Directory of the history and the resumable state.
            save_model: Called with the averaged model after the last step.
            probe: Replaces `callbacks.probe`.
            prepare: Replaces `callbacks.prepare`.
            callbacks: Further functions to call.

        Returns:
            The history of the whole run.

        Raises:
            ValueError: The hardware is missing, or the model lacks a part that a setting names.
            BrokenLossError: The loss or its gradients are not finite; the last state stays.
            Stopped: Ctrl-C or SIGTERM arrived; the state of the last completed step is saved.
        """
        callbacks = callbacks or Callbacks()
        callbacks = replace(
            callbacks, probe=probe or callbacks.probe, prepare=prepare or callbacks.prepare
        )
        check_hardware(self)
        with rounding(self), Adaptation(self, model) as adaptation:
            run = Run(self, model, adaptation, directory, callbacks)
            run.train(batches)
            return run.finish(save_model)
