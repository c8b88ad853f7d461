"""The data benchmark runs, and its readers agree."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_data_benchmark(tmp_path: Path) -> None:
    """At a tiny size: every name once, in the agreed form; ours is far above zarr's own reader."""
    command = [sys.executable, "benchmarks/data.py", "--json", str(tmp_path / "data.json"), "--folder", str(tmp_path)]
    command += ["--episodes", "3", "--cameras", "1", "--batch", "16", "--seconds", "0"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / ".src")}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    rows = json.loads((tmp_path / "data.json").read_text())
    assert [row["name"] for row in rows] == ["windows/ours", "windows/memmap", "windows/zarr"]
    rates = {row["name"]: row["value"] for row in rows}
    for row in rows:
        assert set(row) == {"name", "value", "unit", "peer", "ratio"}
        assert row["ratio"] == row["value"] / rates["windows/memmap"]
    assert rates["windows/ours"] > 10 * rates["windows/zarr"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.json"]
