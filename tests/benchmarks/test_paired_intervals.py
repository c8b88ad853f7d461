"""The benchmark of paired intervals reproduces Newcombe's and writes its table."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from stringline.sim.statistics.paired import Pairs

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "paired_intervals.py"


def test_newcombe_of_a_published_example() -> None:
    """Fagerland, Lydersen, Laake, Statistics in Medicine 33 (2014): from -0.507 to -0.026."""
    low, high = runpy.run_path(str(SCRIPT))["newcombe"](
        Pairs(both=1, only_first=7, only_second=1, neither=12)
    )
    assert (low, high) == (pytest.approx(-0.507, abs=5e-4), pytest.approx(-0.026, abs=5e-4))


def test_it_writes_a_line_for_each_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", [SCRIPT.name, "--times", "200", "--json", str(found)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    printed = capsys.readouterr().out
    lines = json.loads(found.read_text())
    assert len(lines) == 40
    for line in lines:
        assert line["name"] in printed
        assert 0.85 < line["value"] <= 1.0
        assert line["peer"] == "newcombe_10"
