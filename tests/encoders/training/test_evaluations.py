"""Evaluations beside the training enter the same metrics and keep the same model."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.encoders.training.noisy_line import run
from torch import nn

from stringline.encoders.training.checkpoint import load_description, save_checkpoint
from stringline.encoders.training.history import History
from stringline.encoders.training.interfaces import Callbacks

SUCCESSES = {3: 0.25, 6: 0.75, 9: 0.5, 10: 0.5}
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
    """Evaluations of copies, which end at once or not before they are waited for."""

    def __init__(self, directory: Path, *, quick: bool) -> None:
        self.directory = directory
        self.quick = quick
        self.started: list[int] = []
        self.running: set[int] = set()
        self.most = 0

    def begun(self) -> Sequence[int]:
        return sorted(int(copy.name) for copy in (self.directory / "copies").glob("*"))

    def start(self, done: int) -> None:
        if done not in self.begun():
            assert steps_of(self.directory / "latest") == done
            shutil.copytree(self.directory / "latest", self._copy(done))
        self.started.append(done)
        self.running.add(done)
        self.most = max(self.most, len(self.running))

    def has_ended(self, done: int) -> bool:
        return self.quick and done in self.running

    def figures(self, done: int) -> Mapping[str, float]:
        self.running.discard(done)
        assert steps_of(self._copy(done)) == done
        return {"success": SUCCESSES[done]}

    def keep_best(self, done: int) -> None:
        shutil.copytree(self._copy(done), self.directory / "best", dirs_exist_ok=True)

    def discard(self, done: int) -> None:
        shutil.rmtree(self._copy(done))

    def close(self) -> None:
        self.running.clear()

    def _copy(self, done: int) -> Path:
        return self.directory / "copies" / str(done)


def steps_of(checkpoint: Path) -> int:
    """Returns the number of steps of a kept model."""
    return int(load_description(checkpoint)["steps"])


def train(
    directory: Path, beside: Copies | None, before: Callable[[int], None] = lambda step: None
) -> History:
    """Trains, with evaluations beside it or in between."""

    def keep(model: nn.Module, name: str, done: int) -> None:
        save_checkpoint(directory / name, model, {"steps": done})

    callbacks = Callbacks(
        validate=lambda model: 1.0,
        evaluate=lambda done: {"success": SUCCESSES[done]},
        beside=beside,
        keep=keep,
    )
    return run(directory, before=before, callbacks=callbacks, **SETTINGS)[1]


@pytest.mark.parametrize("quick", [True, False])
def test_metrics_and_best_model_are_those_of_a_run_that_waits(quick: bool, tmp_path: Path) -> None:
    waits = train(tmp_path / "waits", None)
    copies = Copies(tmp_path / "beside", quick=quick)
    beside = train(tmp_path / "beside", copies)
    assert beside.evaluations() == waits.evaluations() == evaluations()
    assert beside.losses() == waits.losses()
    assert steps_of(tmp_path / "beside/best") == steps_of(tmp_path / "waits/best") == 6
    assert not copies.begun()
    assert copies.most == 1, "one at a time"
    rows = [next(iter(row.keys() - {"step"})) for row in beside.rows if "evaluation" in row]
    place = [row.get("evaluation") == {"success": 0.25} for row in beside.rows].index(True)
    steps = [row["step"] for row in beside.rows[:place] if "loss" in row]
    assert len(rows) == 4
    assert max(steps) == (3 if quick else 5), "taken at the next step, or when the next one begins"


@pytest.mark.parametrize("killed_at", range(10))
def test_a_killed_run_continues_its_evaluations(killed_at: int, tmp_path: Path) -> None:
    def kill(step: int) -> None:
        if step == killed_at:
            raise Killed

    with pytest.raises(Killed):
        train(tmp_path, Copies(tmp_path, quick=False), kill)
    copies = Copies(tmp_path, quick=False)
    history = train(tmp_path, copies)
    assert sorted(history.evaluations()) == evaluations()
    assert steps_of(tmp_path / "best") == 6
    assert not copies.begun()
    assert copies.started[-1] == 10


def evaluations() -> list[tuple[int, dict[str, float]]]:
    return [(done - 1, {"success": success}) for done, success in SUCCESSES.items()]
