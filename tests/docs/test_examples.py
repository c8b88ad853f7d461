"""The scripts in `examples` run at small sizes, and are short enough to be read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT

EXAMPLES = ROOT / "examples"
LONGEST = 100
SMALL = {
    "train.py": ["--episodes=1", "--steps=2", "--image-size=64", "--dim=48", "--output=short"],
    "evaluate.py": ["--episodes=1", "--seconds=0.4"],
    "own_task.py": ["--episodes=1"],
    "deploy.py": ["--episodes=1", "--seconds=0.4"],
    "own_encoder.py": ["--episodes=1", "--steps=2", "--output=encoder"],
}
LAST_LINE = {
    "train.py": "python examples/evaluate.py short/training/checkpoint",
    "evaluate.py": "hand_over_banana: 0/1 = 0 % [0, 79]",
    "own_task.py": "1 of 1 are successes.",
    "deploy.py": "hand_over_banana, emulated: 0/1 = 0 % [0, 79]",
    "own_encoder.py": "encoder/training/checkpoint has 1.3 million parameters.",
}


def test_every_example_is_run_and_short() -> None:
    scripts = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert scripts.keys() == SMALL.keys()
    assert {name: lines for name, lines in scripts.items() if lines > LONGEST} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_examples_run(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *SMALL[name]],
        cwd=tmp_path,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == LAST_LINE[name]
    assert "imported torch" not in done.stderr, "the device process starts without it"
