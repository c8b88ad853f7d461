"""An empty folder in which the files and commands of a page live."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder on the path of Python, with an own file of trusted packages."""
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("STRINGLINE_TRUST", raising=False)
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    monkeypatch.setattr(sys, "argv", sys.argv)
    before = set(sys.modules)
    yield place
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(place):
            del sys.modules[name]
