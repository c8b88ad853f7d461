"""Evaluations in another process enter the same metrics and keep the same model."""

import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.encoders.training.noisy_line import run
from torch import nn

from stringline.encoders.training.checkpoint import load_description, save_checkpoint
from stringline.encoders.training.interfaces import Callbacks
from stringline.encoders.training.monitor import History, Stopped

SUCCESSES = {3: 0.25, 6: 0.75, 9: 0.5, 10: 0.5}
METRICS = [(done - 1, {"success": success}) for done, success in SUCCESSES.items()]
SETTINGS: dict[str, Any] = {
    "steps": 10,
    "save_every": 5,
    "probe_every": 2,
    "evaluate_every": 3,
    "precision": "no",
}


class Killed(BaseException):
    """Stands for SIGKILL, which cannot be caught."""


class Copies:
    """Evaluations of copies, which end at once or not before the run waits for them.

    It can kill the run before any of its calls.
    """

    def __init__(
        self, directory: Path, *, quick: bool = False, begins: bool = True, kill_at: int = -1
    ) -> None:
        self.directory = directory
        self.quick = quick
        self.begins = begins
        self.calls_left = kill_at
        self.calls = 0
        self.running: set[int] = set()
        self.most = 0

    def begun(self) -> Sequence[int]:
        return sorted(int(copy.name) for copy in (self.directory / "copies").glob("[0-9]*"))

    def start(self, done: int) -> None:
        self._call()
        if done not in self.begun():
            assert steps_of(self.directory / "latest") == done
            shutil.copytree(self.directory / "latest", self._copy(done))
        self.running.add(done)
        self.most = max(self.most, len(self.running))

    def has_ended(self, done: int) -> bool:
        return self.quick and done in self.running

    def metrics(self, done: int) -> Mapping[str, float]:
        self._call()
        self.running.discard(done)
        assert steps_of(self._copy(done)) == done
        return {"success": SUCCESSES[done]}

    def keep_best(self, done: int) -> None:
        self._call()
        shutil.copytree(self._copy(done), self.directory / "best", dirs_exist_ok=True)

    def discard(self, done: int) -> None:
        self._call()
        shutil.rmtree(self._copy(done))

    def close(self) -> None:
        self.running.clear()

    def _call(self) -> None:
        self.calls += 1
        if self.calls - 1 == self.calls_left:
            raise Killed

    def _copy(self, done: int) -> Path:
        return self.directory / "copies" / str(done)


def steps_of(checkpoint: Path) -> int:
    """Returns the number of steps of a kept model."""
    return int(load_description(checkpoint)["steps"])


def train(
    directory: Path, copies: Copies | None, before: Callable[[int], None] = lambda step: None
) -> History:
    """Trains, with evaluations in another process or in between."""

    def keep(model: nn.Module, name: str, done: int) -> None:
        save_checkpoint(directory / name, model, {"steps": done})

    callbacks = Callbacks(
        validate=lambda model: 1.0,
        evaluate=lambda done: {"success": SUCCESSES[done]},
        background=copies,
        keep=keep,
    )
    return run(directory, before=before, callbacks=callbacks, **SETTINGS)[1]


@pytest.mark.parametrize("quick", [True, False])
def test_metrics_and_best_model_are_those_of_a_run_that_waits(quick: bool, tmp_path: Path) -> None:
    waits = train(tmp_path / "waits", None)
    copies = Copies(tmp_path / "background", quick=quick)
    background = train(tmp_path / "background", copies)
    assert background.evaluations() == waits.evaluations() == METRICS
    assert background.losses() == waits.losses()
    assert steps_of(tmp_path / "background/best") == steps_of(tmp_path / "waits/best") == 6
    assert not copies.begun()
    assert copies.most == 1, "one at a time"
    place = [row.get("evaluation") == {"success": 0.25} for row in background.rows].index(True)
    steps = [row["step"] for row in background.rows[:place] if "loss" in row]
    assert max(steps) == (3 if quick else 5), "taken at the next step, or when the next one begins"


@pytest.mark.parametrize("killed_at", range(10))
def test_a_run_killed_at_any_step_continues_its_evaluations(killed_at: int, tmp_path: Path) -> None:
    def kill(step: int) -> None:
        if step == killed_at:
            raise Killed

    with pytest.raises(Killed):
        train(tmp_path, Copies(tmp_path), kill)
    check_continued(tmp_path, Copies(tmp_path))


# Four evaluations with start, metrics and discard; two of them are the best so far.
@pytest.mark.parametrize("kill_at", range(14))
def test_a_run_killed_between_its_files_continues_its_evaluations(
    kill_at: int, tmp_path: Path
) -> None:
    with pytest.raises(Killed):
        train(tmp_path, Copies(tmp_path, kill_at=kill_at))
    check_continued(tmp_path, Copies(tmp_path))


def test_begun_evaluations_end_although_later_ones_do_not_run_in_another_process(
    tmp_path: Path,
) -> None:
    def kill(step: int) -> None:
        if step == 5:
            raise Killed

    with pytest.raises(Killed):
        train(tmp_path, Copies(tmp_path), kill)
    copies = Copies(tmp_path, begins=False)
    assert copies.begun() == [3]
    check_continued(tmp_path, copies)


def check_continued(directory: Path, copies: Copies) -> None:
    """Continues a run, and compares it with one that was not killed."""
    history = train(directory, copies)
    assert sorted(history.evaluations()) == METRICS
    assert steps_of(directory / "best") == 6
    assert not copies.begun()


def test_a_continued_run_does_not_wait_for_the_evaluation_of_its_first_step(
    tmp_path: Path,
) -> None:
    def kill(step: int) -> None:
        if step == 6:
            raise Killed

    with pytest.raises(Killed):
        train(tmp_path, Copies(tmp_path), kill)
    copies = Copies(tmp_path)
    running = []
    train(tmp_path, copies, lambda step: running.append(set(copies.running)))
    assert running[0] == {6}


def test_a_stop_signal_while_an_evaluation_begins_ends_the_run(tmp_path: Path) -> None:
    class Signalled(Copies):
        def start(self, done: int) -> None:
            super().start(done)
            if done == 10:
                os.kill(os.getpid(), signal.SIGTERM)

        def metrics(self, done: int) -> Mapping[str, float]:
            assert done < 10, "the run does not wait for it"
            return super().metrics(done)

    copies = Signalled(tmp_path)
    with pytest.raises(Stopped, match="after step 10"):
        train(tmp_path, copies)
    check_continued(tmp_path, Copies(tmp_path))
