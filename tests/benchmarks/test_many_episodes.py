"""The benchmark of many episodes runs at a tiny size; its readers agree, and its rows are whole."""

from pathlib import Path

import pytest
from tests.benchmarks.scripts import results

UNITS = {
    "open/episodes": "s",
    "open/windows": "s",
    "windows/ours": "windows/cpu-s",
    "windows/memmap": "windows/cpu-s",
    "windows/one_file": "windows/cpu-s",
    "input_wait/train": "share",
}


@pytest.mark.slow
def test_many_episodes_benchmark(tmp_path: Path) -> None:
    """Each name occurs once, with the common keys; 9 episodes are more than its 8 templates."""
    sizes = {"episodes": 9, "size": 16, "seconds": 0, "steps": 2}
    rows = results(
        "many_episodes",
        tmp_path,
        f"--folder={tmp_path}",
        *(f"--{name}={size}" for name, size in sizes.items()),
        "trainer.batch_size=2",
    )
    assert {row["name"]: row["unit"] for row in rows} == UNITS
    assert len(rows) == len(UNITS)
    values = {row["name"]: row["value"] for row in rows}
    for row in rows:
        assert set(row) == {"name", "value", "unit", "peer", "ratio"}
        if row["name"].startswith("windows/"):
            assert row["peer"] == "memmap"
            assert row["ratio"] == pytest.approx(row["value"] / values["windows/memmap"])
        else:
            assert (row["peer"], row["ratio"]) == ("none", None)
    assert all(values[name] > 0 for name in UNITS if name != "input_wait/train")
    assert 0 <= values["input_wait/train"] < 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many_episodes.json"]
