"""Evaluation of success in another process while the training goes on."""

import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from stringline.datasets.files.atomic import write_file
from stringline.datasets.files.replaced_directory import replaced_directory
from stringline.sim.rollout.child_process import end_with_parent, start_child
from stringline.sim.training.training_evaluation import TrainingEvaluation

logger = logging.getLogger(__name__)

COPY = "checkpoint_"


class ProcessEvaluation:
    """Evaluates copies of the latest checkpoint; see `BackgroundEvaluation`.

    A copy is in `evaluations/checkpoint_<n>` of the run until its metrics are in the history, and
    the messages of the process are in `checkpoint_<n>.txt`.

    Attributes:
        begins: See `BackgroundEvaluation`.
    """

    def __init__(self, evaluation: TrainingEvaluation, latest: Path, best: Path) -> None:
        """Connects the evaluations with a run.

        Args:
            evaluation: The evaluation, of any checkpoint.
            latest: Folder of the latest checkpoint.
            best: Folder of the best checkpoint.
        """
        self.begins = evaluation.background
        self._evaluation = evaluation
        self._latest = latest
        self._best = best
        self._processes: dict[int, tuple[subprocess.Popen[bytes], int]] = {}
        self._failed: set[int] = set()

    def begun(self) -> Sequence[int]:
        """Returns the evaluations of which there is a copy."""
        copies = [path for path in self._evaluation.folder.glob(f"{COPY}*") if path.is_dir()]
        return sorted(int(path.name.removeprefix(COPY)) for path in copies)

    def start(self, done: int) -> None:
        """Copies the latest checkpoint, unless there is a copy, and starts a process."""
        copy = self._copy(done)
        copy.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(copy)
        if not copy.is_dir():
            _metrics_of(copy).unlink(missing_ok=True)
            _copy_checkpoint(self._latest, copy)
        if _metrics_of(copy).exists():
            return
        with copy.with_suffix(".txt").open("ab") as messages:
            process, lifeline = start_child(
                f"{__name__}:evaluate", stdin=subprocess.PIPE, output=messages
            )
        assert process.stdin
        with suppress(BrokenPipeError), process.stdin:  # It may have failed already.
            pickle.dump((self._evaluation.of(copy), done, _metrics_of(copy)), process.stdin)
        self._processes[done] = process, lifeline

    def has_ended(self, done: int) -> bool:
        """Returns whether the metrics are there; a process that has failed is reported once."""
        if _metrics_of(self._copy(done)).exists():
            return True
        if done in self._processes and self._processes[done][0].poll() is not None:
            self._report_failure(done)
        return False

    def metrics(self, done: int) -> Mapping[str, float]:
        """Waits for the process, and reads its metrics; if it has failed, evaluates here."""
        copy = self._copy(done)
        if done in self._processes:
            self._processes[done][0].wait()
            self._end(done)
        if _metrics_of(copy).exists():
            found: dict[str, float] = json.loads(_metrics_of(copy).read_text())
            return found
        self._report_failure(done)
        return self._evaluation.of(copy)(done)

    def keep_best(self, done: int) -> None:
        """Replaces the best checkpoint by the copy."""
        _copy_checkpoint(self._copy(done), self._best)

    def discard(self, done: int) -> None:
        """Removes the copy; the results of the episodes stay."""
        copy = self._copy(done)
        # If the run is killed here, no part of the copy may pass for the whole.
        hidden = copy.with_name(f".{copy.name}.old")
        shutil.rmtree(hidden, ignore_errors=True)
        copy.rename(hidden)
        _metrics_of(copy).unlink(missing_ok=True)
        shutil.rmtree(hidden)

    def close(self) -> None:
        """Ends the processes."""
        for done in list(self._processes):
            self._end(done)

    def _end(self, done: int) -> None:
        process, lifeline = self._processes.pop(done)
        os.close(lifeline)
        process.wait()

    def _report_failure(self, done: int) -> None:
        if done not in self._failed:
            self._failed.add(done)
            logger.warning(
                "The process that evaluates the checkpoint after step %d has failed, see %s. The "
                "run evaluates it when the next evaluation is due.",
                done,
                self._copy(done).with_suffix(".txt"),
            )

    def _copy(self, done: int) -> Path:
        return self._evaluation.folder / f"{COPY}{done:08d}"


def evaluate(lifeline: int) -> None:
    """Runs the evaluation that arrives on the standard input, and writes its metrics."""
    end_with_parent(lifeline)
    # From the training, which started this process.
    evaluation, done, file = pickle.load(sys.stdin.buffer)
    assert isinstance(evaluation, TrainingEvaluation)
    write_file(file, json.dumps(evaluation(done)).encode())


def _metrics_of(copy: Path) -> Path:
    return copy.with_suffix(".json")


def _remove_leftovers(copy: Path) -> None:
    """Removes what a killed run has left: parts of any copy, and unfinished metrics of this one."""
    for left in copy.parent.glob(f".{COPY}*"):
        if left.is_dir():
            shutil.rmtree(left)
    for left in copy.parent.glob(f".{_metrics_of(copy).name}.*"):
        left.unlink()


def _copy_checkpoint(source: Path, target: Path) -> None:
    with replaced_directory(target) as fresh:
        for file in source.iterdir():
            shutil.copyfile(file, fresh / file.name)
