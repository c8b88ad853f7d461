"""The data benchmark runs, its readers agree, and its clear results hold at a tiny size."""

from pathlib import Path

import pytest
from tests.benchmarks.scripts import results

NAMES = {
    *(f"windows/{name}" for name in ("ours", "memmap", "zarr", "diffusion_policy", "lerobot")),
    *(f"size/{name}" for name in ("ours", "archive", "diffusion_policy", "lerobot")),
    *("cold/ours", "cold/memmap", "loader/4x128_rgbd", "input_wait/train"),
}


@pytest.mark.slow
def test_data_benchmark(tmp_path: Path) -> None:
    """Each name occurs once, with the common keys."""
    sizes = {"episodes": 2, "batch": 16, "seconds": 0, "steps": 2}
    rows = results(
        "data",
        tmp_path,
        f"--folder={tmp_path}",
        *(f"--{name}={size}" for name, size in sizes.items()),
        "trainer.batch_size=2",
    )
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
