"""The choices of configuration groups, from files and classes, completed by what classes declare.

`policy=my_module:MyPolicy` needs no YAML file: the choice is made from what the class declares, see
`declarations.py`. An installed package gives its classes short names by entry points.

`configs/policy/act.yaml` is the choice `policy=act`. Choices of a few values each are entries of
one table, `configs/task/choices.yaml`: the comment above an entry is its description, and the
options of the entry `_each_` belong to all, with the name of the entry in place of `_name_`. An
entry in which `_rest_` occurs is a family: `task=metaworld:reach-v3` is the entry `metaworld` with
`reach-v3` in place of `_rest_`.

A mapping with `_target_`, or with `_settings_`, the name of the dataclass or function that reads
it or a list of them, contains the values that differ from the defaults declared there; `completed`
adds the others, and `descriptions` takes their meanings from the docstring. `_without_` lists
options of the class that have no effect beside the others of a choice.

Hydra reads them by `DeclaredOptions`. It finds plug-ins in the namespace package `hydra_plugins`,
so this holds for whoever composes the configuration: a command, `hydra.compose`, or another program
with its own Hydra configuration.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigLoadError, ConfigResult
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

import stringline
from stringline.datasets.command.declarations import (
    Argument,
    declared,
    imported,
    options,
)
from stringline.datasets.extensions.trust import (
    ClassName,
    import_class,
    installed_classes,
    is_class_name,
)

Node = dict[str, Any]

LINKED: Mapping[str, str] = {
    "encoding": "${encoder.encoding}",
    "values": "${encoder.values}",
    "coordinates": "${coordinates.places}",
    "depth_input": "${depth.input}",
    "wavelengths": "${coordinates.wavelengths}",
}
"""Arguments whose value is another choice of the command line."""

GIVEN = ("settings", "contract", "statistics", "observation_encoder", "heads", "head_dim", "axes")
"""Arguments that other parts of the stack give."""


@dataclasses.dataclass(frozen=True)
class ClassGroup:
    """A configuration group whose choices may be classes.

    Attributes:
        kind: Its entry points are `stringline.<kind>`.
        node: Makes the choice of `_target_` and arguments.
        package: Where Hydra puts the choice, if not at the name of the group.
        inside: The key of the choice below which the arguments of the class are.
    """

    kind: str
    node: Callable[[Node], Node]
    package: str | None = None
    inside: tuple[str, ...] = ()


def _policy(described: Node) -> Node:
    return {"defaults": [{"observation_encoder": "places"}, "_self_"], **described}


def _observation_encoder(described: Node) -> Node:
    return {**described, "_partial_": True}


def _encoder(described: Node) -> Node:
    return {"encoding": {**described, "_partial_": True}, "values": True}


def _coordinates(described: Node) -> Node:
    return {"places": described, "wavelengths": [0.04, 2.0]}  # Metres, as `coordinates=metric`.


def _history(described: Node) -> Node:
    return {"history": described}


def _task(described: Node) -> Node:
    """Returns the settings of `configs/task`, with all cameras of the class's robot."""
    name = ClassName.parse(described["_target_"], "task")
    cell = getattr(import_class(name), "cell", None)
    cameras = [camera.name for camera in cell.embodiment.cameras] if cell else None
    settings = options(declared("stringline.TaskSettings"))
    return {**settings, "name": str(name), "cameras": cameras}


def _robot(described: Node) -> Node:
    """Returns the settings of `configs/robot` for real arms."""
    driver = {name: value for name, value in described.items() if name != "_target_"}
    name = described["_target_"]
    rates = {"control_hz": "${task.control_hz}", "device_hz": 100.0, "lock_step": False}
    files = {"cameras": None, "cameras_file": None, "calibration_file": None, "limits_file": None}
    parts: Node = {"emulator": None, "ports": {}, "driver": driver, "limits": {}}
    return {"name": name, "backend": name, **rates, **files, **parts}


CLASS_GROUPS: Mapping[str, ClassGroup] = {
    "policy": ClassGroup("policies", _policy),
    "policy/observation_encoder": ClassGroup("observation_encoders", _observation_encoder),
    "encoder": ClassGroup("encoders", _encoder, inside=("encoding",)),
    "coordinates": ClassGroup("coordinates", _coordinates, inside=("places",)),
    "history": ClassGroup("histories", _history, "policy.observation_encoder", ("history",)),
    "task": ClassGroup("tasks", _task),
    "robot": ClassGroup("robots", _robot, inside=("driver",)),
}


def class_names(group: str, given: Iterable[str] = ()) -> set[str]:
    """Returns the choices of a group that are classes: of installed packages, and `module:Class`.

    Args:
        group: Name of the group.
        given: Choices of a command line, of which those of the form `module:Class` are returned.
    """
    if group not in CLASS_GROUPS:
        return set()
    return {*installed_classes(CLASS_GROUPS[group].kind), *filter(is_class_name, given)}


