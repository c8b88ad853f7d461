"""Evaluation of success in another process while the training goes on."""

import logging
import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import SpawnProcess
from pathlib import Path

from stringline.datasets.files.replaced_directory import replaced_directory
from stringline.sim.training.training_evaluation import TrainingEvaluation

logger = logging.getLogger(__name__)

COPY = "checkpoint_"
_GRACE_S = 20.0


class ProcessEvaluation:
    """Evaluates copies of the latest checkpoint; see `EvaluationBeside`.

    A copy is in `evaluations/checkpoint_<n>` of the run until its metrics are known, and the
    messages of the process are in `checkpoint_<n>.txt`.
    """

    def __init__(self, evaluation: TrainingEvaluation, latest: Path, best: Path) -> None:
        """Connects the evaluations with a run.

        Args:
            evaluation: The evaluation, of any checkpoint.
            latest: Folder of the latest checkpoint.
            best: Folder of the best checkpoint.
        """
        self._evaluation = evaluation
        self._latest = latest
        self._best = best
        self._processes: dict[int, SpawnProcess] = {}

    def begun(self) -> Sequence[int]:
        """Returns the evaluations of which there is a copy."""
        copies = [path for path in self._evaluation.folder.glob(f"{COPY}*") if path.is_dir()]
        return sorted(int(path.name.removeprefix(COPY)) for path in copies)

    def start(self, done: int) -> None:
        """Copies the latest checkpoint, unless there is a copy, and starts a process."""
        copy = self._copy(done)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.is_dir():
            _copy_checkpoint(self._latest, copy)
        # A fork would share the state of a GPU.
        process = multiprocessing.get_context("spawn").Process(
            target=_evaluate, args=(self._evaluation.of(copy), done, _log_of(copy))
        )
        process.start()
        self._processes[done] = process

    def has_ended(self, done: int) -> bool:
        """Returns whether the process has ended without an error."""
        process = self._processes.get(done)
        return process is not None and process.exitcode == 0

    def figures(self, done: int) -> Mapping[str, float]:
        """Waits for the process, and reads its results; if it has failed, evaluates here."""
        process = self._processes.get(done)
        if process:
            process.join()
            del self._processes[done]
            if process.exitcode:
                logger.warning(
                    "The process that evaluates the checkpoint after step %d has failed, see %s. "
                    "The training waits for the evaluation.",
                    done,
                    _log_of(self._copy(done)),
                )
        return self._evaluation.of(self._copy(done))(done)

    def keep_best(self, done: int) -> None:
        """Replaces the best checkpoint by the copy."""
        _copy_checkpoint(self._copy(done), self._best)

    def discard(self, done: int) -> None:
        """Removes the copy; the results stay."""
        shutil.rmtree(self._copy(done))

    def close(self) -> None:
        """Interrupts the processes, and kills those that do not end soon."""
        for process in self._processes.values():
            if process.is_alive() and process.pid:
                os.kill(process.pid, signal.SIGINT)
        for process in self._processes.values():
            process.join(_GRACE_S)
            if process.is_alive():
                process.kill()
                process.join()
        self._processes.clear()

    def _copy(self, done: int) -> Path:
        return self._evaluation.folder / f"{COPY}{done:08d}"


def _log_of(copy: Path) -> Path:
    """Returns the file of messages of the process that evaluates a copy."""
    return copy.with_suffix(".txt")


def _copy_checkpoint(source: Path, target: Path) -> None:
    with replaced_directory(target) as fresh:
        for file in source.iterdir():
            shutil.copyfile(file, fresh / file.name)


def _evaluate(evaluation: TrainingEvaluation, done: int, log: Path) -> None:
    """Evaluates in this process, with its messages in a file."""
    with log.open("a", buffering=1) as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
        try:
            evaluation(done)
        except KeyboardInterrupt:
            raise SystemExit(130) from None
