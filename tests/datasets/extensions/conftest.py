"""Packages that leave a mark when they are imported, and an own file of trusted packages."""

import sys
from collections.abc import Callable, Iterator
from importlib import invalidate_caches
from pathlib import Path

import pytest

WriteModule = Callable[[str, str], Path]


@pytest.fixture(autouse=True)
def own_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the path of a file of trusted packages that does not exist yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("STRINGLINE_TRUST", raising=False)
    return tmp_path / "config" / "stringline" / "trusted.yaml"


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteModule]:
    """Writes a module of a package on Python's path, whose import leaves the file `imported`."""
    written: set[str] = set()
    monkeypatch.syspath_prepend(tmp_path / "path")

    def write(name: str, text: str) -> Path:
        mark = tmp_path / "imported"
        written.add(name.partition(".")[0])
        code = f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n"
        folder = tmp_path.joinpath("path", *name.split(".")[:-1])
        folder.mkdir(parents=True, exist_ok=True)
        if "." in name:
            (folder / "__init__.py").write_text(code)
        (folder / f"{name.rpartition('.')[2]}.py").write_text(f"{text}\n{code}")
        invalidate_caches()
        return mark

    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] in written]:
        del sys.modules[name]
