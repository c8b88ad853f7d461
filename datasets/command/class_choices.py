"""Choices of configuration groups that are classes of other packages.

`policy=my_module:MyPolicy` needs no YAML file: the choice is made from the arguments of the class
and their defaults. An installed package gives its classes short names by entry points.
"""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore

from stringline.datasets.extensions.class_names import (
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
    """

    kind: str
    node: Callable[[Node], Node]
    package: str | None = None


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
    rates = {"image_size": 128, "control_hz": 50.0, "frame_hz": 12.5, "time_limit_s": 20.0}
    return {"name": str(name), "cameras": cameras, **rates, "options": {}}


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
    "encoder": ClassGroup("encoders", _encoder),
    "coordinates": ClassGroup("coordinates", _coordinates),
    "history": ClassGroup("histories", _history, package="policy.observation_encoder"),
    "task": ClassGroup("tasks", _task),
    "robot": ClassGroup("robots", _robot),
}


@contextmanager
def class_choices(folder: Path, overrides: Sequence[str]) -> Iterator[None]:
    """Adds choices to Hydra in a block: classes of the command line, and names of installed ones.

    A file of `folder` comes before an entry point of the same name.

    Raises:
        ValueError: A chosen class cannot be imported.
    """
    added: list[tuple[str, str]] = []
    try:
        for group, place in CLASS_GROUPS.items():
            installed = {
                name: target
                for name, target in installed_classes(place.kind).items()
                if not (folder / group / f"{name}.yaml").is_file()
            }
            chosen = set(_choices(overrides, group))
            for name in {*installed, *filter(is_class_name, chosen)}:
                node = place.node(_described(installed.get(name, name))) if name in chosen else {}
                ConfigStore.instance().store(name, node, group, place.package)
                added.append((group, name))
        yield
    finally:
        for group, name in added:
            _remove(group, name)


def _remove(group: str, name: str) -> None:
    """Removes a choice; Hydra itself only adds."""
    node = ConfigStore.instance().repo
    for part in group.split("/"):
        node = node[part]
    node.pop(f"{name}.yaml", None)


def _choices(overrides: Sequence[str], group: str) -> Iterator[str]:
    """Yields the choices of a group on a command line, several for a sweep."""
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        if key == group:
            yield from (name.strip("'\" ") for name in value.split(","))


def _described(target: str) -> Node:
    """Returns `_target_` and the plain defaults of the arguments of a class."""
    name = ClassName.parse(target)
    found = import_class(name)
    arguments = _plain_arguments(found)
    return {"_target_": str(name), **arguments}


def _plain_arguments(found: type) -> Node:
    """Returns the arguments that a configuration can give, with `???` for those without default."""
    settings = inspect.signature(found).parameters.get("settings")
    owner: Any = found if settings is None else settings.annotation
    if isinstance(owner, str):
        owner = vars(sys.modules[found.__module__]).get(owner, found)
    arguments: Node = {}
    for name, parameter in inspect.signature(owner).parameters.items():
        if name in LINKED:
            arguments[name] = LINKED[name]
        elif name not in GIVEN and _is_named(parameter) and _is_plain(parameter.default):
            default = parameter.default
            arguments[name] = "???" if default is parameter.empty else _as_yaml(default)
    return arguments


def _is_named(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def _is_plain(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is inspect.Parameter.empty or isinstance(value, (bool, int, float, str))


def _as_yaml(value: object) -> object:
    return [_as_yaml(entry) for entry in value] if isinstance(value, (list, tuple)) else value
