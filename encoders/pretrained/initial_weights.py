"""Weights of published networks as initial values; a checkpoint contains all of its weights."""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any


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
