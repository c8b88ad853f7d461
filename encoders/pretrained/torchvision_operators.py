"""A torchvision whose compiled operators do not fit this PyTorch: its Python parts are made to import all the same.

PyPI's torchvision is built for CUDA. Beside a build of PyTorch for the CPU its library of operators
cannot be loaded, and `import torchvision` ends in "operator torchvision::nms does not exist",
because it describes two operators that are not there. timm needs torchvision, and diffusers imports
it where it is installed, so neither would import. Neither calls one of those operators: a
declaration without an implementation is all that is missing.
"""

from importlib.machinery import PathFinder
from importlib.util import find_spec

import torch
from torch import library as registry

SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def declare_torchvision_operators() -> None:
    """Declares torchvision's operators where they are missing; to be called before anything imports torchvision.

    Where torchvision is sound, or not installed, nothing changes. Otherwise it imports from here
    on, and calling one of its operators is an error that says that they could not be loaded.
    """
    torchvision = find_spec("torchvision")
    folder = None if torchvision is None else torchvision.submodule_search_locations
    library = None if folder is None else PathFinder.find_spec("_C", folder)
    if library is None or library.origin is None or hasattr(torch.ops.torchvision, "nms"):
        return
    try:
        torch.ops.load_library(library.origin)  # type: ignore[no-untyped-call]  # As torchvision does; twice costs nothing.
    except OSError:
        for name, schema in SCHEMAS.items():
            registry.define(f"torchvision::{name}", schema)
