"""Makes torchvision importable if its compiled operators do not fit the installed PyTorch.

PyPI's torchvision is built for CUDA. Beside a CPU build of PyTorch its library of operators cannot
be loaded, and `import torchvision` fails with "operator torchvision::nms does not exist", because
it describes two operators that are missing. timm needs torchvision, and diffusers imports it if it
is installed. Neither calls these operators, so declarations without an implementation suffice.
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
