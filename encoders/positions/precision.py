"""Numerical precision of phases and bases."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, library

from stringline.datasets.contract.argument_checks import value_checks_are_skipped


def without_autocast(like: Tensor) -> AbstractContextManager[object]:
    """Returns a context without autocast on the device of a tensor.

    It does nothing if autocast is off, so that an exported graph is not split.
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
    """Returns x; in compiled code it is materialised in memory.

    A compiler fuses cheap computations into the operations that use them. It treats sines and
    cosines as cheap, and would compute those that all heads share once per head.
    """
    compiling = torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting()
    return _computed(x) if compiling else x


def values_are_hidden(x: Tensor) -> bool:
    """Returns whether values are not checked.

    They cannot be while compiling or capturing a CUDA graph, and are not in a
    `without_value_checks` block.
    """
    return (
        x.is_meta
        or torch.compiler.is_compiling()
        or value_checks_are_skipped()
        or (x.is_cuda and torch.cuda.is_current_stream_capturing())
    )


def phases(coordinates: Tensor, omega: Tensor) -> Tensor:
    """Returns Omega r, (B, heads | 1, N, planes), for coordinates (B, N, axes), in their type.

    Computed by products and sums, since TF32 or autocast would round a matmul. Omega is
    (heads | 1, axes, planes), in radians per unit of the coordinates.
    """
    omega = omega.to(coordinates.dtype)
    phase = coordinates[:, None, :, 0, None] * omega[:, 0, None]
    for axis in range(1, omega.shape[1]):
        phase = torch.addcmul(phase, coordinates[:, None, :, axis, None], omega[:, axis, None])
    return phase


def rounded(x: Tensor, kind: torch.dtype) -> Tensor:
    """Returns x in bfloat16 if that is the type of attention, unchanged for float32."""
    return x.to(kind) if kind is torch.bfloat16 else x


def at_least_float32(x: Tensor) -> Tensor:
    """Returns x in float32, or unchanged in float64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
