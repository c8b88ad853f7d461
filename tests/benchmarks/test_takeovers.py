"""Experts take over from a spoiled execution and succeed; the benchmark counts it for all tasks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TASKS = ["bowl_on_rack", "hand_over_pen", "kuka_place", "single_insertion"]


@pytest.mark.stress
def test_experts_continue_from_a_stop_a_wandering_and_a_lost_object(tmp_path: Path) -> None:
    found = tmp_path / "takeovers.json"
    command = [sys.executable, "benchmarks/takeovers.py", "--seeds", "3", "--json", str(found)]
    done = subprocess.run(
        [*command, "--tasks", *TASKS],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / ".src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = {line["name"]: line for line in json.loads(found.read_text())}
    whole = [lines[f"takeovers/{task}"] for task in TASKS]
    assert sum(line["episodes"] + line["on_the_floor"] for line in whole) == 3 * len(TASKS)
    assert sum(line["successes"] for line in whole) >= 3 * len(TASKS) - 1
    for line in whole:
        low, high = line["interval"]
        assert low <= line["value"] <= high
