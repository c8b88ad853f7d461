"""Studies of a trained network: other resolutions, shuffled patches, offsets and orders of frames.

They change the input at test time only; nothing is trained.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import COUNT, NOT_NEGATIVE, WHOLE
from stringline.encoders.perception.image_contract import CAMERA
from stringline.encoders.perception.perception_network import (
    Examples,
    Measurement,
    PerceptionNetwork,
    Row,
)
from stringline.encoders.vision.rgbd import Tokens

Change = Callable[[Tokens], Tokens]
Orders = Callable[[int], np.ndarray[Any, Any]]
"""Draws the orders of the frames (B, T) of B clips."""


class Study(ABC):
    """A measurement of a trained network on changed inputs."""

    @abstractmethod
    def measure(self, network: PerceptionNetwork, examples: Examples) -> list[Row]:
        """Returns a row per setting: `setting`, the measures, and `changed`.

        `changed` is the share of images any of whose values differs from that of unchanged inputs.
        """


class ResolutionTransfer(Study):
    """Images of other sizes than in training (ComRoPE, Yu et al., 2025, table 1)."""

    def __init__(self, sizes: Sequence[int]) -> None:
        """Sets the sizes.

        Args:
            sizes: Pixels a side, multiples of the patch and at most those of the stored images.
        """
        COUNT.check(**{f"sizes.{number}": size for number, size in enumerate(sizes)})
        self.sizes = tuple(sizes)

    def measure(self, network: PerceptionNetwork, examples: Examples) -> list[Row]:
        """Returns a row per size; see `Study.measure`.

        Raises:
            ValueError: A size exceeds the stored images, or is not a multiple of the patch.
        """
        stored = min(min(labelled.rgb.shape[-3:-1]) for labelled in examples)
        if max(self.sizes) > stored:
            raise ValueError(
                f"sizes is {list(self.sizes)}; allowed: up to {stored}, the side of the smallest "
                f"stored image."
            )
        usual = network.measure(examples)
        return [
            _row(f"{size} px", network.measure(self._resized(examples, size)), usual)
            for size in self.sizes
        ]

    def _resized(self, examples: Examples, size: int) -> Examples:
        return replace(examples, contract=examples.contract.resized(size, size))


class PatchShuffling(Study):
    """Patches permuted among the places of their image (LieRE, Ostmeier et al., 2025, table 4).

    Each draw has another permutation, the same for all images. Without an encoding nothing changes,
    if each token sees its own patch only (`PatchProjection`).
    """

    def __init__(self, permutations: int = 5, seed: int = 0) -> None:
        """Sets the permutations.

        Args:
            permutations: Number of permutations.
            seed: Seed of the permutations.
        """
        COUNT.check(permutations=permutations)
        WHOLE.check(seed=seed)
        self.permutations = permutations
        self.seed = seed

    def measure(self, network: PerceptionNetwork, examples: Examples) -> list[Row]:
        """Returns a row per permutation; see `Study.measure`."""
        usual = network.measure(examples)
        rows = []
        for draw in range(self.permutations):
            with changed_tokens(network, shuffled(self.seed + draw)):
                rows.append(_row(f"permutation {draw}", network.measure(examples), usual))
        return rows


class CoordinateOffset(Study):
    """One random offset per image, added to all coordinates (ComRoPE, section 4.3.1)."""

    def __init__(self, deviations: Sequence[float], seed: int = 0) -> None:
        """Sets the offsets.

        Args:
            deviations: Standard deviations of the offsets, in the unit of the coordinates.
            seed: Seed of the offsets.
        """
        NOT_NEGATIVE.check(**{f"deviations.{n}": each for n, each in enumerate(deviations)})
        WHOLE.check(seed=seed)
        self.deviations = tuple(deviations)
        self.seed = seed

    def measure(self, network: PerceptionNetwork, examples: Examples) -> list[Row]:
        """Returns a row per deviation; see `Study.measure`."""
        usual = network.measure(examples)
        rows = []
        for deviation in self.deviations:
            with changed_tokens(network, moved(deviation, self.seed)):
                rows.append(_row(f"{deviation:g}", network.measure(examples), usual))
        return rows


class FrameOrder(Study):
    """Clips played backwards, with shuffled frames, and with one frame in place of all.

    Each clip has a permutation of its own. As an order is as probable as its reverse, a network
    that answers the opposite to a reversed clip is then right within half of the pairs.
    """

    def __init__(self, seed: int = 0) -> None:
        """Sets the seed.

        Args:
            seed: Seed of the permutations.
        """
        WHOLE.check(seed=seed)
        self.seed = seed

    def measure(self, network: PerceptionNetwork, examples: Examples) -> list[Row]:
        """Returns a row per order; see `Study.measure`.

        Raises:
            ValueError: The images are no clips.
        """
        frames = examples.contract.frames
        if frames == 1:
            raise ValueError("FrameOrder got images; allowed: clips.")
        usual = network.measure(examples)
        generator = np.random.default_rng(self.seed)
        orders: dict[str, Orders] = {
            "reversed": lambda clips: np.tile(np.arange(frames)[::-1], (clips, 1)),
            "shuffled": lambda clips: generator.permuted(
                np.tile(np.arange(frames), (clips, 1)), axis=1
            ),
            "first frame": lambda clips: np.zeros((clips, frames), np.int64),
            "middle frame": lambda clips: np.full((clips, frames), frames // 2),
        }
        return [
            _row(name, network.measure(replace(examples, prepare=_ordered(drawn))), usual)
            for name, drawn in orders.items()
        ]


@contextmanager
def changed_tokens(network: PerceptionNetwork, change: Change) -> Iterator[None]:
    """Changes the tokens of each image of a network before its blocks, within a block."""

    def changed(module: nn.Module, given: object, tokens: Tokens) -> Tokens:
        return change(tokens)

    handle = network.image_encoder.tubelets.register_forward_hook(changed)
    try:
        yield
    finally:
        handle.remove()


def shuffled(seed: int) -> Change:
    """Returns the change that permutes the features of the tokens of each image; places stay."""

    def change(tokens: Tokens) -> Tokens:
        order = torch.randperm(
            tokens.features.shape[1], generator=torch.Generator().manual_seed(seed)
        )
        return replace(tokens, features=tokens.features[:, order.to(tokens.features.device)])

    return change


def moved(deviation: float, seed: int) -> Change:
    """Returns the change that adds N(0, deviation^2) to the coordinates, one draw per image."""
    generator = torch.Generator().manual_seed(seed)

    def change(tokens: Tokens) -> Tokens:
        place = tokens.coordinates
        offset = torch.randn(len(place), 1, place.shape[-1], generator=generator)
        return replace(tokens, coordinates=place + deviation * offset.to(place))

    return change


def _ordered(drawn: Orders) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    def prepare(batch: dict[str, Tensor]) -> dict[str, Tensor]:
        seen = {key: value for key, value in batch.items() if key.endswith(f"/{CAMERA}")}
        clips = len(next(iter(seen.values())))
        order = torch.as_tensor(drawn(clips).copy())
        return batch | {key: _taken(value, order.to(value.device)) for key, value in seen.items()}

    return prepare


def _taken(frames: Tensor, order: Tensor) -> Tensor:
    """Returns frames (B, T, ...) in other orders (B, T)."""
    # Torch cannot index uint16; int16 has the same bits.
    signed = frames.view(torch.int16) if frames.dtype == torch.uint16 else frames
    clip = torch.arange(len(order), device=order.device)[:, None]
    return signed[clip, order].view(frames.dtype)


def _row(setting: str, found: Measurement, usual: Measurement) -> Row:
    differs = np.zeros(len(next(iter(usual.each.values()), ())), bool)
    for name, known in usual.each.items():
        differs |= np.asarray(known) != np.asarray(found.each[name])
    return {"setting": setting, **found.values, "changed": float(differs.mean())}
