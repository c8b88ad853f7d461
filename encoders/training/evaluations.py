"""The evaluations of a run: in its main process, or in another one while the training goes on."""

import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from stringline.encoders.training.history import History
from stringline.encoders.training.interfaces import Callbacks, EvaluationBeside
from stringline.encoders.training.stopping import Stopped, StopSignals

Figures = Mapping[str, float]


class Evaluations:
    """Evaluates the model of a run, enters the metrics in its history, and keeps the best model."""

    def __init__(
        self,
        callbacks: Callbacks,
        history: History,
        directory: Path,
        *,
        log: Callable[[int, Figures], None],
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
        self._beside = callbacks.beside
        self._history = history
        self._directory = directory
        self._log = log
        self._keep_best = keep_best

    def begin(self, first: int) -> None:
        """Continues the evaluations that an earlier call of a run with `first` steps has begun."""
        for done in self._beside.begun() if self._beside else ():
            assert self._beside
            if done > first:  # The run is repeated from an earlier state.
                self._beside.discard(done)
            elif self._known(done):
                self._end(self._beside, done)
            else:
                self._beside.start(done)

    def take_ended(self) -> None:
        """Takes the metrics of an evaluation that has ended in another process."""
        for begun in self._running():
            if self._beside and self._beside.has_ended(begun):
                self._enter(begun, self._beside.figures(begun))
                self._end(self._beside, begun)

    def run(self, done: int, stop: StopSignals, *, last: bool) -> None:
        """Evaluates the model after `done` steps, if this has not been done yet.

        Raises:
            Stopped: A stop signal interrupts the evaluation.
        """
        if self._beside:
            self._wait(self._beside, done, stop)
            if not self._known(done):
                self._beside.start(done)
            if last:
                self._wait(self._beside, done, stop)
        elif self._evaluate and not self._known(done):
            self._enter(done, self._interruptible(partial(self._evaluate, done), done, stop))
            self._keep_best(done)

    def close(self) -> None:
        """Interrupts what still runs."""
        if self._beside:
            self._beside.close()

    def _running(self) -> list[int]:
        return list(self._beside.begun()) if self._beside else []

    def _known(self, done: int) -> bool:
        return done - 1 in dict(self._history.evaluations())

    def _wait(self, beside: EvaluationBeside, done: int, stop: StopSignals) -> None:
        """Takes the metrics of all evaluations that have begun."""
        for begun in beside.begun():
            self._enter(begun, self._interruptible(partial(beside.figures, begun), done, stop))
            self._end(beside, begun)

    def _end(self, beside: EvaluationBeside, begun: int) -> None:
        """Keeps the copy if it is the best; its row of the history must exist."""
        if self._history.best_step() == begun - 1:
            beside.keep_best(begun)
        beside.discard(begun)

    def _enter(self, done: int, found: Figures) -> None:
        self._history.add(step=done - 1, evaluation=found)
        self._log(done - 1, {f"evaluation/{name}": value for name, value in found.items()})

    def _interruptible(
        self, evaluate: Callable[[], Figures], done: int, stop: StopSignals
    ) -> Figures:
        try:
            with stop.immediately():
                return evaluate()
        except KeyboardInterrupt:
            raise Stopped(stop.received or signal.SIGINT, done, self._directory) from None
