"""Weights in safetensors files: reading them, and filling a model with them."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn


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
