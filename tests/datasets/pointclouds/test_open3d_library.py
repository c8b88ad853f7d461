"""An open3d that cannot be loaded is reported with the remedy."""

import sys
from pathlib import Path

import pytest

from stringline.datasets.pointclouds.clouds import open3d

LIBUSB = "libusb-1.0.so.0: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize("kind", ["ImportError", "OSError"])
@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        (LIBUSB, r"Install the system library: apt install libusb-1\.0-0"),
        ("libGL.so.1: cannot open", r'Run: pip install "stringline\[view\]"'),
    ],
)
def test_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, reason: str, remedy: str
) -> None:
    """The CUDA build loads its libraries by ctypes, which raises an OSError."""
    (tmp_path / "open3d.py").write_text(f"raise {kind}({reason!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "open3d", raising=False)
    with pytest.raises(ValueError, match=rf"needs open3d, which cannot .*{remedy}") as caught:
        open3d()
    assert reason in str(caught.value)
