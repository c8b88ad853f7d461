"""The benchmark of the simulation measures what its docstring lists."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TASKS = ["hand_over_banana", "bowl_on_rack"]


@pytest.mark.slow
def test_it_writes_a_line_for_each_task_and_the_worst(tmp_path: Path) -> None:
    found = tmp_path / "simulation.json"
    command = [sys.executable, "benchmarks/simulation.py", "--only", "step", "--tasks", *TASKS]
    command += ["--rounds", "1", "--steps", "4", "--json", str(found)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / ".src")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = {line["name"]: line for line in json.loads(found.read_text())}
    steps = [f"step/4x128_rgbd/{task}" for task in TASKS]
    looks = [f"step/4x128_rgbd/{tier}" for tier in ("textured", "randomised")]
    looks += [f"{name}/{task}" for name in looks for task in TASKS]
    assert sorted(lines) == sorted(
        ["step/4x128_rgbd", *steps, *looks, *(f"physics/{task}" for task in TASKS)]
    )
    assert lines["step/4x128_rgbd"]["value"] == max(lines[name]["value"] for name in steps)
    assert f"step/4x128_rgbd/{lines['step/4x128_rgbd']['task']}" in steps
    for line in lines.values():
        assert {"name", "value", "unit", "peer", "ratio"} <= set(line)
        assert line["value"] > 0
        assert line["name"] in done.stdout


def test_an_unknown_task_is_answered_with_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, since the start of another one takes two seconds."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["simulation.py", "--tasks", "hand_over_bannana"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(ROOT / "benchmarks" / "simulation.py"), run_name="__main__")
    assert (
        "There is no task 'hand_over_bannana'. Did you mean 'hand_over_banana'"
        in capsys.readouterr().err
    )
