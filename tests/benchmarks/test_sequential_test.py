"""The benchmark of the sequential test writes its table."""

import json
import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "sequential_test.py"


def test_it_writes_a_line_for_each_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tmp_path / "found.json"
    monkeypatch.setattr(
        sys, "argv", [SCRIPT.name, "--settings", "1", "--examined", "60", "--json", str(found)]
    )
    runpy.run_path(str(SCRIPT), run_name="__main__")
    printed = capsys.readouterr().out
    seeds, error = json.loads(found.read_text())
    assert seeds["name"] in printed
    assert seeds["value"] < 100
    assert seeds["peer"] == "mcnemar"
    assert error["value"] <= 0.05
    assert error["ratio"] < 0.5
