"""The benchmark of evaluation runs, and says what the documents promise."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_evaluation_benchmark(tmp_path: Path) -> None:
    """Every name once, in the agreed form; Ray is left out, for its start takes long."""
    command = [
        sys.executable,
        "benchmarks/evaluation.py",
        "--json",
        str(tmp_path / "evaluation.json"),
    ]
    command += ["--episodes", "1", "--seconds", "0.5", "--workers", "1", "--ray"]
    subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / ".src")},
        check=True,
        capture_output=True,
    )
    rows = {row["name"]: row for row in json.loads((tmp_path / "evaluation.json").read_text())}
    assert list(rows) == [
        "runner_overhead",
        "runner_overhead/cpu",
        "runner_start",
        "episodes_per_minute/1",
    ]
    assert all(set(row) == {"name", "value", "unit", "peer", "ratio"} for row in rows.values())
    assert rows["runner_overhead"]["ratio"] is None
    assert -0.9 < rows["runner_overhead"]["value"] < 20, (
        "half a second on a busy machine says little"
    )
    rate = rows["episodes_per_minute/1"]
    assert rate["value"] > 0
    assert (rate["peer"], rate["ratio"]) == ("1", 1.0)
