"""The benchmark of samplers runs, agrees with the documents, and its networks are optimal."""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch


def _benchmark(name: str) -> ModuleType:
    """Loads a benchmark without its folder on the path: its `encodings.py` would hide Python's."""
    specification = spec_from_file_location(
        name, Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    )
    assert specification is not None
    assert specification.loader is not None
    module = module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


samplers = _benchmark("samplers")


def test_every_name_once_in_the_agreed_form(
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


def test_the_best_guess_is_the_mean_of_what_may_be_behind() -> None:
    """Against the weighted mean of many draws of the target, seen through the same noise."""
    target = samplers.TwoArcs()
    generator = torch.Generator().manual_seed(0)
    chunks = target.draw(200_000, generator).flatten(1)
    noisy = 0.8 * chunks[:3] + 0.6 * torch.randn(3, chunks.shape[1], generator=generator)
    noisy = noisy @ target.plane @ target.plane.T  # Within the plane few draws say enough.
    signal, noise = torch.full((3, 1), 0.8), torch.full((3, 1), 0.6)
    found = target.clean(
        noisy.reshape(3, 1, samplers.CHUNK, samplers.ACTIONS), signal, noise
    ).flatten(1)
    distance = (
        ((noisy @ target.plane)[:, None] - 0.8 * (chunks @ target.plane)[None]).square().sum(dim=-1)
    )
    expected = (-distance / (2 * 0.6**2)).softmax(dim=1) @ chunks @ target.plane
    torch.testing.assert_close(found @ target.plane, expected, rtol=0, atol=0.02)
