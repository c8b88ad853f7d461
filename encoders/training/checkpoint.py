"""Checkpoints: weights as safetensors, the rest as YAML.

Only public classes of this package, and networks of packages that the user trusts, are built.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import yaml
from safetensors.torch import save_file
from torch import nn

import stringline
from stringline.datasets.command.installed_version import installed_version
from stringline.datasets.contract.argument_checks import unknown_public_name
from stringline.datasets.extensions.class_names import is_class_name
from stringline.datasets.extensions.trust import Trust
from stringline.datasets.files.replaced_directory import replaced_directory
from stringline.datasets.files.yaml_file import read_yaml
from stringline.encoders.training.weight_files import fill, read_weights

FORMAT = 2
WEIGHTS = "weights.safetensors"
DESCRIPTION = "checkpoint.yaml"

_DEPTH_OF_FORMAT_1 = {"depth_pooling": "mean", "missing_depth": "centroid"}
_PLACES_OF_FORMAT_1 = {
    "stringline.MetricPlaces": _DEPTH_OF_FORMAT_1,
    "stringline.PatchDepthPlaces": _DEPTH_OF_FORMAT_1,
    "stringline.FilledDepthPlaces": _DEPTH_OF_FORMAT_1,
    "stringline.CylindricalPlaces": _DEPTH_OF_FORMAT_1,
    "stringline.SphericalPlaces": _DEPTH_OF_FORMAT_1,
    "stringline.DirectionPlaces": _DEPTH_OF_FORMAT_1,
    "stringline.RayPlaces": {"depth_pooling": "mean"},
}
"""Arguments that checkpoints of format 1 lack, as this format meant them, by class."""

ASKED_FOR = Trust()
"""The consent that applies to configurations of the user."""


def save_checkpoint(
    directory: Path,
    model: nn.Module,
    description: Mapping[str, Any],
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Writes a checkpoint atomically; see `replaced_directory`.

    A reader during the replacement may get the description of one checkpoint and the weights of the
    next, which fit each other. `description` is plain data: the resolved configuration of the model
    under `model`, and everything else needed to build it. `files` are further files by their paths
    in the directory; None: none.
    """
    tensors = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    text = yaml.safe_dump(
        {"format": FORMAT, "code": code_version(), **description}, sort_keys=False, width=120
    )
    with replaced_directory(directory) as fresh:
        save_file(tensors, fresh / WEIGHTS)
        (fresh / DESCRIPTION).write_text(text)
        for name, content in (files or {}).items():
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            (fresh / name).write_bytes(content)


def load_description(directory: Path) -> dict[str, Any]:
    """Reads `checkpoint.yaml`, with the meaning of its format.

    Format 1 has other defaults than this version; they are written out, so that a model computes
    what it was trained for.

    Raises:
        ValueError: It is missing, unreadable or too new.
    """
    file = directory / DESCRIPTION
    if not file.is_file():
        raise ValueError(
            f"There is no checkpoint at {directory}: {DESCRIPTION} is missing. A checkpoint is a "
            f"folder with {DESCRIPTION} and {WEIGHTS}."
        )
    description = read_yaml("The description", file)
    if not isinstance(description, dict) or not isinstance(description.get("format"), int):
        raise ValueError(f"{file} is not a checkpoint description: the key 'format' is missing.")
    if description["format"] > FORMAT:
        raise ValueError(
            f"{directory} has checkpoint format {description['format']}, written by "
            f"{description.get('code', 'an unknown version')}; this version of Stringline reads "
            f"formats up to {FORMAT}. Upgrade Stringline."
        )
    if description["format"] == 1 and "model" in description:
        description["model"] = _of_format_1(description["model"])
    return description


def _of_format_1(plain: Any) -> Any:
    """Returns a configuration of format 1 with the arguments that it lacks."""
    if isinstance(plain, list):
        return [_of_format_1(entry) for entry in plain]
    if not isinstance(plain, dict):
        return plain
    lacking = _PLACES_OF_FORMAT_1.get(str(plain.get("_target_")), {})
    return {key: _of_format_1(value) for key, value in plain.items()} | {
        name: value for name, value in lacking.items() if name not in plain
    }


def load_weights(directory: Path, model: nn.Module) -> None:
    """Loads the weights of a checkpoint into a model with the same tensors."""
    file = directory / WEIGHTS
    fill(model, read_weights(file), model.state_dict(), file)


