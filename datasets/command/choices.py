"""The files of commands and the choices of their groups, completed by what classes declare.

`configs/policy/act.yaml` is the choice `policy=act`. Choices of a few values each are entries of
one table, `configs/task/choices.yaml`: the comment above an entry is its description, and the
options of the entry `_each_` belong to all, with the name of the entry in place of `_name_`.

A mapping with `_target_`, or with `_settings_`, the name of the dataclass that reads it, contains
the values that differ from the defaults of the class; `completed` adds the others, and
`descriptions` takes their meanings from the docstring. `_without_` lists options of the class that
have no effect beside the others of a choice.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

import stringline
from stringline.datasets.command.declarations import Argument, declared, options

Keys = tuple[str, ...]
Node = dict[str, Any]

CONFIGS = Path(stringline.__file__).parent.absolute() / "configs"
"""The configuration files of this package."""

TABLE = "choices"
EACH = "_each_"
NAME = "_name_"
TARGET = "_target_"
SETTINGS = "_settings_"
WITHOUT = "_without_"
PARTIAL = "_partial_"
_PACKAGE = re.compile(r"# @package (\S+)")


@dataclass(frozen=True)
class Choice:
    """A file of a command, a file of a group, or an entry of a table, as it is written.

    Attributes:
        plain: Its content.
        package: The package of Hydra's header, None without one.
        description: The comment at its top.
        comments: The comments behind its options.
    """

    plain: Node
    package: str | None
    description: str
    comments: Mapping[Keys, str]


def choice_names(folder: Path, group: str) -> list[str]:
    """Returns the choices of a group that are files, or entries of its table."""
    files = {file.stem for file in (folder / group).glob("*.yaml")} - {TABLE}
    return sorted(files | set(_entries(folder / group / f"{TABLE}.yaml")))


def read_choice(folder: Path, path: str) -> Choice | None:
    """Returns a file or an entry of a table; None if there is none.

    Args:
        folder: Folder of the configuration files.
        path: Group and name, such as `policy/act`, or the name of a command.
    """
    file = folder / f"{path}.yaml"
    group, _, name = path.rpartition("/")
    if name == TABLE or (not group and not file.is_file()):
        return None
    return _file(file) if file.is_file() else _entries(folder / group / f"{TABLE}.yaml").get(name)


def completed(folder: Path, path: str) -> Node:
    """Returns the content of a file or entry, with the defaults that its classes declare.

    Options of the files that its list `defaults` names stay as they are there.

    Raises:
        ValueError: A class does not exist.
    """
    choice = read_choice(folder, path)
    return {} if choice is None else _filled(choice.plain, _base(folder, path, choice.plain))


def descriptions(folder: Path, path: str) -> dict[Keys, str]:
    """Returns the description of each option of a file or entry: its comment, or its docstring."""
    choice = read_choice(folder, path)
    if choice is None:
        return {}
    return dict(_declared_below(choice.plain, ())) | dict(choice.comments)


def opening_comment(file: Path) -> str:
    """Returns the comment at the top of a YAML file, without Hydra's `@package` line."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return _without_marks(list(takewhile(lambda line: line.startswith("#"), lines)))


# Files and tables.


def _file(file: Path) -> Choice:
    text = file.read_text(encoding="utf-8")
    return Choice(_parsed(text), _header(text), opening_comment(file), _comments(text))


def _entries(table: Path) -> dict[str, Choice]:
    """Returns the entries of a table, each with the options of the entry `_each_` below its own."""
    if not table.is_file():
        return {}
    text = table.read_text(encoding="utf-8")
    lines = text.splitlines()
    plain = _parsed(text)
    comments = _comments(text)
    common = plain.pop(EACH, {})
    above = {}
    for number, line in enumerate(lines):
        if key := re.match(r"(\w+):", line):
            block = list(takewhile(lambda one: one.startswith("#"), reversed(lines[:number])))
            above[key[1]] = _without_marks(block[::-1])
    return {
        name: Choice(
            _merged(_named(common, name), entry or {}),
            _header(text),
            above.get(name, ""),
            {
                keys[1:]: text
                for own in (EACH, name)
                for keys, text in comments.items()
                if keys[0] == own
            },
        )
        for name, entry in plain.items()
    }


