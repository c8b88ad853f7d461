"""The benchmark of training runs, and says what the documents promise."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PHASES = ("data", "encoder", "denoiser", "backward", "optimiser")


def test_training_benchmark(tmp_path: Path) -> None:
    """Every name once, in the agreed form; the shares of a step add up to all of it."""
    command = [
        sys.executable,
        "benchmarks/training.py",
        "--json",
        str(tmp_path / "training.json"),
        "--only",
        "diffusion",
    ]
    command += [
        "--small",
        "--batch",
        "2",
        "--image-size",
        "32",
        "--rounds",
        "1",
        "--steps",
        "1",
        "--threads",
        "1",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT / ".src")}
    subprocess.run(
        [*command, "--skip-compiled", "--skip-memory"],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
    )
    rows = {row["name"]: row for row in json.loads((tmp_path / "training.json").read_text())}
    assert list(rows) == [
        "samples/diffusion",
        *(f"share/diffusion/{phase}" for phase in PHASES),
        "latency/diffusion/eager",
        "latency/diffusion/folded",
    ]
    assert all({"name", "value", "unit", "peer", "ratio"} <= set(row) for row in rows.values())
    assert sum(rows[f"share/diffusion/{phase}"]["value"] for phase in PHASES) == pytest.approx(1.0)
    assert rows["samples/diffusion"]["ratio"] is None, "its peer was not measured"
    assert rows["latency/diffusion/eager"]["ratio"] == 1.0