def build(
    configuration: object, base: type = object, trust: Trust = ASKED_FOR, **arguments: object
) -> Any:
    """Builds the object that a plain configuration describes.

    A mapping with `_target_` becomes a call of that class with the other entries as keyword
    arguments, or, with `_partial_: true`, a `functools.partial` of it. Lists and mappings are built
    entry by entry; other values stay as they are. The syntax is Hydra's, so the same text serves in
    configurations and checkpoints. A class with an argument `settings` of a dataclass type gets
    that dataclass, made of the entries. Every class must be derived from `base`, and be public in
    this package, or a network `module:Class` of a package that `trust` includes; `arguments` are
    further keyword arguments of the outermost class.
    """
    if isinstance(configuration, list):
        return [build(entry, base, trust) for entry in configuration]
    if not isinstance(configuration, dict):
        return configuration
    entries = {
        key: build(value, base, trust)
        for key, value in configuration.items()
        if key not in ("_target_", "_partial_")
    }
    if "_target_" not in configuration:
        return entries
    target = _class(str(configuration["_target_"]), base, trust)
    partial = bool(configuration.get("_partial_", False))
    if _settings_class(target) is not None:
        entries = {"settings": _settings(target, entries)}
    _check_arguments(target, inspect.signature(target), entries | arguments, partial=partial)
    return (
        functools.partial(target, **entries, **arguments)
        if partial
        else target(**entries, **arguments)
    )


def build_settings(configuration: Mapping[str, Any], base: type = object) -> Any:
    """Builds the `settings` of the class that a configuration describes, but not the object."""
    entries = {key: build(value, base) for key, value in configuration.items() if key != "_target_"}
    return _settings(_class(str(configuration.get("_target_")), base, ASKED_FOR), entries)


def _settings(target: type, entries: Mapping[str, Any]) -> object:
    settings = _settings_class(target)
    if settings is None:
        raise ValueError(
            f"{target.__qualname__} needs an argument 'settings' annotated with a dataclass; its "
            f"fields are the options in YAML."
        )
    _check_arguments(target, inspect.signature(settings), entries)
    return settings(**entries)


def _settings_class(target: type) -> Callable[..., object] | None:
    """Returns the dataclass of the argument `settings` of a class; None: no such argument."""
    parameter = inspect.signature(target).parameters.get("settings")
    found = None if parameter is None else parameter.annotation
    if isinstance(found, str):  # The module has `from __future__ import annotations`.
        found = vars(sys.modules[target.__module__]).get(found)
    return found if isinstance(found, type) and is_dataclass(found) else None


def _check_arguments(
    target: type,
    signature: inspect.Signature,
    given: Mapping[str, object],
    *,
    partial: bool = False,
) -> None:
    try:
        (signature.bind_partial if partial else signature.bind)(**given)
    except TypeError as error:
        name = f"{target.__module__}.{target.__qualname__}"
        raise ValueError(
            f"{name}: {error}. Its arguments: {', '.join(signature.parameters)}."
        ) from error


def _class(target: str, base: type, trust: Trust) -> type:
    """Returns the class of a target: `stringline.DiffusionPolicy`, or `module:Class`."""
    if not is_class_name(target):
        return _public_class(target, base)
    if not issubclass(base, nn.Module):
        raise ValueError(
            f"{target!r} cannot be built here; allowed: classes of Stringline. Policies and their "
            "parts may be classes of other packages."
        )
    return trust.load(target, base)


def _public_class(target: str, base: type) -> type:
    """Returns the public class that a target such as `stringline.DiffusionPolicy` names."""
    package, _, name = target.rpartition(".")
    if target.partition(".")[0] != "stringline":
        raise ValueError(
            f"A checkpoint can only build classes of stringline; its target is {target!r}. The "
            "class of another package is written module:Class."
        )
    if package != "stringline" or name not in stringline.HOME:
        raise unknown_public_name(target)
    found: object = getattr(stringline, name)
    if not isinstance(found, type) or not issubclass(found, base):
        raise ValueError(
            f"{target} is not a class derived from {base.__name__}; a checkpoint cannot build it."
        )
    return found


def code_version() -> str:
    """Returns the version of this package."""
    return f"stringline {installed_version()}"