def _named(node: Any, name: str) -> Any:
    """Returns the options of `_each_` with the name of an entry in place of `_name_`."""
    if isinstance(node, Mapping):
        return {key: _named(value, name) for key, value in node.items()}
    return name if node == NAME else node


@lru_cache(maxsize=512)
def _parsed_once(text: str) -> Any:
    return OmegaConf.to_container(OmegaConf.create(text), resolve=False)


def _parsed(text: str) -> Node:
    """Returns the content of a text, by Hydra's reading of numbers such as 1e-3."""
    plain = _parsed_once(text)
    return {str(key): value for key, value in plain.items()} if isinstance(plain, dict) else {}


def _header(text: str) -> str | None:
    found = _PACKAGE.match(text)
    return None if found is None else found[1]


def _without_marks(lines: list[str]) -> str:
    return "\n".join(
        line.removeprefix("#").removeprefix(" ")
        for line in lines
        if not line.startswith("# @package")
    )


@lru_cache(maxsize=512)
def _comments(text: str) -> dict[Keys, str]:
    lines = text.splitlines()
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return {
        keys: comment
        for keys, line, column in _options(root)
        if (comment := lines[line][column:].partition(" #")[2].strip())
    }


def _options(
    node: yaml.Node | None, above: Keys = (), line_above: int = -1
) -> Iterator[tuple[Keys, int, int]]:
    """Yields keys, line, and the column where the value or the key ends in this line.

    Of the options in one line, such as those of {a: 1, b: 2}, the first one has the comment.
    """
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _options(item, (*above, str(number)), line_above)
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        keys = (*above, str(key.value))
        line = key.start_mark.line
        on_line = value.end_mark.line == line
        if line != line_above:
            yield keys, line, (value if on_line else key).end_mark.column
        line_above = line
        yield from _options(value, keys, line)


# What classes declare.


def _base(folder: Path, path: str, plain: Node) -> Node:
    """Returns what the files of the same package that a list `defaults` names contain."""
    group = path.rpartition("/")[0]
    names = [each for each in plain.get("defaults", []) if isinstance(each, str)]
    base: Node = {}
    for name in names:
        if name != "_self_":
            base = _merged(base, completed(folder, f"{group}/{name}".lstrip("/")))
    return base


def _merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        return above
    names = [*below, *(key for key in above if key not in below)]
    return {
        name: _merged(below[name], above[name])
        if name in below and name in above
        else above.get(name, below.get(name))
        for name in names
    }


def class_arguments(node: Mapping[str, Any]) -> Mapping[str, Argument]:
    """Returns what the class that a mapping names declares; nothing for classes of others."""
    name = str(node.get(SETTINGS, node.get(TARGET, "")))
    return declared(name) if name.startswith("stringline.") else {}


def _filled(node: Any, base: Any) -> Any:
    """Adds the declared defaults to a mapping and to those in it, except those that `base` has."""
    if isinstance(node, list):
        return [_filled(each, {}) for each in node]
    if not isinstance(node, Mapping):
        return node
    base = base if isinstance(base, Mapping) else {}
    partial = bool(node.get(PARTIAL, base.get(PARTIAL, False)))
    usual = options(class_arguments(node), partial=partial)
    without = {*base, *node.get(WITHOUT, [])}
    whole = _merged({key: value for key, value in usual.items() if key not in without}, node)
    # A class before its arguments in their order; what a command chooses before the rest.
    ahead = [key for key in node if key.startswith("_") or SETTINGS in node]
    return {
        key: _filled(whole[key], base.get(key))
        for key in dict.fromkeys([*ahead, *whole])
        if key not in (SETTINGS, WITHOUT)
    }


def _declared_below(node: Any, above: Keys) -> Iterator[tuple[Keys, str]]:
    """Yields the keys and the docstring of each option that a mapping or one in it declares."""
    if isinstance(node, list):
        for number, each in enumerate(node):
            yield from _declared_below(each, (*above, str(number)))
    if isinstance(node, Mapping):
        yield from _described(class_arguments(node), above)
        for key, value in node.items():
            yield from _declared_below(value, (*above, key))


def _described(arguments: Mapping[str, Argument], above: Keys) -> Iterator[tuple[Keys, str]]:
    for name, argument in arguments.items():
        if argument.description:
            yield (*above, name), argument.description
        yield from _described(argument.arguments, (*above, name))
