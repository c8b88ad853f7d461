"""The benchmark of intervals over trainings writes its table."""

import json
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "training_intervals.py"


@pytest.mark.slow
def test_it_writes_a_line_for_each_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", [SCRIPT.name, "--times", "5", "--json", str(found)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    printed = capsys.readouterr().out
    lines = json.loads(found.read_text())
    assert len(lines) == 72
    for line in lines:
        assert line["name"] in printed
        assert line["peer"] == "pooled"
