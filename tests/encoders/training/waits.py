"""Operations for which the host waits for the device, as a CPU shows them."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal")
INDEXING = ("index", "index_put", "index_put_")


class Waits(TorchDispatchMode):
    """Notes each operation whose result or size the host needs.

    Attributes:
        found: Their names.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = func.__name__.split(".")[0]
        by_mask = name in INDEXING and any(
            isinstance(index, Tensor) and index.dtype is torch.bool for index in args[1]
        )
        if name in WAITING or by_mask:
            self.found.append(name)
        return func(*args, **(kwargs or {}))
