"""Choices of configuration groups that are classes of other packages.

`policy=my_module:MyPolicy` needs no YAML file: the choice is made from what the class declares, see
`declarations.py`. An installed package gives its classes short names by entry points.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stringline.datasets.command.declarations import (
    Argument,
    declared,
    imported,
    options,
)
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
