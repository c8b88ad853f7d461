import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[3]


def answer(code: str, *arguments: str) -> str:
    """Returns the output of Python code in a new process."""
    command = [sys.executable, "-c", code, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT / ".src")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_torchvision_imports_after_a_failure_and_its_operators_raise_an_error() -> None:
    code = """
import torch
try:
    import torchvision
except RuntimeError as error:
    assert "operator torchvision::nms does not exist" in str(error)
from stringline.encoders.pretrained.initial_weights import declare_torchvision_operators
declare_torchvision_operators()
declare_torchvision_operators()  # A second call is valid.
import torchvision.ops
import torchvision.transforms.functional
try:
    kept = torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    print("computes", kept.tolist())
except RuntimeError as error:
    print("refuses", str(error).splitlines()[0])
"""
    assert answer(code).startswith(("computes [0]", "refuses Couldn't load custom C++ ops."))


@pytest.mark.slow
def test_operators_are_declared_only_if_their_library_exists_and_cannot_be_loaded(
    tmp_path: Path,
) -> None:
    for kind in ("missing", "sound", "broken"):
        (tmp_path / kind / "torchvision").mkdir(parents=True)
        (tmp_path / kind / "torchvision" / "__init__.py").touch()
    loadable = next((Path(torch.__file__).parent / "lib").glob("libtorch_global_deps.*"))
    (tmp_path / "sound/torchvision/_C.so").symlink_to(loadable)
    (tmp_path / "broken/torchvision/_C.so").write_bytes(b"not for this machine")
    code = """
import sys, torch
from stringline.encoders.pretrained.initial_weights import declare_torchvision_operators
def outcome():
    declare_torchvision_operators()
    return [hasattr(torch.ops.torchvision, name) for name in ("nms", "qnms")]
sys.modules["torchvision"] = None  # As if it were not installed.
print("not installed", outcome())
del sys.modules["torchvision"]
for kind in ("missing", "sound", "broken"):
    sys.path.insert(0, sys.argv[1] + "/" + kind)
    print(kind, outcome())
"""
    assert answer(code, str(tmp_path)).splitlines() == [
        "not installed [False, False]",
        "missing [False, False]",
        "sound [False, False]",
        "broken [True, True]",
    ]
