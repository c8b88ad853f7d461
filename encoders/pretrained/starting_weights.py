"""Weights of a network that others have trained, to start from; a checkpoint brings all of its own."""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn


class ToFollow(Enum):
    """Stands for a file of weights where a checkpoint will fill the network."""

    CHECKPOINT = "checkpoint"


StartingWeights = Path | str | ToFollow | None
"""A safetensors file; or that a checkpoint will fill the network; None: nobody does, it starts at random."""


def without_files(configuration: object) -> Any:
    """Returns a plain configuration in which the file of every `weights` is replaced by the promise of a checkpoint.

    What a checkpoint is built from must neither need nor read the files that its training started
    from.
    """
    if isinstance(configuration, Mapping):
        return {
            key: ToFollow.CHECKPOINT
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
        ValueError: It cannot be read.
    """
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read as safetensors: {error}") from error


def fill(
    model: nn.Module, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], path: Path | str
) -> None:
    """Gives a model the tensors that were found.

    Args:
        model: Keeps what is not wanted as it is.
        found: By their names in the model.
        wanted: Those of the model that must be there, and no others may.
        path: Where they were found, for the message.

    Raises:
        ValueError: A tensor is missing, has another shape, or belongs to nothing.
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
