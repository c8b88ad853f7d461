"""What classes declare: sources read as text say the same as imported classes."""

import dataclasses
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from tests.configs.test_options import FILES

import stringline
from stringline.datasets.command.choices import CONFIGS, SETTINGS, TARGET, read_choice
from stringline.datasets.command.declarations import PART, REQUIRED, declared, imported, options

PATH = str(Path(stringline.__file__).parents[1])


def classes(node: object) -> Iterator[str]:
    """Yields the names of the classes in a configuration as it is written."""
    if isinstance(node, dict):
        for key in (TARGET, SETTINGS):
            named = node.get(key, [])
            yield from [named] if isinstance(named, str) else named
    below = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for each in below:
        yield from classes(each)


CHOICES = [choice for file in FILES if (choice := read_choice(CONFIGS, file))]
CLASSES = sorted({name for choice in CHOICES for name in classes(choice.plain)})


def plain(value: object) -> object:
    """Returns a default as YAML has it; PART for other values."""
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    value = str(value) if isinstance(value, Path) else value
    return value if value is None or isinstance(value, (bool, int, float, str, dict)) else PART


def runtime_defaults(owner: Any) -> dict[str, object]:
    """Returns the defaults of a class's arguments by import."""
    given = inspect.signature(owner).parameters
    if "settings" in given:
        owner = given["settings"].annotation
        given = inspect.signature(owner).parameters
    made = {each.name: each for each in getattr(owner, "__dataclass_fields__", {}).values()}

    def default(name: str, value: object) -> object:
        if value is inspect.Parameter.empty:
            return REQUIRED
        factory = getattr(made.get(name), "default_factory", dataclasses.MISSING)
        found = value if factory is dataclasses.MISSING else factory()
        if not dataclasses.is_dataclass(found):
            return plain(found)
        kind = type(found)
        internal = {
            key
            for key, each in declared(f"{kind.__module__}:{kind.__name__}").items()
            if each.internal
        }
        shown = plain(found)
        assert isinstance(shown, dict)
        return {key: entry for key, entry in shown.items() if key not in internal}

    return {
        name: default(name, each.default)
        for name, each in given.items()
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_sources_and_imported_classes_have_the_same_arguments_and_defaults(name: str) -> None:
    found = declared(name)
    expected = runtime_defaults(resolve_name(name if ":" in name else name.replace(".", ":")))
    assert list(found) == list(expected)
    shown = options(found)
    for argument, value in expected.items():
        if argument in shown:
            assert shown[argument] == ("???" if value is REQUIRED else value), argument
        else:
            part = found[argument].default is PART
            assert found[argument].internal or value in (PART, REQUIRED, None) or part, argument


def test_reading_sources_imports_neither_torch_nor_the_simulation() -> None:
    code = (
        "import sys; from stringline.datasets.command.choices import CONFIGS, completed\n"
        "completed(CONFIGS, 'policy/diffusion'); completed(CONFIGS, 'trainer/gpu')\n"
        "assert not {'torch', 'mujoco', 'accelerate'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": PATH})


class Base:
    """A base.

    Args:
        kept: Of the base: None of them.
        changed: Of the base.
    """

    def __init__(self, kept: int = 1, changed: tuple[int, ...] = (1, 2)) -> None:
        pass


class Derived(Base):
    """A class.

    Args:
        changed: Of the derived class, over
            two lines.

    Other Args:
        seed: Of no configuration.

    Raises:
        ValueError: Not an argument.
    """

    def __init__(
        self, contract: object, *, seed: int = 0, made: object = Base, **more: Any
    ) -> None:
        super().__init__(**more)


def test_docstrings_of_bases_describe_inherited_arguments() -> None:
    found = imported(Derived)
    assert set(found) == {"contract", "seed", "made"}
    assert options(found) == {"contract": "???"}
    assert options(found, partial=True) == {}
    assert imported(Base)["kept"].description == "Of the base: null of them."
    assert options(imported(Base)) == {"kept": 1, "changed": [1, 2]}
    assert found["seed"].internal


@pytest.mark.parametrize("name", ["stringline.Nothing", "stringline.a.b:C", "os:system"])
def test_unknown_classes_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a class"):
        declared(name)
