"""Multiply-accumulate operations of a network, with the rotations of its encodings."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from stringline.encoders.positions.places import MatrixPlaces, Places, RotaryPlaces
from stringline.encoders.vision.attention import PositionalAttention
from stringline.encoders.vision.linear_attention import LinearAttention


@dataclass(frozen=True, kw_only=True)
class OperationCount:
    """Multiply-accumulate operations (MAC) of one forward pass; a FLOP count is twice of it.

    Attributes:
        products: Of matrix products and convolutions, without rotations. They include what an
            encoding computes once per forward pass and parameter set, such as folding a basis.
        rotations: Of rotating queries, keys, relative values and their outputs.
    """

    products: int
    rotations: int

    @property
    def total(self) -> int:
        """All operations."""
        return self.products + self.rotations


def count_operations(network: nn.Module, *inputs: object) -> OperationCount:
    """Counts the operations of `network(*inputs)`.

    By `torch.utils.flop_counter` without fused attention, which it does not see on a CPU. It misses
    elementwise products, so the rotations of planes are derived: 2 MAC per channel, as many as a
    product with 2 x 2 matrices takes. Neither counts sines, norms, softmax and matrix exponentials.

    LieRE (Ostmeier et al., 2024), tables 2 and 3, counts by fvcore, which takes the cost of a
    product that is broadcast from its first operand: rotations that heads share appear to cost 1 /
    heads. Here the count does not depend on sharing, as the arithmetic does not.

    Args:
        network: A network with any number of attention layers over places.
        inputs: Its inputs; the count is that of the whole batch.
    """
    counted = [0, 0]  # Rotations of planes, and of matrices, which the counter sees as products.

    def add(attention: nn.Module, arguments: tuple[object, ...], named: dict[str, object]) -> None:
        given = dict(zip(("x", "places", "context", "context_places"), arguments, strict=False))
        given |= named
        queries = given["x"]
        keys = given.get("context")
        places = given["places"]
        key_places = given.get("context_places") or places
        if isinstance(keys, Tensor) or keys is None:
            _add(counted, key_places, keys if isinstance(keys, Tensor) else queries, attention)
        _add(counted, places, queries, attention)

    handles = [
        module.register_forward_pre_hook(add, with_kwargs=True)
        for module in network.modules()
        if isinstance(module, PositionalAttention | LinearAttention)
    ]
    counter = FlopCounterMode(display=False)
    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
            network(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    planes, matrices = counted
    return OperationCount(
        products=counter.get_total_flops() // 2 - matrices, rotations=planes + matrices
    )


def rotation_cost(places: Places, vectors: int, heads: int, head_dim: int) -> int:
    """Returns the operations of rotating `vectors` per head, (..., heads, N, head_dim).

    A block of b channels costs b^2, so a channel costs b: 2 for planes. Places without a rotation
    cost nothing.
    """
    if isinstance(places, RotaryPlaces):
        block = 2
    elif isinstance(places, MatrixPlaces):
        block = places.rotations.shape[-1]
    else:
        return 0
    return vectors * heads * head_dim * block


def _add(counted: list[int], places: object, tokens: object, attention: nn.Module) -> None:
    """Adds the rotations of queries and outputs, or those of keys and values, of some tokens."""
    assert isinstance(places, Places)
    assert isinstance(tokens, Tensor)
    assert isinstance(attention, PositionalAttention | LinearAttention)
    vectors = tokens.shape[:-1].numel() * (2 if attention.values else 1)
    heads = attention.heads
    cost = rotation_cost(places, vectors, heads, tokens.shape[-1] // heads)
    counted[isinstance(places, MatrixPlaces)] += cost
