"""Where rounding would do harm: phases and bases are computed as precisely as their inputs allow."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def without_autocast(like: Tensor) -> AbstractContextManager[object]:
    """Returns a context in which autocast leaves the types on this tensor's device alone.

    Where autocast is off already it does nothing: so an exported graph is not taken apart for it.
    """
    kind = like.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def at_least_float32(x: Tensor) -> Tensor:
    """Returns x in float32, or float64 where it is that already."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
