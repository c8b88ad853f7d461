"""Monitoring of a training run: metrics, speed, probes, validation, evaluation and kept checkpoints."""

import signal
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

from stringline.encoders.training.history import History
from stringline.encoders.training.interfaces import Asides, RunLogger
from stringline.encoders.training.settings import TrainerSettings
from stringline.encoders.training.stopping import Stopped, StopSignals

T = TypeVar("T")


class Meter:
    """Measures the last steps of a run; what is done between steps, such as evaluation, does not count.

    Attributes:
        samples: Examples per step, of all processes together.
    """

    def __init__(self, samples: int, span: int = 50) -> None:
        """Has measured nothing yet.

        Args:
            samples: Examples per step, of all processes together.
            span: How many steps the figures are of.
        """
        self.samples = samples
        self._steps: deque[tuple[float, float]] = deque(maxlen=span)
        self._asked = self._got = time.perf_counter()

    def waits(self, stream: Iterator[T]) -> Generator[T, None, None]:
        """Yields what the stream yields, and measures how long each was waited for."""
        try:
            while True:
                self._asked = time.perf_counter()
                try:
                    item = next(stream)
                except StopIteration:
                    return
                self._got = time.perf_counter()
                yield item
        finally:
            if close := getattr(stream, "close", None):
                close()

    def step_done(self) -> None:
        """Ends the step whose batch came last."""
        self._steps.append((self._got - self._asked, time.perf_counter() - self._asked))

    @property
    def samples_per_s(self) -> float:
        """Examples per second of all processes together; 0 before the first step."""
        spent = sum(total for _, total in self._steps)
        return self.samples * len(self._steps) / spent if spent else 0.0

    @property
    def waiting(self) -> float:
        """Share of the time that was spent waiting for data, 0 to 1."""
        spent = sum(total for _, total in self._steps)
        return sum(waited for waited, _ in self._steps) / spent if spent else 0.0

    def figures(self) -> dict[str, float]:
        """Returns both by name."""
        return {"samples_per_s": self.samples_per_s, "waiting": self.waiting}


LATEST = "latest"
BEST = "best"


class Observer:
    """Looks at the averaged model of a run, in the first of its processes."""

    def __init__(
        self,
        settings: TrainerSettings,
        asides: Asides,
        accelerator: Accelerator,
        *,
        lend: Callable[[], AbstractContextManager[nn.Module]],
        history: History,
        directory: Path,
    ) -> None:
        """Looks at nothing yet.

        Args:
            settings: How often to look.
            asides: What to do.
            accelerator: Knows the device and the other processes.
            lend: Lends the model with the averaged weights, see `MovingAverage.lent`.
            history: Where findings go.
            directory: Of the run.
        """
        self._settings = settings
        self._asides = asides
        self._accelerator = accelerator
        self._lend = lend
        self._history = history
        self._directory = directory
        self._logger: RunLogger | None = None
        self._leads = bool(accelerator.is_main_process)

    def begin(self, first: int) -> None:
        """Opens the logger of a run whose first steps are done, and keeps its model: it may have stopped before it did.

        A best model is kept after a state of it. So either it is that of the newest state, or an
        earlier call has kept it.
        """
        if self._leads and self._asides.logger:
            self._logger = self._asides.logger(directory=self._directory, first_step=first)
        if first:
            self.keep(LATEST, first)
            self.keep_best(first)

    def close(self) -> None:
        """Closes the logger."""
        if self._logger:
            self._logger.close()

    def show(self, step: int, loss: float, norm: float, meter: Meter, bar: "tqdm[Never]") -> None:
        """Shows the figures of a step."""
        speed = f"{meter.samples_per_s:.0f} samples/s, {meter.waiting:.0%} waiting for data"
        bar.set_postfix_str(f"loss {self._history.recent_loss():.4f}, {speed}", refresh=False)
        bar.update()
        if step % self._settings.log_every == 0:
            rate = self._settings.learning_rate * self._settings.schedule(step)
            self._log(
                step, {"loss": loss, "gradient_norm": norm, "learning_rate": rate} | meter.figures()
            )

    def look(self, done: int, meter: Meter, bar: "tqdm[Never]") -> None:
        """Probes and validates the model when it is time to."""
        if not self._looks(done):
            return
        with self._lend() as model:
            probe = dict(self._asides.probe(model)) if self._asides.probe else {}
            validation = self._validated(model)
        self._history.add(step=done - 1, probe=probe, validation=validation, speed=meter.figures())
        found = probe if validation is None else probe | {"validation loss": validation}
        if found:
            bar.write(
                f"step {done}: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items())
            )
            self._log(
                done - 1,
                {f"held_out/{name.replace(' ', '_')}": value for name, value in found.items()},
            )

    def evaluates(self, done: int) -> bool:
        """Says whether the model is to be evaluated after so many steps."""
        return (
            self._asides.evaluate is not None
            and done > 0
            and self._is_time(done, self._settings.evaluate_every)
        )

    def evaluate(self, done: int, stop: StopSignals) -> None:
        """Evaluates the model when it is time to and it is not done yet; its state must have been saved, and its latest copy.

        The copy of the best model is kept after the row of the history that says so; if the run is
        killed between the two, `begin` keeps it.

        Raises:
            Stopped: Ctrl-C or SIGTERM came meanwhile.
        """
        if not self.evaluates(done):
            return
        if (
            self._leads
            and self._asides.evaluate
            and done - 1 not in dict(self._history.evaluations())
        ):
            try:
                with stop.at_once():
                    found = self._asides.evaluate(done)
            except KeyboardInterrupt:
                raise Stopped(stop.asked or signal.SIGINT, done, self._directory) from None
            self._history.add(step=done - 1, evaluation=found)
            self._log(done - 1, {f"evaluation/{name}": value for name, value in found.items()})
            self.keep_best(done)
        self._accelerator.wait_for_everyone()

    def keep(self, name: str, done: int) -> None:
        """Keeps a copy of the averaged model under a name."""
        if self._leads and self._asides.keep:
            with self._lend() as model:
                self._asides.keep(model, name, done)

    def keep_best(self, done: int) -> None:
        """Keeps a copy of the averaged model as the best one if the history says that it is; its state must have been saved."""
        if self._history.best_step() == done - 1:
            self.keep(BEST, done)

    def found_best(self, done: int) -> bool:
        """Says whether the last look, in the process that looks, found a better model than all before."""
        return self._looks(done) and self._history.best_step() == done - 1

    def _looks(self, done: int) -> bool:
        return self._leads and (
            self._is_time(done, self._settings.probe_every) or self.evaluates(done)
        )

    def _is_time(self, done: int, every: int) -> bool:
        return done == self._settings.steps or done % every == 0

    def _validated(self, model: nn.Module) -> float | None:
        if self._asides.validate is None:
            return None
        device = self._accelerator.device
        with torch.autocast(device.type, torch.bfloat16, enabled=self._settings.in_bf16()):
            return float(self._asides.validate(model))

    def _log(self, step: int, values: Mapping[str, float]) -> None:
        if self._logger:
            self._logger.log(step, values)
