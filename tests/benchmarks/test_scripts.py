"""Every benchmark can be imported, and describes itself."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_a_benchmark_can_be_imported_and_describes_itself(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By its path: some have the names of packages, such as lcm.
    spec = spec_from_file_location(f"benchmark_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # Dataclasses look their module up.
    spec.loader.exec_module(module)
    assert module.__doc__
