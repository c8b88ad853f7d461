"""Attention of a policy's arms over the patches of all cameras, as points in space."""

from collections.abc import Iterator, Mapping
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
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.observation.observation_encoder import ObservationEncoder


@dataclass(frozen=True)
class AttentionMap:
    """Patches that have a position, with colours and the attention of each arm.

    Attributes:
        points: (P, 3), metres in the base frame.
        colours: (P, 3) uint8, mean colour of the patch.
        weights: (arms, P), share of each arm's attention; the rest is on other tokens.
        arms: Names of the arms.
        images: (arms, rows, columns) by camera: the share of each patch, also of those without a
            position.
    """

    points: NDArray[np.float32]
    colours: NDArray[np.uint8]
    weights: NDArray[np.float32]
    arms: tuple[str, ...]
    images: Mapping[str, NDArray[np.float32]]


@torch.inference_mode()
def attention_map(policy: ChunkPolicy, observation: Observation) -> AttentionMap:
    """Traces the attention of the arms' tokens of an `ObservationEncoder` back to the patches.

    Attention rollout (Abnar and Zuidema, 2020, arXiv 2005.00928): the product over all blocks of (A
    + I) / 2, A the mean over the heads, which includes what tokens have gathered in earlier blocks.
    It shows where information can come from, not its use.
    """
    encoder = policy.observation_encoder
    device = next(policy.parameters()).device
    if not isinstance(encoder, ObservationEncoder):
        got = type(encoder).__name__
        raise ValueError(
            f"The observation encoder of this policy is a {got}; allowed: ObservationEncoder, "
            f"whose attention can be traced."
        )
    batch = policy.observed(observation)
    with _recorded(encoder.blocks) as blocks:
        encoder(batch)
    rollout: Tensor | None = None
    for weights in blocks:
        mixed = (weights.mean(dim=1)[0] + torch.eye(weights.shape[-1], device=device)) / 2
        rollout = mixed if rollout is None else mixed @ rollout
    assert rollout is not None
    points, colours, has_position, sizes = _patches(encoder, batch)
    streams = encoder.tokenise.fusion.streams
    first = 0 if encoder.blocks.registers is None else len(encoder.blocks.registers)
    arms = rollout[-len(encoder.arms) :, first : first + streams * len(has_position)]
    shares = arms.reshape(len(arms), streams, -1).sum(dim=1)
    return AttentionMap(
        points[has_position].cpu().numpy().astype(np.float32),
        colours[has_position].round().to(torch.uint8).cpu().numpy(),
        shares[:, has_position].float().cpu().numpy(),
        tuple(encoder.arms),
        _images(sizes, encoder.tokenise.prefix, shares),
    )


@contextmanager
def _recorded(blocks: nn.Module) -> Iterator[list[Tensor]]:
    """Records the weights (B, heads, N, N) of every attention of a module while it is called."""
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


def _images(
    sizes: Mapping[str, tuple[int, int]], prefix: int, shares: Tensor
) -> dict[str, NDArray[np.float32]]:
    """Returns the shares (arms, P) as images by camera, given their rows and columns."""
    found: dict[str, NDArray[np.float32]] = {}
    first = 0
    for camera, (rows, columns) in sizes.items():
        first += prefix
        image = shares[:, first : first + rows * columns].reshape(-1, rows, columns)
        found[camera] = image.float().cpu().numpy()
        first += rows * columns
    return found


def _patches(
    encoder: ObservationEncoder, batch: dict[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor, dict[str, tuple[int, int]]]:
    """Returns points (P, 3), colours (P, 3) and existence of positions (P,) of all patches.

    The last item is the number of rows and columns of patches by camera.
    """
    places = MetricPlaces()
    tokenise = encoder.tokenise
    patch = tokenise.patch
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    sizes: dict[str, tuple[int, int]] = {}
    for camera in tokenise.cameras:
        images, view = tokenise.view(batch, camera, places.reads)
        points, has_position = places.patches(view, patch, 1, images.device)
        colours = nn.functional.avg_pool2d(images[0].permute(2, 0, 1).float(), patch).flatten(1).T
        sizes[camera.name] = (images.shape[1] // patch, images.shape[2] // patch)
        first = (0, 0, tokenise.prefix, 0)
        found.append(
            (
                nn.functional.pad(points[0], first),
                nn.functional.pad(colours, first),
                nn.functional.pad(has_position[0], first[2:], value=False),
            )
        )
    points, colours, has_position = (torch.cat(parts) for parts in zip(*found, strict=True))
    return points, colours, has_position, sizes
