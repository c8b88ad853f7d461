"""Checkpoints: weights as safetensors, everything else as YAML, nothing pickled, only our own classes built."""

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import stringline
from stringline.datasets.files.replaced_directory import replaced_directory

FORMAT = 1
WEIGHTS = "weights.safetensors"
DESCRIPTION = "checkpoint.yaml"


def save_checkpoint(directory: Path, model: nn.Module, description: Mapping[str, Any]) -> None:
    """Writes a checkpoint so that no reader ever sees half of one; see `replaced_directory`.

    Who reads while it is replaced may find the description of one and the weights of the next,
    which fits.

    Args:
        directory: Where `weights.safetensors` and `checkpoint.yaml` shall stand.
        model: Its state dict is written as it is.
        description: Plain data: the resolved configuration of the model under `model`, and whatever
            it needs to be built.
    """
    tensors = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    text = yaml.safe_dump(
        {"format": FORMAT, "code": code_version(), **description}, sort_keys=False, width=120
    )
    with replaced_directory(directory) as fresh:
        save_file(tensors, fresh / WEIGHTS)
        (fresh / DESCRIPTION).write_text(text)


def load_description(directory: Path) -> dict[str, Any]:
    """Reads `checkpoint.yaml`.

    Raises:
        ValueError: There is none, it cannot be read, or a newer version of this project wrote it.
    """
    file = directory / DESCRIPTION
    if not file.is_file():
        raise ValueError(
            f"There is no checkpoint at {directory}: {DESCRIPTION} is missing. "
            f"A checkpoint is a folder with {DESCRIPTION} and {WEIGHTS}."
        )
    try:
        description = yaml.safe_load(file.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not readable YAML: {error}.") from error
    if not isinstance(description, dict) or not isinstance(description.get("format"), int):
        raise ValueError(f"{file} is not a checkpoint description: it names no format.")
    if description["format"] > FORMAT:
        raise ValueError(
            f"{directory} has checkpoint format {description['format']}; this version of "
            f"Stringline reads up to {FORMAT}. "
            f"It was written by {description.get('code', 'an unknown version')}: upgrade "
            f"Stringline."
        )
    return description


def load_weights(directory: Path, model: nn.Module) -> None:
    """Fills the model with the weights of a checkpoint.

    Raises:
        ValueError: The file is missing or broken, or its tensors are not those of the model.
    """
    tensors = read_weights(directory)
    _check_fit(tensors, model.state_dict(), directory / WEIGHTS)
    model.load_state_dict(tensors)


def read_weights(directory: Path) -> dict[str, Tensor]:
    """Returns the tensors of a checkpoint by name.

    Raises:
        ValueError: The file is missing or broken.
    """
    file = directory / WEIGHTS
    try:
        tensors: dict[str, Tensor] = load_file(file)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"The weights {file} cannot be read: {error}.") from error
    return tensors


def _check_fit(got: Mapping[str, Tensor], want: Mapping[str, Tensor], file: Path) -> None:
    missing = sorted(want.keys() - got.keys())
    surplus = sorted(got.keys() - want.keys())
    shapes = [
        f"{name} is {tuple(got[name].shape)}, not {tuple(want[name].shape)}"
        for name in want.keys() & got.keys()
        if got[name].shape != want[name].shape
    ]
    if missing or surplus or shapes:
        parts = [f"missing: {', '.join(missing[:3])}"] if missing else []
        parts += [f"unknown: {', '.join(surplus[:3])}"] if surplus else []
        raise ValueError(
            f"{file} does not fit the model of its description ({'; '.join(parts + shapes[:3])})."
        )


def build(configuration: object, base: type = object, **arguments: object) -> Any:
    """Builds the object that a plain configuration describes.

    A mapping with `_target_` becomes a call of that class with the other entries as keyword
    arguments, or, with `_partial_: true`, that class with those arguments set and the rest to come;
    lists and mappings are built entry by entry; everything else stays as it is. The words are
    Hydra's, so the same text serves in configurations and in checkpoints. A class that takes a
    dataclass as its argument `settings` gets one that is made of the entries.

    Args:
        configuration: Plain data, as `yaml.safe_load` gives it.
        base: Every class that is built must derive from it; a policy consists of `torch.nn.Module`
            only.
        arguments: Further keyword arguments of the outermost class.

    Raises:
        ValueError: A target is not a public class of this package, or its arguments do not fit.
    """
    if isinstance(configuration, list):
        return [build(entry, base) for entry in configuration]
    if not isinstance(configuration, dict):
        return configuration
    entries = {
        key: build(value, base)
        for key, value in configuration.items()
        if key not in ("_target_", "_partial_")
    }
    if "_target_" not in configuration:
        return entries
    target = _public_class(str(configuration["_target_"]), base)
    partial = bool(configuration.get("_partial_", False))
    if (settings := _settings_of(target)) is not None:
        _check_arguments(target, inspect.signature(settings), entries)
        entries = {"settings": settings(**entries)}
    _check_arguments(target, inspect.signature(target), entries | arguments, partial=partial)
    return (
        functools.partial(target, **entries, **arguments)
        if partial
        else target(**entries, **arguments)
    )


def _settings_of(target: type) -> Callable[..., object] | None:
    """Returns the dataclass that a class takes as its argument `settings`; None: it takes its arguments one by one."""
    parameter = inspect.signature(target).parameters.get("settings")
    found = None if parameter is None else parameter.annotation
    return found if isinstance(found, type) and is_dataclass(found) else None


def _check_arguments(
    target: type,
    signature: inspect.Signature,
    given: Mapping[str, object],
    *,
    partial: bool = False,
) -> None:
    """Refuses arguments that do not fit; of a partial call more may come."""
    try:
        (signature.bind_partial if partial else signature.bind)(**given)
    except TypeError as error:
        name = f"{target.__module__}.{target.__qualname__}"
        raise ValueError(
            f"{name}: {error}. Its arguments: {', '.join(signature.parameters)}."
        ) from error


def _public_class(target: str, base: type) -> type:
    """Returns the public class of this package that a target names, such as `stringline.DiffusionPolicy`."""
    package, _, name = target.rpartition(".")
    if target.partition(".")[0] != "stringline":
        raise ValueError(
            f"A checkpoint may only build classes of stringline; it asks for {target!r}."
        )
    if package != "stringline" or name not in stringline.HOME:
        near = difflib.get_close_matches(name, stringline.HOME, n=1, cutoff=0.4)
        hint = f" Did you mean 'stringline.{near[0]}'?" if near else ""
        raise ValueError(
            f"There is no public name {target!r}.{hint} docs/api.md lists all public names."
        )
    found: object = getattr(stringline, name)
    if not isinstance(found, type) or not issubclass(found, base):
        raise ValueError(
            f"{target} is not a class derived from {base.__name__}; a checkpoint cannot build it."
        )
    return found


def code_version() -> str:
    """Names the code that runs."""
    try:
        return f"stringline {version('stringline')}"
    except PackageNotFoundError:
        return "stringline (not installed)"
