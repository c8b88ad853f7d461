"""The evaluations of a run: in its main process, or in another one while the training goes on."""

import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from stringline.encoders.training.history import History
from stringline.encoders.training.interfaces import BackgroundEvaluation, Callbacks
from stringline.encoders.training.stopping import Stopped, StopSignals

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