def class_choice(path: str) -> tuple[Node, str | None] | None:
    """Returns the content and the package of a choice that is a class; None if it is none.

    Args:
        path: Group and name, such as `policy/my_module:MyPolicy`.

    Raises:
        ValueError: The class cannot be imported.
    """
    target = _target(path)
    if target is None:
        return None
    place = CLASS_GROUPS[path.rpartition("/")[0]]
    return place.node({"_target_": target, **_plain(_arguments(target))}), place.package


def class_descriptions(path: str) -> dict[tuple[str, ...], str]:
    """Returns the docstrings of the options of a choice that is a class."""
    target = _target(path)
    if target is None:
        return {}
    inside = CLASS_GROUPS[path.rpartition("/")[0]].inside
    return {
        (*inside, name): argument.description
        for name, argument in _arguments(target).items()
        if argument.description
    }


def _target(path: str) -> str | None:
    """Returns the `module:Class` of a choice."""
    group, _, name = path.rpartition("/")
    if name not in class_names(group, [name]):
        return None
    target = installed_classes(CLASS_GROUPS[group].kind).get(name, name)
    return str(ClassName.parse(target))


def _arguments(target: str) -> dict[str, Argument]:
    return imported(import_class(ClassName.parse(target)))


def _plain(arguments: Mapping[str, Argument]) -> Node:
    """Returns the options of a class, and its arguments that other choices give."""
    own = options({name: each for name, each in arguments.items() if name not in GIVEN})
    return {
        name: LINKED.get(name, own.get(name)) for name in arguments if name in LINKED or name in own
    }


Keys = tuple[str, ...]

CONFIGS = Path(stringline.__file__).parent.absolute() / "configs"
"""The configuration files of this package."""

TABLE = "choices"
EACH = "_each_"
NAME = "_name_"
REST = "_rest_"
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
    """Returns the choices of a group that are files, or entries of its table; without families."""
    files = {file.stem for file in (folder / group).glob("*.yaml")} - {TABLE}
    entries = _entries(folder / group / f"{TABLE}.yaml")
    return sorted(files | {name for name, entry in entries.items() if REST not in str(entry.plain)})


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
    if file.is_file():
        return _file(file)
    family, _, rest = name.partition(":")
    found = _entries(folder / group / f"{TABLE}.yaml").get(family)
    if found is None or bool(rest) is not (REST in str(found.plain)):
        return None
    return replace(found, plain=_named(found.plain, rest, REST)) if rest else found


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


def _named(node: Any, name: str, place: str = NAME) -> Any:
    """Returns options with the name of an entry, or the rest of it, in the place for it."""
    if isinstance(node, Mapping):
        return {key: _named(value, name, place) for key, value in node.items()}
    return node.replace(place, name) if isinstance(node, str) else node


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
    """Returns what the classes that a mapping names declare; nothing for classes of others."""
    named = node.get(SETTINGS, node.get(TARGET, ""))
    arguments: dict[str, Argument] = {}
    for name in named if isinstance(named, list) else [str(named)]:
        arguments |= declared(name) if name.startswith("stringline.") else {}
    return arguments


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


SCHEME = "stringline"


class DeclaredOptions(FileConfigSource):
    """A folder of files, tables and classes as choices, completed by what classes declare."""

    @staticmethod
    def scheme() -> str:
        """Returns the beginning of paths that this source reads."""
        return SCHEME

    def load_config(self, config_path: str) -> ConfigResult:
        """Returns the content of a choice.

        Raises:
            ValueError: A chosen class cannot be imported.
        """
        folder = Path(self.path)
        path = config_path.removesuffix(".yaml")
        choice = read_choice(folder, path)
        if choice is not None:
            content = completed(folder, path)
            package = choice.package
        elif (made := class_choice(path)) is not None:
            content, package = made
        else:
            raise ConfigLoadError(f"Config not found : {folder / path}")
        return ConfigResult(
            self.provider, self.full_path(), OmegaConf.create(content), {"package": package}
        )

    def is_config(self, config_path: str) -> bool:
        """Returns whether there is a choice of this group and name."""
        path = config_path.removesuffix(".yaml")
        if read_choice(Path(self.path), path) is not None:
            return True
        group, _, name = path.rpartition("/")
        return name in class_names(group, [name])

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Returns the choices and the groups of a folder."""
        names = set(super().list(config_path, ObjectType.GROUP))
        if results_filter == ObjectType.GROUP:
            return sorted(names)
        choices = {*choice_names(Path(self.path), config_path), *class_names(config_path)}
        return sorted(choices if results_filter == ObjectType.CONFIG else choices | names)


class PackagedConfigs(SearchPathPlugin):
    """Reads the folder `configs` of this package by `DeclaredOptions` wherever it is searched."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Replaces the path of the folder."""
        for element in search_path.get_path():
            place = element.path.removeprefix("file://")
            if element.path == "pkg://stringline.configs" or (
                "://" not in place and Path(place).resolve() == CONFIGS.resolve()
            ):
                element.path = f"{SCHEME}://{CONFIGS}"
