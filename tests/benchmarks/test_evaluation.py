"""The benchmark of evaluation runs and writes the results that the documents list."""

from pathlib import Path

import pytest
from tests.benchmarks.scripts import results


@pytest.mark.slow
def test_evaluation_benchmark(tmp_path: Path) -> None:
    """Each name occurs once, with the common keys; Ray is omitted, since its start is slow."""
    small = ["--episodes=1", "--seconds=0.5", "--workers=1", "--ray"]
    rows = {row["name"]: row for row in results("evaluation", tmp_path, *small)}
    assert list(rows) == [
        "runner_overhead",
        "runner_overhead/cpu",
        "runner_start",
        "episodes_per_minute/1",
    ]
    assert all(set(row) == {"name", "value", "unit", "peer", "ratio"} for row in rows.values())
    assert rows["runner_overhead"]["ratio"] is None
    assert -0.9 < rows["runner_overhead"]["value"] < 20, (
        "half a second on a busy machine is not precise"
    )
    rate = rows["episodes_per_minute/1"]
    assert rate["value"] > 0
    assert (rate["peer"], rate["ratio"]) == ("1", 1.0)
