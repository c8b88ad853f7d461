"""Hydra's launcher for clusters runs our commands; its local variant stands for Slurm."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stringline.datasets.store.store import EpisodeStore

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_multirun_through_submitit(tmp_path: Path) -> None:
    """A job is a new process that gets the pickled command; its output and its log exist."""
    code = "from stringline.sim.collect import main; main()"
    arguments = [
        "--multirun",
        "hydra/launcher=submitit_local",
        "first_seed=3",
        "output=store_${first_seed}",
    ]
    arguments += ["episodes=1", "workers=1", "keep_failures=true"]
    arguments += [
        f"task.{key}"
        for key in ("time_limit_s=1.0", "cameras=[overhead]", "image_size=16", "frame_hz=5.0")
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT / ".src")}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert EpisodeStore.open(tmp_path / "store_3").seeds("hand_over_banana") == {3}
    logs = [path.read_text() for path in (tmp_path / "multirun").rglob("*_log.err")]
    assert len(logs) == 1
    assert "store_3 holds 1 episodes of 'hand_over_banana'" in logs[0]
