"""Edits of a store do not reach the runs that began before, whether they go on or are continued."""

import gc
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.sim.points import MODEL, fill

from stringline import EpisodeStore, Trainer, train_policy
from stringline.datasets.editing.edit import delete, relabel, trim
from stringline.datasets.store.transactions import trash_of
from stringline.sim.training.training_settings import TrainingSettings

ROOT = Path(__file__).parents[3]
EDITOR = Path(__file__).parent / "store_editor.py"
FITTED = MODEL | {
    "posture": {"_target_": "stringline.Posture", "coefficients": 2},
    "observation_encoder": MODEL["observation_encoder"] | {"joints": "condition"},
}
"""A policy whose linear part is fitted to the training episodes."""


@pytest.fixture(autouse=True)
def without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing crashes here, and syncs would take most of the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@dataclass(frozen=True)
class AtEachStep:
    """A logger that calls a function at each step."""

    call: Callable[[int], None]

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if "loss" in values:
            self.call(step)

    def close(self) -> None:
        """Does nothing."""


def train(
    store: EpisodeStore, run: Path, steps: int, at_each_step: Callable[[int], None]
) -> list[tuple[int, float]]:
    """Trains in `run` and returns the losses."""
    trainer = Trainer(
        steps=steps,
        batch_size=2,
        save_every=10,
        probe_every=25,
        log_every=1,
        precision="no",
        warmup_steps=2,
    )
    settings = TrainingSettings(
        held_out=4, log=lambda directory, first_step: AtEachStep(at_each_step)
    )
    return train_policy(FITTED, store, trainer, run, settings).losses()


def nothing(step: int) -> None:
    """Does nothing at a step."""


def files(run: Path) -> dict[str, bytes]:
    """Returns the checkpoints of a run."""
    return {
        f"{name}/{file}": (run / name / file).read_bytes()
        for name in ("checkpoint", "latest", "best")
        for file in ("weights.safetensors", "checkpoint.yaml")
    }


@contextmanager
def edits(store: EpisodeStore) -> Iterator[Callable[[], int]]:
    """Yields a function that lets another process edit the store once, and returns the number."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / ".src")}
    with subprocess.Popen(
        [sys.executable, str(EDITOR), str(store.path)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as editor:
        orders, answers = editor.stdin, editor.stdout
        assert orders is not None
        assert answers is not None

        def edit() -> int:
            orders.write("\n")
            orders.flush()
            return int(answers.readline())

        yield edit
        orders.close()


def compare(folder: Path, steps: int, count: int) -> None:
    """Compares a training beside `count` edits with one alone, to the bit.

    There are more episodes than the first steps read, so that removed ones are read for the first
    time.
    """
    store = EpisodeStore.create(folder / "store")
    fill(store, range(60))
    alone = train(store, folder / "alone", steps, nothing)
    made = [0]
    with edits(store) as edit:

        def edit_sometimes(step: int) -> None:
            if step % (steps // count) == 0:
                made.append(edit())

        beside = train(store, folder / "beside", steps, edit_sometimes)
    assert max(made) >= count
    assert beside == alone
    assert files(folder / "beside") == files(folder / "alone")
    gc.collect()  # A finished training is garbage with cycles.
    assert [path.name for path in sorted(folder.iterdir())] == ["alone", "beside", "store"]


@pytest.mark.slow
def test_a_training_beside_edits_equals_one_alone(tmp_path: Path) -> None:
    compare(tmp_path, 24, 12)


@pytest.mark.stress
def test_a_long_training_beside_fifty_edits_equals_one_alone(tmp_path: Path) -> None:
    compare(tmp_path, 200, 50)


class StopError(Exception):
    """Ends a training."""


def stopped_at(last: int) -> Callable[[int], None]:
    """Returns a function that ends a training at a step."""

    def stop(step: int) -> None:
        if step == last:
            raise StopError

    return stop


@pytest.mark.slow
def test_a_continued_run_keeps_the_episodes_with_which_it_began(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After edits and new recordings it equals an uninterrupted run; one line says what changed."""
    store = EpisodeStore.create(tmp_path / "store")
    fill(store, range(12))
    names = store.names()
    whole = train(store, tmp_path / "whole", 20, nothing)
    with pytest.raises(StopError):
        train(store, tmp_path / "run", 20, stopped_at(13))
    delete(store, names[:2])
    trimmed = trim(store, names[-1:], from_s=0.1)
    relabelled = relabel(store, names[5:6], success=False)
    fill(store, range(12, 14))
    with caplog.at_level(logging.WARNING):
        assert train(store, tmp_path / "run", 20, nothing) == whole
    assert files(tmp_path / "run") == files(tmp_path / "whole")
    (line,) = (entry.getMessage() for entry in caplog.records if "changed" in entry.getMessage())
    assert f"Removed: {', '.join([*names[:2], names[5], names[-1]])}." in line
    added = [name for name in store.names() if name not in names]
    assert f"Added: {', '.join(added)}." in line
    assert {*trimmed, *relabelled} < set(added)
    assert len(added) == 4


@pytest.mark.slow
def test_a_run_without_its_episodes_does_not_continue(tmp_path: Path) -> None:
    """Neither with other episodes nor once it has ended."""
    store = EpisodeStore.create(tmp_path / "store")
    fill(store, range(8))
    name = store.names()[3]
    with pytest.raises(StopError):
        train(store, tmp_path / "run", 20, stopped_at(13))
    train(store, tmp_path / "ended", 2, nothing)
    gc.collect()  # The readers of both have ended.
    delete(store, [name])
    with pytest.raises(ValueError, match=rf"\(training\).*The store has changed.*Removed: {name}"):
        train(store, tmp_path / "ended", 2, nothing)
    away = tmp_path / "away"
    trash_of(store.path).rename(away)
    with pytest.raises(ValueError, match=rf"neither the store nor .*trash has {name}\. Move"):
        train(store, tmp_path / "run", 20, nothing)
    shutil.move(away / name, store.path / name)
    train(store, tmp_path / "run", 20, nothing)


def test_a_continued_run_still_needs_its_settings(tmp_path: Path) -> None:
    """The number of held-out episodes is compared, though the run keeps its episodes."""
    store = EpisodeStore.create(tmp_path / "store")
    fill(store, range(10))
    trainer: dict[str, Any] = {"steps": 20, "batch_size": 2, "save_every": 10, "precision": "no"}
    trainer |= {"log_every": 1}
    settings = TrainingSettings(held_out=2, log=lambda **_: AtEachStep(stopped_at(13)))
    with pytest.raises(StopError):
        train_policy(MODEL, store, Trainer(**trainer), tmp_path / "run", settings)
    with pytest.raises(ValueError, match=r"other settings \(training, held_out\)"):
        train_policy(
            MODEL, store, Trainer(**trainer), tmp_path / "run", TrainingSettings(held_out=1)
        )
