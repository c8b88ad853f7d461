"""A run killed between its history and its copies: `best` is the best model of its history."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.encoders.training.noisy_line import run
from torch import Tensor, nn

from stringline.encoders.training import trainer as run_module
from stringline.encoders.training.checkpoint import (
    DESCRIPTION,
    WEIGHTS,
    load_description,
    save_checkpoint,
)
from stringline.encoders.training.interfaces import Callbacks
from stringline.encoders.training.monitor import History
from stringline.encoders.training.trainer import save_state

# By steps done. The best is 4, which is no step of `save_every`; where there are trials it is 6.
# Neither is the last.
LOSSES = {2: 3.0, 3: 2.5, 4: 1.0, 6: 2.0, 7: 1.5}
SUCCESSES = {3: 0.25, 6: 0.75, 7: 0.5}
SETTINGS: dict[str, Any] = {
    "steps": 7,
    "save_every": 5,
    "probe_every": 2,
    "evaluate_every": 3,
    "precision": "no",
}


class Killed(BaseException):
    """Stands for SIGKILL, which cannot be caught."""


class Attempt:
    """One call of the training command.

    It may be killed before anything that it writes, which is after what it wrote before.

    Attributes:
        moments: How many such moments there have been.
        begun: The steps of the models that the history called best and that were kept as such, when
            its first step began.
        models: Averaged weights by the number of steps done.
    """

    def __init__(
        self, directory: Path, *, trials: bool, kill_at: int = 0, worse: float = 0
    ) -> None:
        """Is ready.

        Args:
            directory: Of the run.
            trials: Whether models are compared by trials.
            kill_at: At which moment it is killed, counted from 1; 0: never.
            worse: Added to every validation loss, as if sums came out otherwise than in an attempt
                before.
        """
        self.directory, self.kill_at, self.worse, self.step = directory, kill_at, worse, -1
        self.evaluate = (lambda done: {"success": SUCCESSES[done]}) if trials else None
        self.moments = 0
        self.begun: tuple[int | None, int | None] | None = None
        self.models: dict[int, Tensor] = {}

    def go(self) -> bool:
        """Trains; returns whether the run was killed."""
        callbacks = Callbacks(validate=self._validate, evaluate=self.evaluate, keep=self._keep)
        add = History.add

        def added(history: History, **row: Any) -> None:
            if "loss" in row:
                add(history, **row)
            else:
                self._once_more(lambda: add(history, **row))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(History, "add", added)
            patch.setattr(
                run_module, "save_state", lambda *given: self._once_more(lambda: save_state(*given))
            )
            try:
                run(self.directory, before=self._before, callbacks=callbacks, **SETTINGS)
            except Killed:
                return True
        return False

    def _before(self, step: int) -> None:
        self.step = step
        if self.begun is None:
            self.begun = named_best(self.directory), kept_best(self.directory)

    def _validate(self, model: nn.Module) -> float:
        self.models[self.step + 1] = next(model.parameters()).detach().clone()
        return LOSSES[self.step + 1] + self.worse

    def _keep(self, model: nn.Module, name: str, done: int) -> None:
        self._once_more(lambda: save_checkpoint(self.directory / name, model, {"steps": done}))

    def _once_more(self, write: Callable[[], None]) -> None:
        self.moments += 1
        if self.moments == self.kill_at:
            raise Killed
        write()


def named_best(directory: Path) -> int | None:
    """Returns the number of steps of the best model of the history."""
    file = directory / "history.jsonl"
    history = History(file, [json.loads(line) for line in file.read_text().splitlines()])
    history.close()
    step = history.best_step()
    return None if step is None else step + 1


def kept_best(directory: Path) -> int | None:
    """Returns the number of steps of the model that is kept as the best one."""
    best = directory / "best"
    return int(load_description(best)["steps"]) if (best / DESCRIPTION).exists() else None


@pytest.mark.slow
@pytest.mark.parametrize("trials", [False, True])
def test_the_best_model_is_that_of_the_history(tmp_path: Path, trials: bool) -> None:
    """At every moment, while it runs and when it ends, also with other losses in the second run."""
    whole = Attempt(tmp_path / "whole", trials=trials)
    assert not whole.go()
    assert named_best(whole.directory) == kept_best(whole.directory) == (6 if trials else 4)
    assert whole.moments > 8
    went_on = set()
    for moment in range(1, whole.moments + 1):
        directory = tmp_path / str(moment)
        assert Attempt(directory, trials=trials, kill_at=moment).go()
        again = Attempt(directory, trials=trials, worse=10)
        assert not again.go()
        if again.begun is not None:
            assert again.begun[0] == again.begun[1], f"killed at moment {moment}"
            went_on.add(again.begun[0])
        best = kept_best(directory)
        assert best == named_best(directory), f"killed at moment {moment}"
        assert best is not None
        weight = load_file(directory / "best" / WEIGHTS)["layer.weight"]
        assert torch.equal(weight, whole.models[best]), f"killed at moment {moment}"
    assert went_on >= ({None, 3, 6} if trials else {None, 2, 4}), (
        "some runs continued between the best models"
    )
