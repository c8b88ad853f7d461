"""Writes `docs/api.md` and the type stub of the package from the table of public names.

    python docs/write_api.py

Run it after a change to `PUBLIC` in `.src/stringline/__init__.py` or to the first sentence of a
public docstring; a test compares.
"""

import ast
from pathlib import Path

from stringline import PUBLIC

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "api.md"
STUB = ROOT / ".src" / "stringline" / "__init__.pyi"
INTRODUCTION = """# Public API

    from stringline import CayleyString, EpisodeStore, load_policy

These names are stable: programs import them, and YAML files and checkpoints name them as
`_target_` (`stringline.CayleyString`). `import stringline` loads no library; each name is imported
on its first use. All other modules are internal: they may move or change without notice.
`make docs` builds reference pages of these names from their docstrings.

`stringline.testing` is public as well. It checks what your own classes promise: `check_policy` and
`check_training` a policy, `check_encoding` a position encoding, `check_reader` a reader of a
format, `check_task` a task with its expert, `check_workcell` a simulated robot, `check_driver` a
driver and `check_state` what it reads. Each raises an AssertionError that says what does not hold.
"""


def main() -> None:
    """Writes both files."""
    PAGE.write_text(page())
    STUB.write_text(stub())


def page() -> str:
    """Returns the text of `docs/api.md`."""
    parts = [INTRODUCTION]
    for subject, modules in PUBLIC.items():
        rows = [
            f"| `{name}` | {summary} |"
            for module, names in modules.items()
            for name, summary in summaries(module, names).items()
        ]
        parts.append(
            "\n".join((f"## {subject}\n", "| name | description |", "|---|---|", *rows, ""))
        )
    return "\n".join(parts)


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


def summaries(module: str, names: tuple[str, ...]) -> dict[str, str]:
    """Returns the first sentence of each name's docstring, without importing its module.

    Raises:
        ValueError: A name has no docstring.
    """
    body = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text()).body
    found = {}
    for statement, following in zip(body, [*body[1:], None], strict=True):
        name = _defined(statement)
        if name in names:
            found[name] = _sentence(_docstring(statement, following))
    if missing := [name for name in names if not found.get(name)]:
        raise ValueError(f"{module}: no docstring for {', '.join(missing)}.")
    return {name: found[name] for name in names}


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


def _sentence(text: str) -> str:
    """Returns the first paragraph of a docstring in one line."""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    main()
