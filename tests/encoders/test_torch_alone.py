"""Encodings, coordinates and attention need torch and NumPy only, and the pages about them run."""

import ast
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest

import stringline

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / ".src" / "stringline"
ENCODINGS = ROOT / "docs" / "encodings.md"
TUTORIAL = ROOT / "docs" / "tutorials" / "own-network.md"
MODULES = (
    *(f"encoders.positions.{path.stem}" for path in ROOT.glob("encoders/positions/[a-z]*.py")),
    *(f"encoders.coordinates.{path.stem}" for path in ROOT.glob("encoders/coordinates/[a-z]*.py")),
    "encoders.vision.attention",
)
NAMES = [
    name
    for modules in stringline.PUBLIC.values()
    for module, names in modules.items()
    for name in names
    if module in MODULES
]

BLOCKED = """
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
allowed = set(sys.argv[1].split(",")) | set(sys.stdlib_module_names)
class Allowed:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in allowed or top.startswith("_"):
            return PathFinder.find_spec(name, path, target)
sys.meta_path[:] = [BuiltinImporter, FrozenImporter, Allowed()]
import torch
torch.set_num_threads(1)
"""


def blocks(page: Path) -> list[str]:
    """Returns the Python of a page."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def torch_alone() -> set[str]:
    """Returns the modules in an environment with torch, NumPy and what torch requires."""
    found = {"stringline", "torch", "torchgen", "functorch", "numpy"}
    waiting = ["torch"]
    while waiting:
        try:
            lines = requires(waiting.pop()) or []
        except PackageNotFoundError:  # One that torch requires for another platform.
            continue
        names = {re.split(r"[^\w.-]", line)[0].lower() for line in lines if "extra ==" not in line}
        fresh = {name.replace("-", "_") for name in names} - found
        found |= fresh
        waiting += fresh
    return found


def run(code: str) -> str:
    """Runs a program that can import torch, NumPy and Stringline only; returns its output."""
    done = subprocess.run(
        [sys.executable, "-c", f"{BLOCKED}\n{code}", ",".join(torch_alone())],
        env={"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_snippet_and_the_tutorial_run_with_torch_alone() -> None:
    (snippet,) = [code for code in blocks(ENCODINGS) if "encoding.rotate_inverse" in code]
    tutorial = "\n".join(blocks(TUTORIAL))
    assert "steps=100" in tutorial
    code = f"""
{snippet}
y.square().sum().backward()
assert all(parameter.grad.abs().max() > 0 for parameter in encoding.parameters())
{tutorial.replace("steps=100", "steps=5")}
import stringline
for name in {NAMES}:
    getattr(stringline, name)
try:
    stringline.DiffusionPolicy
except ImportError as error:
    print(error)
"""
    printed = run(code).splitlines()
    assert re.fullmatch(r"mean error: Cayley-STRING \d\.\d\d m, no encoding .* m", printed[0])
    assert re.fullmatch(
        r"stringline\.DiffusionPolicy needs the package '\w+', which is not installed: "
        r"pip install stringline",
        printed[1],
    )


@pytest.mark.stress
def test_the_tutorial_reaches_its_errors() -> None:
    printed = run("\n".join(blocks(TUTORIAL)))
    with_encoding, without = map(float, re.findall(r"(\d\.\d+) m", printed))
    assert with_encoding < 0.08
    assert without > 0.5


def test_the_modules_import_torch_and_numpy_only() -> None:
    """Imports inside of functions count as well, and those of imported modules of Stringline."""
    waiting = [f"stringline.{module}" for module in MODULES]
    seen: set[str] = set()
    third_party = set()
    while waiting:
        module = waiting.pop()
        if module in seen or not (file := source(module)).is_file():
            continue
        seen.add(module)
        for name in imports(file):
            if name.partition(".")[0] == "stringline":
                waiting.append(name)
            else:
                third_party.add(name.partition(".")[0])
    assert len(seen) > len(MODULES)
    assert third_party - set(sys.stdlib_module_names) == {"torch", "numpy"}


def source(module: str) -> Path:
    """Returns the file of a module of Stringline."""
    path = PACKAGE.parent / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imports(file: Path) -> list[str]:
    """Returns the modules that a file imports."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(node.module or "")
    return found
