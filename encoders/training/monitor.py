"""Monitoring of a training run: metrics, probes, evaluation and kept checkpoints; signals to stop.

The history is a file with the metrics of each step, one JSON object per line. Evaluations run in
the main process, or in another one while the training goes on.
"""

import gc
import json
import logging
import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Never, Self, TypeVar

import torch
from accelerate import Accelerator
from torch import distributed, nn
from tqdm import tqdm

from stringline.encoders.training.interfaces import BackgroundEvaluation, Callbacks, RunLogger
from stringline.encoders.training.settings import TrainerSettings

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """A run was stopped by the signal `number` and can be continued."""

    def __init__(self, number: int, steps_done: int, directory: Path) -> None:
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        super().__init__(
            f"Stopped by {name} after step {steps_done}; the state is saved in {directory}. Run "
            f"the same command to continue."
        )
        self.number = number

    @property
    def exit_code(self) -> int:
        """The exit code of a process that ends on that signal, by the convention of shells."""
        return 128 + self.number


class StopSignals:
    """Records the first stop signal of a `with` block; the second one interrupts the process.

    Outside of the main thread, where Python handles no signals, it does nothing.

    Attributes:
        received: The first signal, or 0.
    """

    def __init__(self) -> None:
        self.received = 0
        self._immediate = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Installs the signal handlers."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restores the signal handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def immediately(self) -> Iterator[None]:
        """Lets the first signal interrupt the block, for work that leaves no state to save."""
        self._immediate = True
        try:
            yield
        finally:
            self._immediate = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received or self._immediate:
            self.received = self.received or number
            raise KeyboardInterrupt
        self.received = number
        logger.warning(
            "Stopping as soon as this step is done and its state is saved; a second signal stops "
            "at once."
        )


@contextmanager
def process_group() -> Iterator[None]:
    """Destroys torch's process group at the end of the block, if training in it has created one.

    A process that exits as a member of its group may be aborted by torch's threads, and `torchrun`
    then reports a failure although everything is saved. So programs that train in several processes
    call `Trainer.fit` in one such block; afterwards the group cannot be used again.

    The group is left only after success or `Stopped`, which all processes reach after the same
    step. After any other error it stays: destroying it could wait for processes that hang in it.
    """
    try:
        yield
    except Stopped:
        _leave()
        raise
    _leave()


def _leave() -> None:
    if distributed.is_available() and distributed.is_initialized():
        # The wrapped models of Accelerate are in reference cycles, and hold the group with its
        # threads until they are collected.
        gc.collect()
        distributed.destroy_process_group()


class History:
    """The losses and metrics of a run; appended as it runs, truncated when it continues."""

    def __init__(self, file: Path, rows: list[dict[str, Any]]) -> None:
        """Starts with these rows; `open` reads those of the file."""
        self.file = file
        self.rows = rows
        self._handle = file.open("a", buffering=1)

    @classmethod
    def open(cls, file: Path) -> Self:
        """Opens a history with its existing rows; drops a last line that a crash cut short."""
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = []
        for line in file.read_text().splitlines() if file.exists() else []:
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
        history = cls(file, rows)
        history._rewrite(rows)
        return history

    def add(
        self,
        *,
        step: int,
        seconds: float | None = None,
        loss: float | None = None,
        gradient_norm: float | None = None,
        probe: Mapping[str, float] | None = None,
        validation: float | None = None,
        evaluation: Mapping[str, float] | None = None,
        speed: Mapping[str, float] | None = None,
    ) -> None:
        """Appends the row of a step (from 0); None and empty values are left out.

        `seconds` is the training time so far, the gradient norm is that before clipping. Probe,
        validation and evaluation are of the averaged weights after the step; models are compared by
        `success` in the evaluation. Only `seconds` and `speed` depend on the machine.
        """
        given: dict[str, Any] = {
            "step": step,
            "seconds": seconds,
            "loss": loss,
            "gradient_norm": gradient_norm,
            "probe": dict(probe or {}),
            "validation": validation,
            "evaluation": dict(evaluation or {}),
            "speed": dict(speed or {}),
        }
        row = {key: value for key, value in given.items() if value is not None and value != {}}
        self.rows.append(row)
        self._handle.write(json.dumps(row) + "\n")

    def truncate(self, steps: int) -> None:
        """Keeps the rows of the first `steps` steps."""
        self._rewrite([row for row in self.rows if row["step"] < steps])

    def recent_loss(self, count: int = 50) -> float:
        """Returns the mean of the last losses."""
        losses = [row["loss"] for row in self.rows[-count:] if "loss" in row]
        return float(sum(losses) / max(1, len(losses)))

    def seconds(self) -> float:
        """Returns the training time so far."""
        return max((float(row["seconds"]) for row in self.rows if "seconds" in row), default=0.0)

    def losses(self) -> list[tuple[int, float]]:
        """Returns (step, loss) of every step."""
        return [(row["step"], row["loss"]) for row in self.rows if "loss" in row]

    def probes(self) -> list[tuple[int, dict[str, float]]]:
        """Returns (step, metrics) of every probe."""
        return [(row["step"], row["probe"]) for row in self.rows if "probe" in row]

    def validations(self) -> list[tuple[int, float]]:
        """Returns (step, loss) of every validation."""
        return [(row["step"], row["validation"]) for row in self.rows if "validation" in row]

    def evaluations(self) -> list[tuple[int, dict[str, float]]]:
        """Returns (step, metrics) of every evaluation."""
        return [(row["step"], row["evaluation"]) for row in self.rows if "evaluation" in row]

    def best_step(self) -> int | None:
        """Returns the step with the best model; None means no measurements.

        Models are compared by success, if it was measured, otherwise by validation loss. Among
        models of equal success the validation loss decides, then the earlier step.
        """
        losses = {step: loss for step, loss in self.validations() if math.isfinite(loss)}
        scores = [
            (step, (-figures["success"], losses.get(step, math.inf)))
            for step, figures in self.evaluations()
        ]
        scores = scores or [(step, (0.0, loss)) for step, loss in losses.items()]
        return min(scores, key=lambda entry: entry[1])[0] if scores else None

    def close(self) -> None:
        """Closes the file."""
        self._handle.close()

    def _rewrite(self, rows: list[dict[str, Any]]) -> None:
        self._handle.close()
        fresh = self.file.with_suffix(".new")
        fresh.write_text("".join(json.dumps(row) + "\n" for row in rows))
        fresh.replace(self.file)
        self.rows = rows
        self._handle = self.file.open("a", buffering=1)


