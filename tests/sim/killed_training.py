"""Trains in child processes that are killed and started again; see `test_killed_training.py`.

    python killed_training.py STORE DIRECTORY STEPS KILL [KILL ...]

STORE and DIRECTORY are folders. KILL is `step:N`, at the beginning of step N, or `sync:N`, in the
middle of the Nth time that a file is written to the disk for good. The children are forked, so that
PyTorch is loaded only once.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.sim.points import AUGMENTATION, MODEL

from stringline import EpisodeStore, Trainer, train_policy
from stringline.encoders.training import trainer as run
from stringline.sim.training.training_settings import TrainingSettings


def killing(kill: str) -> None:
    """Makes sure that this process is killed."""
    kind, _, number = kill.partition(":")
    count = 0

    def counted(original: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == int(number):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments)

    if kind == "sync":
        sync = os.fsync
        os.fsync = lambda descriptor: counted(sync, descriptor)
        return
    step = run.Run._step

    def killed_step(self: run.Run, at: int, batch: Any) -> Any:
        if at == int(number):
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, at, batch)

    run.Run._step = killed_step  # type: ignore[method-assign]


def attempt(store: Path, directory: Path, steps: int, kill: str | None) -> int:
    """Trains in a child process; returns the signal that ended it, or 0."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        torch.set_num_threads(1)
        if kill:
            killing(kill)
        trainer = Trainer(
            steps=steps, batch_size=4, save_every=3, probe_every=5, precision="no", warmup_steps=2
        )
        chosen = TrainingSettings(
            augmentation=AUGMENTATION, oversample_first_s=0.2, oversample_factor=2.0
        )
        train_policy(MODEL, EpisodeStore.open(store), trainer, directory, chosen)
        code = 0
    finally:
        os._exit(code)


def main() -> None:
    """Trains one run without a break, and one that is killed again and again."""
    store, directory, steps = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    assert attempt(store, directory / "whole", steps, None) == 0
    for kill in sys.argv[4:]:
        ended = attempt(store, directory / "killed", steps, kill)
        assert ended == -signal.SIGKILL, f"{kill} ended by {ended}"
    assert attempt(store, directory / "killed", steps, None) == 0


if __name__ == "__main__":
    main()
