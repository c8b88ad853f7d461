"""Writes `docs/api.md` and the type stub of the package from the table of public names.

    python docs/write_api.py

Run it after a change to `PUBLIC` in `.src/stringline/__init__.py`; a test compares.
"""

import ast
from pathlib import Path
from textwrap import fill

from stringline import PUBLIC

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "api.md"
STUB = ROOT / ".src" / "stringline" / "__init__.pyi"
INTRODUCTION = """# Public API

    from stringline import CayleyString, EpisodeStore, load_policy

    help(CayleyString)  # Arguments with shapes, units and frames; `make docs` builds pages of them.

These names are stable: programs import them, and YAML files and checkpoints name them as
`_target_` (`stringline.CayleyString`). `import stringline` loads no library; each name is imported
on its first use. All other modules are internal: they may move or change without notice.
[Python](python.md) shows the most important names in a program.

`stringline.testing` is public as well. It checks what your own classes promise: `check_policy` and
`check_training` a policy, `check_encoding` a position encoding, `check_reader` a reader of a
format, `check_task` a task with its expert, `check_workcell` a simulated robot, `check_driver` a
driver and `check_state` what it reads. Each raises an AssertionError that says what does not hold.
"""
# The pages that explain the names of a subject.
GUIDES = {
    "Data and embodiments": ("data.md", "my-robot.md"),
    "Labelled images": ("images.md",),
    "Augmentation": ("data.md#loading-for-training",),
    "Foreign formats": ("formats.md",),
    "Position encodings": ("encodings.md",),
    "Coordinates and vision": ("space.md", "policies.md#observation-encoders"),
    "Perception": ("perception.md",),
    "Training": ("policies.md#training",),
    "Policies": ("policies.md", "keyposes.md", "remote.md"),
    "Simulation": ("simulation.md", "tasks.md", "my-robot.md"),
    "Robots": ("robots.md", "my-robot.md#the-real-arm"),
}


def main() -> None:
    """Writes both files."""
    PAGE.write_text(page())
    STUB.write_text(stub())


def page() -> str:
    """Returns the text of `docs/api.md`."""
    return "\n".join((INTRODUCTION, *map(section, PUBLIC)))


def section(subject: str) -> str:
    """Returns the names of a subject in the order of the alphabet.

    Raises:
        ValueError: A name has no docstring.
    """
    guides = ", ".join(f"[{guide.partition('#')[0]}]({guide})" for guide in GUIDES[subject])
    for module, names in PUBLIC[subject].items():
        check_docstrings(module, names)
    public = sorted((name for names in PUBLIC[subject].values() for name in names), key=str.lower)
    listed = fill(", ".join(f"`{name}`" for name in public), 100)
    return "\n".join((f"## {subject}\n", f"Explained in {guides}.\n", listed, ""))


def stub() -> str:
    """Returns the text of the stub, from which type checkers and editors know the names."""
    lines = [
        f"from stringline.{module} import {name} as {name}"
        for modules in PUBLIC.values()
        for module, names in modules.items()
        for name in names
    ]
    table = (
        "PUBLIC: dict[str, dict[str, tuple[str, ...]]]",
        "HOME: dict[str, str]",
        "__all__: list[str]",
    )
    return "\n".join(("# Written by docs/write_api.py.", *sorted(lines), "", *table, ""))


def check_docstrings(module: str, names: tuple[str, ...]) -> None:
    """Checks that each name has a docstring, without importing its module.

    Raises:
        ValueError: A name has none.
    """
    body = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text()).body
    found = {
        _defined(statement)
        for statement, following in zip(body, [*body[1:], None], strict=True)
        if _docstring(statement, following)
    }
    if missing := [name for name in names if name not in found]:
        raise ValueError(f"{module}: no docstring for {', '.join(missing)}.")


def _defined(statement: ast.stmt) -> str:
    """Returns the name that a statement defines, or nothing."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        return statement.name
    target = (
        statement.targets[0]
        if isinstance(statement, ast.Assign)
        else getattr(statement, "target", None)
    )
    return target.id if isinstance(target, ast.Name) else ""


def _docstring(statement: ast.stmt, following: ast.stmt | None) -> str:
    """Returns the docstring of a class or function, or the string below a constant."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        return ast.get_docstring(statement) or ""
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        return str(following.value.value)
    return ""


if __name__ == "__main__":
    main()
