"""Checkpoints: weights as safetensors, the rest as YAML.

Only public classes of this package, and networks of packages that the user trusts, are built.

The description of a checkpoint comes from others. Its numbers size networks, and a wrong one would
fill the memory, or never end, before the weights show that it is wrong. So the header of the
weights, which is read without them, bounds what is built.
"""

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from math import prod
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)

import stringline
from stringline.datasets.command.installation import installed_version
from stringline.datasets.contract.argument_checks import unknown_public_name
from stringline.datasets.extensions.trust import Trust, is_class_name
from stringline.datasets.files.atomic import replaced_directory
from stringline.datasets.files.limits import read_yaml


def read_weights(path: Path | str) -> dict[str, Tensor]:
    """Returns the tensors of a safetensors file, or of `model.safetensors` in a folder.

    Raises:
        ValueError: It cannot be read.
    """
    file = Path(path) / "model.safetensors" if Path(path).is_dir() else path
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read as safetensors: {error}") from error


def fill(
    model: nn.Module, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], path: Path | str
) -> None:
    """Loads tensors into a model.

    Args:
        model: The model; tensors that are not wanted keep their values.
        found: The tensors by name.
        wanted: Tensors of the model that are required; further ones are not allowed.
        path: File of the tensors, for messages.

    Raises:
        ValueError: A tensor is missing or unknown, or has another shape.
    """
    faults = {
        "missing": sorted(wanted.keys() - found.keys()),
        "unknown": sorted(found.keys() - wanted.keys()),
        "of another shape": [
            f"{key} {tuple(found[key].shape)} for {tuple(wanted[key].shape)}"
            for key in sorted(wanted.keys() & found.keys())
            if found[key].shape != wanted[key].shape
        ],
    }
    if any(faults.values()):
        listed = "; ".join(f"{kind}: {_some(keys)}" for kind, keys in faults.items() if keys)
        raise ValueError(f"{path} does not fit this model: {listed}.")
    model.load_state_dict(dict(found), strict=False)


def _some(keys: list[str]) -> str:
    more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return ", ".join(keys[:3]) + more


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
    in the directory; if None, none.
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


def build_settings(
    configuration: Mapping[str, Any], base: type = object, trust: Trust = ASKED_FOR
) -> Any:
    """Builds the `settings` of the class that a configuration describes, but not the object."""
    entries = {
        key: build(value, base, trust) for key, value in configuration.items() if key != "_target_"
    }
    return _settings(_class(str(configuration.get("_target_")), base, trust), entries)


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
    """Returns the dataclass of the argument `settings` of a class; None means no such argument."""
    parameter = inspect.signature(target).parameters.get("settings")
    annotation = None if parameter is None else parameter.annotation
    if isinstance(annotation, str):  # The module has `from __future__ import annotations`.
        annotation = vars(sys.modules[target.__module__]).get(annotation)
    return annotation if isinstance(annotation, type) and is_dataclass(annotation) else None


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
    public: object = getattr(stringline, name)
    if not isinstance(public, type) or not issubclass(public, base):
        raise ValueError(
            f"{target} is not a class derived from {base.__name__}; a checkpoint cannot build it."
        )
    return public


def code_version() -> str:
    """Returns the version of this package."""
    return f"stringline {installed_version()}"


FILES = (DESCRIPTION, WEIGHTS)
_BLOCK = 2**20


def sha256_of(folder: Path) -> str:
    """Returns the SHA-256 of the files of a checkpoint in this order, 64 hexadecimal digits."""
    paths = [folder.absolute() / name for name in FILES]
    stats = [path.stat() for path in paths]
    versions = tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)
    return _sha256(tuple(paths), versions)


@functools.cache
def _sha256(paths: tuple[Path, ...], _: tuple[tuple[int, ...], ...]) -> str:
    """Returns the SHA-256 of files; changed files have other times, sizes or inodes."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()


Shapes = Mapping[str, tuple[int, ...]]

# A whole number above it must be the size of a tensor.
LARGEST_NUMBER = 1 << 16
# While a network is built, parts are registered more than once, or for a while, or are computed
# instead of stored.
_FACTOR = 4
_MORE_TENSORS = 1000
_MORE_NUMBERS = 1 << 22


def shapes_of(file: Path) -> dict[str, tuple[int, ...]]:
    """Returns the shapes in the header of a safetensors file by name.

    Raises:
        ValueError: The file cannot be read.
    """
    try:
        with safe_open(file, "pt") as weights:
            names: list[str] = list(weights.keys())
            return {name: tuple(weights.get_slice(name).get_shape()) for name in names}
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{file} cannot be read as safetensors: {error}") from error


@contextmanager
def bounded_by(file: Path, description: Mapping[str, object]) -> Iterator[None]:
    """Bounds the network that the block builds by the header of its weights.

    Args:
        file: The weights.
        description: What the network is built from, plain data.

    Raises:
        ValueError: A number of the description is the size of no tensor, or the block builds more
            than the weights fill.
    """
    shapes = shapes_of(file) if file.is_file() else {}  # Loading the weights reports that.
    largest = max((size for shape in shapes.values() for size in shape), default=0)
    for path, number in _numbers(description):
        if number > max(LARGEST_NUMBER, largest):
            raise ValueError(
                f"{path} is {number}; allowed: up to {max(LARGEST_NUMBER, largest)}, since no "
                f"tensor in {file} is that large."
            )
    built = _Built(file, shapes)
    handles = [
        register_module_parameter_registration_hook(built.note),
        register_module_buffer_registration_hook(built.note),
    ]
    try:
        yield
    except RuntimeError as error:  # Of PyTorch's allocator.
        raise ValueError(f"The network of {file} cannot be built: {error}") from error
    finally:
        for handle in handles:
            handle.remove()


class _Built:
    """Counts the tensors of modules while they are built."""

    def __init__(self, file: Path, shapes: Shapes) -> None:
        self._file = file
        self._tensors = _FACTOR * len(shapes) + _MORE_TENSORS
        self._numbers = _FACTOR * sum(map(prod, shapes.values())) + _MORE_NUMBERS
        self._stored = len(shapes)

    def note(self, module: nn.Module, name: str, tensor: Tensor | None) -> None:
        """Notes a tensor that is registered; the hook of PyTorch."""
        if tensor is None:
            return
        self._tensors -= 1
        self._numbers -= tensor.numel()
        if self._tensors < 0 or self._numbers < 0:
            raise ValueError(
                f"{self._file} has {self._stored} tensors, and its description builds a larger "
                f"network, at {type(module).__name__}.{name}. Its sizes are wrong."
            )


def _numbers(plain: object, path: str = "") -> Iterator[tuple[str, int]]:
    """Yields the whole numbers in plain data with their paths; seeds size nothing."""
    if isinstance(plain, Mapping):
        for key, value in plain.items():
            if not str(key).endswith("seed"):
                yield from _numbers(value, f"{path}.{key}" if path else str(key))
    elif isinstance(plain, list | tuple):
        for value in plain:
            yield from _numbers(value, path)
    elif isinstance(plain, int) and not isinstance(plain, bool):
        yield path, plain