Metrics = Mapping[str, float]


class Evaluations:
    """Evaluates the model of a run, enters the metrics in its history, and keeps the best model."""

    def __init__(
        self,
        callbacks: Callbacks,
        history: History,
        directory: Path,
        *,
        log: Callable[[int, Metrics], None],
        keep_best: Callable[[int], None],
    ) -> None:
        """Connects the evaluations with a run.

        Args:
            callbacks: The functions of the run.
            history: History of the run.
            directory: Directory of the run, for messages.
            log: Logs the metrics of a step.
            keep_best: Keeps the present model if that after this number of steps is the best.
        """
        self._evaluate = callbacks.evaluate
        self._background = callbacks.background
        self._history = history
        self._directory = directory
        self._log = log
        self._keep_best = keep_best
        self._running: set[int] = set()  # Of this call, so that steps look for no files.

    def begin(self, first: int) -> None:
        """Continues the evaluations that an earlier call of a run with `first` steps has begun."""
        background = self._background
        for done in background.begun() if background else ():
            assert background
            if done > first:  # The run is repeated from an earlier state.
                background.discard(done)
            elif self._known(done):
                self._end(background, done)
            else:
                self._start(background, done)

    def take_ended(self) -> None:
        """Enters the metrics of evaluations that have ended in another process."""
        background = self._background
        for begun in sorted(self._running):
            if background and background.has_ended(begun):
                self._enter(begun, background.metrics(begun))
                self._end(background, begun)

    def run(self, done: int, stop: StopSignals, *, last: bool) -> None:
        """Evaluates the model after `done` steps, if this has not been done yet.

        Raises:
            Stopped: A stop signal interrupts the evaluation.
        """
        background = self._background
        if background:
            earlier = [begun for begun in background.begun() if begun != done]
            self._wait(background, earlier, done, stop)
            if background.begins and not self._known(done) and done not in background.begun():
                self._start(background, done)
            if last:
                self._wait(background, background.begun(), done, stop)
            if done in background.begun():
                return
        if self._evaluate and not self._known(done):
            self._enter(done, self._interruptible(partial(self._evaluate, done), done, stop))
            self._keep_best(done)

    def close(self) -> None:
        """Interrupts what still runs."""
        if self._background:
            self._background.close()

    def _known(self, done: int) -> bool:
        return done - 1 in dict(self._history.evaluations())

    def _start(self, background: BackgroundEvaluation, done: int) -> None:
        background.start(done)
        self._running.add(done)

    def _wait(
        self,
        background: BackgroundEvaluation,
        chosen: Sequence[int],
        done: int,
        stop: StopSignals,
    ) -> None:
        """Enters the metrics of evaluations when they have ended."""
        for begun in chosen:
            self._enter(begun, self._interruptible(partial(background.metrics, begun), done, stop))
            self._end(background, begun)

    def _end(self, background: BackgroundEvaluation, begun: int) -> None:
        """Keeps the copy if it is the best; its row of the history must exist."""
        if self._history.best_step() == begun - 1:
            background.keep_best(begun)
        background.discard(begun)
        self._running.discard(begun)

    def _enter(self, done: int, found: Metrics) -> None:
        self._history.add(step=done - 1, evaluation=found)
        self._log(done - 1, {f"evaluation/{name}": value for name, value in found.items()})

    def _interruptible(
        self, evaluate: Callable[[], Metrics], done: int, stop: StopSignals
    ) -> Metrics:
        """Returns metrics; the state after `done` steps must be saved."""
        try:
            if stop.received:  # It came after the state was saved.
                raise KeyboardInterrupt
            with stop.immediately():
                return evaluate()
        except KeyboardInterrupt:
            raise Stopped(stop.received or signal.SIGINT, done, self._directory) from None


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
