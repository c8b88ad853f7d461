"""A run that is killed and started again equals an undisturbed one, to the bit."""

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.sim.points import fill

from stringline.datasets.store.store import EpisodeStore
from stringline.encoders.training.monitor import History
from stringline.encoders.training.trainer import STATE_FILE

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "killed_training.py"


def compare(folder: Path, steps: int, kills: Sequence[str]) -> None:
    """Trains both and compares weights, average, optimiser, windows, random numbers and files.

    What was drawn and which windows were seen is in each step's loss; all else is in files, which
    are compared byte by byte.
    """
    fill(EpisodeStore.create(folder / "store"), range(15))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / ".src"), str(ROOT)))}
    command = [sys.executable, str(SCRIPT), str(folder / "store"), str(folder), str(steps), *kills]
    done = subprocess.run(
        command, env=environment, timeout=600, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    whole, killed = folder / "whole", folder / "killed"
    for name in (
        f"state/step_{steps:08d}/{STATE_FILE}",
        "checkpoint/weights.safetensors",
        "latest/weights.safetensors",
    ):
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name
    for name in ("best/weights.safetensors", "best/checkpoint.yaml"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name
    one, other = (History.open(run / "history.jsonl") for run in (whole, killed))
    for history in (one, other):
        history.close()
    assert [step for step, _ in one.losses()] == list(range(steps))
    assert len({loss for _, loss in one.losses()}) == steps
    assert one.losses() == other.losses()
    assert one.validations() == other.validations()
    assert one.probes() == other.probes()


@pytest.mark.slow
def test_killed_twice(tmp_path: Path) -> None:
    """Once between two states, once in the middle of writing one."""
    compare(tmp_path, 10, ["step:7", "sync:3"])


@pytest.mark.stress
def test_killed_at_twenty_random_steps(tmp_path: Path) -> None:
    steps = sorted(random.Random(0).sample(range(1, 100), 20))
    compare(tmp_path, 100, [f"step:{step}" for step in steps])


@pytest.mark.stress
def test_killed_twelve_times_while_it_writes(tmp_path: Path) -> None:
    """States, checkpoints and settings are replaced as a whole, or not at all."""
    numbers = random.Random(0)
    compare(tmp_path, 100, [f"sync:{numbers.randint(1, 6)}" for _ in range(12)])
