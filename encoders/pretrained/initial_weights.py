"""Weights of published networks as initial values; a checkpoint brings all of its own."""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn


class WeightsFrom(Enum):
    """A placeholder for a file of weights in a network that a checkpoint will fill."""

    CHECKPOINT = "checkpoint"


InitialWeights = Path | str | WeightsFrom | None
"""A safetensors file, the placeholder of a checkpoint, or None for random weights."""


def without_files(configuration: object) -> Any:
    """Replaces the file of every `weights` in a configuration by the placeholder of a checkpoint.

    Loading a checkpoint must not need the files that its training started from.
    """
    if isinstance(configuration, Mapping):
        return {
            key: WeightsFrom.CHECKPOINT
            if key == "weights" and isinstance(value, str)
            else without_files(value)
            for key, value in configuration.items()
        }
    return (
        [without_files(entry) for entry in configuration]
        if isinstance(configuration, list)
        else configuration
    )


def read_weights(path: Path | str) -> dict[str, Tensor]:
    """Returns the tensors of a safetensors file.

    Raises:
        ValueError: The file cannot be read.
    """
    try:
        return load_file(path)
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
