"""Monitoring of a training run: metrics, probes, validation, evaluation and kept checkpoints."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Never, TypeVar

import torch
from accelerate import Accelerator
from torch import nn
from tqdm import tqdm

from stringline.encoders.training.evaluations import Evaluations
from stringline.encoders.training.history import History
from stringline.encoders.training.interfaces import Callbacks, RunLogger
from stringline.encoders.training.settings import TrainerSettings
from stringline.encoders.training.stopping import StopSignals

T = TypeVar("T")

LATEST = "latest"
BEST = "best"


class Meter:
    """Measures the speed of the last steps; work between steps, such as evaluation, is excluded."""

    def __init__(self, samples: int, span: int = 50) -> None:
        """Starts with `samples` per step of all processes; metrics cover the last `span` steps."""
        self.samples = samples
        self._steps: deque[tuple[float, float]] = deque(maxlen=span)
        self._requested = self._received = time.perf_counter()

    def waits(self, stream: Iterator[T]) -> Generator[T, None, None]:
        """Yields the items of a stream and measures the wait for each."""
        try:
            while True:
                self._requested = time.perf_counter()
                try:
                    item = next(stream)
                except StopIteration:
                    return
                self._received = time.perf_counter()
                yield item
        finally:
            if close := getattr(stream, "close", None):
                close()

    def step_done(self) -> None:
        """Ends the step of the last batch."""
        now = time.perf_counter()
        self._steps.append((self._received - self._requested, now - self._requested))

    @property
    def samples_per_s(self) -> float:
        """Examples per second of all processes together; 0 before the first step."""
        spent = sum(total for _, total in self._steps)
        return self.samples * len(self._steps) / spent if spent else 0.0

    @property
    def waiting(self) -> float:
        """Share of the time spent waiting for data, 0 to 1."""
        spent = sum(total for _, total in self._steps)
        return sum(waited for waited, _ in self._steps) / spent if spent else 0.0

    def metrics(self) -> dict[str, float]:
        """Returns both metrics by name."""
        return {"samples_per_s": self.samples_per_s, "waiting": self.waiting}


def metric_lines(found: Mapping[str, float]) -> list[str]:
    """Returns metrics as lines: one for all, and one for each group `<name>/<entry>` of them."""
    single = [f"{name} {value:.3f}" for name, value in found.items() if "/" not in name]
    groups: dict[str, list[str]] = {}
    for name, value in found.items():
        group, separator, entry = name.partition("/")
        if separator:
            groups.setdefault(group, []).append(f"{entry}: {value:.1f}")
    return [
        *([", ".join(single)] if single else []),
        *(f"{group} {', '.join(entries)}" for group, entries in groups.items()),
    ]


class Monitor:
    """Logs metrics and runs the callbacks on the averaged model, in the main process."""

    def __init__(
        self,
        settings: TrainerSettings,
        callbacks: Callbacks,
        accelerator: Accelerator,
        *,
        averaged: Callable[[], AbstractContextManager[nn.Module]],
        history: History,
        directory: Path,
    ) -> None:
        """Connects the monitor with a run; `averaged` is `MovingAverage.applied`."""
        self._settings = settings
        self._callbacks = callbacks
        self._accelerator = accelerator
        self._averaged = averaged
        self._history = history
        self._directory = directory
        self._logger: RunLogger | None = None
        self._is_main_process = bool(accelerator.is_main_process)
        self._evaluations = Evaluations(
            callbacks, history, directory, log=self._write, keep_best=self.keep_best
        )

    def begin(self, first: int) -> None:
        """Opens the logger of a run with `first` completed steps, and keeps its model.

        An earlier call may have been killed between saving the state and keeping the model. A best
        model is kept after its state, so it is that of the newest state or has been kept already.
        """
        if self._is_main_process and self._callbacks.logger:
            self._logger = self._callbacks.logger(directory=self._directory, first_step=first)
        if first:
            self.keep(LATEST, first)
            self.keep_best(first)
        if self._is_main_process:
            self._evaluations.begin(first)

    def close(self) -> None:
        """Interrupts an evaluation in another process, and closes the logger."""
        if self._is_main_process:
            self._evaluations.close()
        if self._logger:
            self._logger.close()

    def log(self, step: int, loss: float, norm: float, meter: Meter, bar: "tqdm[Never]") -> None:
        """Logs the metrics of a step and updates the progress bar."""
        speed = f"{meter.samples_per_s:.0f} samples/s, {meter.waiting:.0%} waiting for data"
        bar.set_postfix_str(f"loss {self._history.recent_loss():.4f}, {speed}", refresh=False)
        bar.update()
        if step % self._settings.log_every == 0:
            rate = self._settings.learning_rate * self._settings.schedule(step)
            metrics = {"loss": loss, "gradient_norm": norm, "learning_rate": rate}
            self._write(step, metrics | meter.metrics())

    def validate(self, done: int, meter: Meter, bar: "tqdm[Never]") -> None:
        """Probes and validates the model if it is due after `done` steps."""
        if not self._validates(done):
            return
        with self._averaged() as model:
            probe = dict(self._callbacks.probe(model)) if self._callbacks.probe else {}
            loss = self._validation_loss(model)
        self._history.add(step=done - 1, probe=probe, validation=loss, speed=meter.metrics())
        found = probe if loss is None else probe | {"validation loss": loss}
        if found:
            for line in metric_lines(found):
                bar.write(f"step {done}: {line}")
            self._write(
                done - 1,
                {f"held_out/{name.replace(' ', '_')}": value for name, value in found.items()},
            )

    def evaluates(self, done: int) -> bool:
        """Returns whether the model is evaluated after `done` steps."""
        return (
            self._callbacks.evaluate is not None
            and done > 0
            and self._is_time(done, self._settings.evaluate_every)
        )

    def evaluate(self, done: int, stop: StopSignals) -> None:
        """Evaluates the model if it is due and not done yet; its state and copy must be saved.

        The copy of a best model is kept after its row of the history; if the run is killed between
        the two, `begin` keeps it. Raises `Stopped` if a stop signal interrupts the evaluation.
        """
        if not self.evaluates(done):
            if self._is_main_process:
                self._evaluations.take_ended()
            return
        if self._is_main_process:
            self._evaluations.run(done, stop, last=done == self._settings.steps)
        self._accelerator.wait_for_everyone()

    def keep(self, name: str, done: int) -> None:
        """Stores a copy of the averaged model under a name."""
        if self._is_main_process and self._callbacks.keep:
            with self._averaged() as model:
                self._callbacks.keep(model, name, done)

    def keep_best(self, done: int) -> None:
        """Stores the averaged model as the best one if it is; its state must be saved before."""
        if self._history.best_step() == done - 1:
            self.keep(BEST, done)

    def improved(self, done: int) -> bool:
        """Returns whether the validation after `done` steps found the best model so far."""
        return self._validates(done) and self._history.best_step() == done - 1

    def _validates(self, done: int) -> bool:
        return self._is_main_process and (
            self._is_time(done, self._settings.probe_every) or self.evaluates(done)
        )

    def _is_time(self, done: int, every: int) -> bool:
        return done == self._settings.steps or done % every == 0

    def _validation_loss(self, model: nn.Module) -> float | None:
        if self._callbacks.validate is None:
            return None
        device = self._accelerator.device
        with torch.autocast(device.type, torch.bfloat16, enabled=self._settings.in_bf16()):
            return float(self._callbacks.validate(model))

    def _write(self, step: int, values: Mapping[str, float]) -> None:
        if self._logger:
            self._logger.log(step, values)
