"""Limits of CONTRIBUTING that no linter counts: files, functions, assignments, names."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("datasets", "encoders", "policies", "sim", "real_robot")
LONGEST_FILE = 700
LONGEST_FUNCTION = 60
WIDEST_LINE = 100
PACKED_ASSIGNMENTS = 30
SOURCES = {
    path: path.read_text(encoding="utf-8")
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
}


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[Path, ast.AST]]:
    """Yields the nodes of some kinds with their files."""
    for path, text in SOURCES.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, kinds):
                yield path.relative_to(ROOT), node


def test_files_have_at_most_700_lines() -> None:
    lengths = {path.relative_to(ROOT): text.count("\n") for path, text in SOURCES.items()}
    assert {path: length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_lines_have_at_most_100_columns() -> None:
    """Ruff exempts lines that end in a directive; this test does not."""
    wide = [
        f"{path.relative_to(ROOT)}:{number}"
        for path, text in SOURCES.items()
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > WIDEST_LINE
    ]
    assert wide == []


@pytest.mark.slow
def test_functions_have_at_most_60_lines_without_their_docstring() -> None:
    long = []
    for path, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        assert node.end_lineno is not None
        length = node.end_lineno - node.lineno + 1
        if ast.get_docstring(node) is not None:
            docstring = node.body[0]
            assert docstring.end_lineno is not None
            length -= docstring.end_lineno - docstring.lineno + 1
        if length > LONGEST_FUNCTION:
            long.append(f"{path}:{node.lineno} {node.name}: {length}")
    assert long == []


@pytest.mark.slow
def test_independent_assignments_have_a_line_each() -> None:
    """A tuple on both sides is for swaps; packed statements cannot have a comment each."""
    packed = [
        f"{path}:{node.lineno}"
        for path, node in nodes(ast.Assign)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and isinstance(node.targets[0], ast.Tuple)
    ]
    assert len(packed) <= PACKED_ASSIGNMENTS, packed


@pytest.mark.parametrize("folder", FOLDERS)
def test_modules_of_a_folder_have_different_names(folder: str) -> None:
    by_name = defaultdict(list)
    for path in SOURCES:
        if path.name != "__init__.py" and path.relative_to(ROOT).parts[0] == folder:
            by_name[path.name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in by_name.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_top_of_a_folder_holds_commands_only(folder: str) -> None:
    for path in (ROOT / folder).glob("*.py"):
        functions = [
            node.name for node in ast.parse(SOURCES[path]).body if isinstance(node, ast.FunctionDef)
        ]
        assert "main" in functions, f"{path.relative_to(ROOT)} is not a command"


@pytest.mark.parametrize("folder", FOLDERS)
def test_tests_mirror_the_folders(folder: str) -> None:
    """A test stands in the folder of what it tests, or at the top where it tests several."""
    places = {
        path.parent.relative_to(ROOT / "tests")
        for path in (ROOT / "tests" / folder).rglob("test_*.py")
    }
    missing = [str(place) for place in places if not (ROOT / place).is_dir()]
    assert missing == []
