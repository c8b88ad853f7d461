"""The benchmark of training runs and writes the results that the documents list."""

from pathlib import Path

import pytest
from tests.benchmarks.scripts import results

PHASES = ("data", "encoder", "denoiser", "backward", "optimiser")


@pytest.mark.slow
def test_training_benchmark(tmp_path: Path) -> None:
    """Each name occurs once, with the common keys; the shares of a step add up to 1."""
    sizes = {"batch": 2, "image-size": 32, "rounds": 1, "steps": 1, "threads": 1}
    lines = results(
        "training",
        tmp_path,
        "--only=diffusion",
        "--small",
        *(f"--{name}={size}" for name, size in sizes.items()),
        "--skip-compiled",
        "--skip-memory",
        "--options=gradient_checkpointing",
    )
    rows = {row["name"]: row for row in lines}
    assert list(rows) == [
        "samples/diffusion",
        *(f"share/diffusion/{phase}" for phase in PHASES),
        "latency/diffusion/eager",
        "latency/diffusion/folded",
        "loop/diffusion",
        "outside/diffusion",
        "option/gradient_checkpointing",
    ]
    assert all({"name", "value", "unit", "peer", "ratio"} <= set(row) for row in rows.values())
    assert sum(rows[f"share/diffusion/{phase}"]["value"] for phase in PHASES) == pytest.approx(1.0)
    assert rows["samples/diffusion"]["ratio"] is None, "its peer was not measured"
    assert rows["latency/diffusion/eager"]["ratio"] == 1.0
    assert rows["outside/diffusion"]["value"] == pytest.approx(1 - rows["loop/diffusion"]["ratio"])
