"""Where a policy's arms look: attention over the patches of all cameras, as points in space."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.contract import Observation
from stringline.encoders.coordinates.coordinates import MetricPlaces
from stringline.encoders.vision.attention import PositionalAttention
from stringline.encoders.vision.camera_views import camera_view
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.observation.observation_encoder import ObservationEncoder


@dataclass(frozen=True)
class AttentionMap:
    """Patches with their place, their colour and what each arm makes of them.

    Attributes:
        points: (P, 3), metres in the base frame; patches without depth, and cameras without
            geometry, are left out.
        colours: (P, 3) uint8, mean colour of the patch.
        weights: (arms, P), shares of the attention of each arm's token; what is missing from one
            went to other tokens.
        arms: Their names.
    """

    points: NDArray[np.float32]
    colours: NDArray[np.uint8]
    weights: NDArray[np.float32]
    arms: tuple[str, ...]


@torch.inference_mode()
def attention_map(policy: ChunkPolicy, observation: Observation) -> AttentionMap:
    """Follows the attention of the arms' tokens back to the patches.

    Attention rollout (Abnar and Zuidema, 2020, arXiv 2005.00928): the product over all blocks of (A
    + I) / 2, A the mean over the heads, so what a token has gathered in earlier blocks counts as
    well. It says where information may come from, not what it is used for.

    Args:
        policy: Any that has the memory of `policies/observation/observation_encoder.py`.
        observation: One of its contract.

    Raises:
        ValueError: The policy has another memory.
    """
    memory = policy.memory
    device = next(policy.parameters()).device
    if not isinstance(memory, ObservationEncoder):
        got = type(memory).__name__
        raise ValueError(
            f"Attention can be followed through an ObservationMemory; the memory of this policy "
            f"is a {got}."
        )
    batch = policy.observed(observation)
    with _recorded(memory.blocks) as blocks:
        memory(batch)
    rollout: Tensor | None = None
    for weights in blocks:
        mixed = (weights.mean(dim=1)[0] + torch.eye(weights.shape[-1], device=device)) / 2
        rollout = mixed if rollout is None else mixed @ rollout
    assert rollout is not None
    points, colours, placed = _patches(memory, batch)
    streams = memory.tokenise.fusion.streams
    first = 0 if memory.blocks.registers is None else len(memory.blocks.registers)
    arms = rollout[-len(memory.arms) :, first : first + streams * len(placed)]
    shares = arms.reshape(len(arms), streams, -1).sum(dim=1)
    return AttentionMap(
        points[placed].cpu().numpy().astype(np.float32),
        colours[placed].round().to(torch.uint8).cpu().numpy(),
        shares[:, placed].float().cpu().numpy(),
        tuple(memory.arms),
    )


@contextmanager
def _recorded(blocks: nn.Module) -> Iterator[list[Tensor]]:
    """Collects the weights (B, heads, N, N) of every attention below a module while it is called."""
    found: list[Tensor] = []

    def note(attention: PositionalAttention, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        found.append(attention.weights(given[0], given[1], present=named.get("present")))

    layers = [layer for layer in blocks.modules() if isinstance(layer, PositionalAttention)]
    handles = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in layers]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _patches(memory: ObservationEncoder, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Returns points (P, 3), colours (P, 3) and which have a place (P,) of all cameras' patches, as the tokens stand."""
    places = MetricPlaces()
    tokenise = memory.tokenise
    patch = tokenise.embedding.patch
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    for camera in tokenise.cameras:
        images, view = camera_view(batch, camera, places.reads)
        points, placed = places.patches(view, patch, 1, images.device)
        colours = nn.functional.avg_pool2d(images[0].permute(2, 0, 1).float(), patch).flatten(1).T
        found.append((points[0], colours, placed[0]))
    points, colours, placed = (torch.cat(parts) for parts in zip(*found, strict=True))
    return points, colours, placed
