"""The benchmark of samplers runs and writes its table."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

samplers = import_module("samplers")


@pytest.mark.slow
def test_results_have_unique_names_and_the_common_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "policies.md"
    page.write_text(f"Before.\n{samplers.BEGIN}\nold\n{samplers.END}\nAfter.\n")
    monkeypatch.setattr(samplers, "PAGE", page)
    file = tmp_path / "samplers.json"
    arguments = ["samplers.py", "--draws", "60", "--training", "2", "--json", str(file), "--write"]
    monkeypatch.setattr(sys, "argv", arguments)
    samplers.main()
    entries = json.loads(file.read_text())
    names = [entry["name"] for entry in entries]
    assert len(set(names)) == len(names) == 1 + 3 * 6 + 4 + 3 * 6 + 4
    assert {
        "sampler/floor",
        "sampler/diffusion/ddim/8",
        "sampler/flow/heun/4",
        "sampler/energy/euler/2",
    } <= set(names)
    assert all(
        set(entry) == {"name", "value", "unit", "peer", "ratio", "calls"} for entry in entries
    )
    text = page.read_text()
    assert text.startswith("Before.\n")
    assert text.endswith("After.\n")
    assert "old" not in text
    assert "| diffusion/ddim |" in text
    assert "--draws 60 --training 2" in text
