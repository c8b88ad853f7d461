"""How phases and bases are computed: as precisely as their inputs allow, and once."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, library


def without_autocast(like: Tensor) -> AbstractContextManager[object]:
    """Returns a context in which autocast leaves the types on this tensor's device alone.

    Where autocast is off already it does nothing: so an exported graph is not taken apart for it.
    """
    kind = like.device.type
    return (
        torch.autocast(kind, enabled=False)
        if kind != "meta" and torch.is_autocast_enabled(kind)
        else nullcontext()
    )


@library.custom_op("stringline::computed", mutates_args=())
def _computed(x: Tensor) -> Tensor:
    return x.clone()


_computed.register_fake(torch.empty_like)
_computed.register_autograd(lambda context, gradient: gradient)


def computed_once(x: Tensor) -> Tensor:
    """Returns x; where it is compiled, as a tensor in memory.

    A compiler fuses what is cheap to compute into whatever reads it. It takes sines and cosines for
    cheap, and computes those that all heads share anew for each head.
    """
    compiling = torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting()
    return _computed(x) if compiling else x


def values_are_hidden(x: Tensor) -> bool:
    """Returns whether values cannot be checked: inside `torch.compile` and the capture of a CUDA graph, on no device at all."""
    return (
        x.is_meta
        or torch.compiler.is_compiling()
        or (x.is_cuda and torch.cuda.is_current_stream_capturing())
    )


def phases(coordinates: Tensor, omega: Tensor) -> Tensor:
    """Returns Omega r, (B, heads | 1, N, planes), in the type of the coordinates.

    Products and sums, since TF32 or autocast would round a matmul.

    Args:
        coordinates: (B, N, axes).
        omega: (heads | 1, axes, planes), in radians per unit of the coordinates.
    """
    omega = omega.to(coordinates.dtype)
    phase = coordinates[:, None, :, 0, None] * omega[:, 0, None]
    for axis in range(1, omega.shape[1]):
        phase = torch.addcmul(phase, coordinates[:, None, :, axis, None], omega[:, axis, None])
    return phase


def at_least_float32(x: Tensor) -> Tensor:
    """Returns x in float32, or float64 where it is that already."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
