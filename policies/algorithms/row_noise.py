"""Random numbers of chunks, from one generator or from one for each row of a batch."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Generators = torch.Generator | Sequence[torch.Generator]


def normal(
    shape: Sequence[int],
    generators: Generators | None,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Returns standard normal numbers of a shape (B, ...).

    With a generator per row, each row is what its generator draws for a batch of one. None: torch's
    global generator.

    Raises:
        ValueError: There are several generators, but not one per row.
    """
    return _drawn(torch.randn, shape, generators, device, dtype)


def uniform(
    shape: Sequence[int],
    generators: Generators | None,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Returns numbers of a shape (B, ...) from 0 to below 1; see `normal`."""
    return _drawn(torch.rand, shape, generators, device, dtype)


def _drawn(
    draw: Callable[..., Tensor],
    shape: Sequence[int],
    generators: Generators | None,
    device: torch.device,
    dtype: torch.dtype,
) -> Tensor:
    if generators is None or isinstance(generators, torch.Generator):
        return draw(tuple(shape), generator=generators, device=device, dtype=dtype)
    if len(generators) != shape[0]:
        raise ValueError(
            f"There are {len(generators)} generators for {shape[0]} rows; allowed: one for all "
            f"rows, or one per row."
        )
    rows = [
        draw((1, *shape[1:]), generator=generator, device=device, dtype=dtype)
        for generator in generators
    ]
    return torch.cat(rows)
