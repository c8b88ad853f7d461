"""What a checkpoint may build: no more than the header of its weights has tensors for.

The description of a checkpoint comes from others. Its numbers size networks, and a wrong one would
fill the memory, or never end, before the weights show that it is wrong. So the header of the
weights, which is read without them, bounds what is built.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)

Shapes = Mapping[str, tuple[int, ...]]

# A whole number above it must be the size of a tensor.
LARGEST_NUMBER = 1 << 16
# While a network is built, parts are registered more than once, or for a while, or are computed
# instead of stored.
_FACTOR = 4
_MORE_TENSORS = 1000
_MORE_NUMBERS = 1 << 22


def shapes_of(file: Path) -> dict[str, tuple[int, ...]]:
    """Returns the shapes in the header of a safetensors file by name.

    Raises:
        ValueError: The file cannot be read.
    """
    try:
        with safe_open(file, "pt") as weights:
            names: list[str] = list(weights.keys())
            return {name: tuple(weights.get_slice(name).get_shape()) for name in names}
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{file} cannot be read as safetensors: {error}") from error


@contextmanager
def bounded_by(file: Path, description: Mapping[str, object]) -> Iterator[None]:
    """Bounds the network that the block builds by the header of its weights.

    Args:
        file: The weights.
        description: What the network is built from, plain data.

    Raises:
        ValueError: A number of the description is the size of no tensor, or the block builds more
            than the weights fill.
    """
    shapes = shapes_of(file) if file.is_file() else {}  # Loading the weights reports that.
    largest = max((size for shape in shapes.values() for size in shape), default=0)
    for path, number in _numbers(description):
        if number > max(LARGEST_NUMBER, largest):
            raise ValueError(
                f"{path} is {number}; allowed: up to {max(LARGEST_NUMBER, largest)}, since no "
                f"tensor in {file} is that large."
            )
    built = _Built(file, shapes)
    handles = [
        register_module_parameter_registration_hook(built.note),
        register_module_buffer_registration_hook(built.note),
    ]
    try:
        yield
    except RuntimeError as error:  # Of PyTorch's allocator.
        raise ValueError(f"The network of {file} cannot be built: {error}") from error
    finally:
        for handle in handles:
            handle.remove()


class _Built:
    """Counts the tensors of modules while they are built."""

    def __init__(self, file: Path, shapes: Shapes) -> None:
        self._file = file
        self._tensors = _FACTOR * len(shapes) + _MORE_TENSORS
        self._numbers = _FACTOR * sum(map(prod, shapes.values())) + _MORE_NUMBERS
        self._stored = len(shapes)

    def note(self, module: nn.Module, name: str, tensor: Tensor | None) -> None:
        """Notes a tensor that is registered; the hook of PyTorch."""
        if tensor is None:
            return
        self._tensors -= 1
        self._numbers -= tensor.numel()
        if self._tensors < 0 or self._numbers < 0:
            raise ValueError(
                f"{self._file} has {self._stored} tensors, and its description builds a larger "
                f"network, at {type(module).__name__}.{name}. Its sizes are wrong."
            )


def _numbers(plain: object, path: str = "") -> Iterator[tuple[str, int]]:
    """Yields the whole numbers in plain data with their paths; seeds size nothing."""
    if isinstance(plain, Mapping):
        for key, value in plain.items():
            if not str(key).endswith("seed"):
                yield from _numbers(value, f"{path}.{key}" if path else str(key))
    elif isinstance(plain, list | tuple):
        for value in plain:
            yield from _numbers(value, path)
    elif isinstance(plain, int) and not isinstance(plain, bool):
        yield path, plain
