"""The data benchmark runs, its readers agree, and its clear results hold at a tiny size."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = {
    *(f"windows/{name}" for name in ("ours", "memmap", "zarr", "diffusion_policy", "lerobot")),
    *(f"size/{name}" for name in ("ours", "archive", "diffusion_policy", "lerobot")),
    *("cold/ours", "cold/memmap", "loader/4x128_rgbd", "input_wait/train"),
}


def test_data_benchmark(tmp_path: Path) -> None:
    """Every name once, in the agreed form."""
    command = [
        sys.executable,
        "benchmarks/data.py",
        "--json",
        str(tmp_path / "data.json"),
        "--folder",
        str(tmp_path),
    ]
    command += [
        "--episodes",
        "2",
        "--batch",
        "16",
        "--seconds",
        "0",
        "--steps",
        "2",
        "trainer.batch_size=2",
    ]
    malloc = {
        "MALLOC_MMAP_THRESHOLD_": "33554432",
        "MALLOC_TRIM_THRESHOLD_": "1073741824",
        "SVT_LOG": "1",
    }  # Saves a new start.
    environment = os.environ | malloc | {"PYTHONPATH": str(ROOT / ".src")}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    rows = json.loads((tmp_path / "data.json").read_text())
    assert sorted(row["name"] for row in rows) == sorted(NAMES)
    values = {row["name"]: row["value"] for row in rows}
    for row in rows:
        assert set(row) == {"name", "value", "unit", "peer", "ratio"}
        if row["peer"] == "none":
            assert row["ratio"] is None
        else:
            assert (
                row["ratio"] == row["value"] / values[f"{row['name'].split('/')[0]}/{row['peer']}"]
            )
    for other in ("zarr", "diffusion_policy", "lerobot"):
        assert values["windows/ours"] > 10 * values[f"windows/{other}"]
    assert 0 <= values["input_wait/train"] < 1
    assert values["size/lerobot"] < values["size/archive"] < values["size/ours"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.json"]
