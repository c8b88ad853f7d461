"""Tokens with positions from the images of several cameras."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from stringline.datasets.contract.contract import Camera
from stringline.encoders.coordinates.coordinates import Coordinates, MetricPlaces
from stringline.encoders.coordinates.geometry import View
from stringline.encoders.coordinates.ray_places import (
    RayPlaces,
    check_prior_depths,
    patches_with_spread,
)
from stringline.encoders.vision.camera_views import camera_view, check_camera, presence
from stringline.encoders.vision.depth_inputs import ColourOnly, DepthInput, StreamFusion
from stringline.encoders.vision.learned_places import LearnedPlaces
from stringline.encoders.vision.patches import ConvolutionalStem, EmbeddingFactory


@dataclass(frozen=True)
class Tokens:
    """Tokens and their positions.

    Attributes:
        features: (B, N, dim).
        coordinates: (B, N, axes), in the unit of the chosen coordinates.
        has_position: (B, N) bool, False for tokens without a position.
        present: (B, N) bool, False for tokens of cameras that an example lacks and for patches that
            are excluded (`MissingDepth`); None: all exist.
        spread: (B, N, axes), standard deviation of the places as a vector, in the same unit; None:
            all places are exact.
    """

    features: Tensor
    coordinates: Tensor
    has_position: Tensor
    present: Tensor | None = None
    spread: Tensor | None = None

    def __add__(self, other: "Tokens") -> "Tokens":
        """Returns the tokens of both, these first."""
        return Tokens(
            torch.cat((self.features, other.features.to(self.features.dtype)), dim=1),
            torch.cat((self.coordinates, other.coordinates.to(self.coordinates.dtype)), dim=1),
            torch.cat((self.has_position, other.has_position), dim=1),
            joined_presence([(part.has_position, part.present) for part in (self, other)]),
            joined_spread([(part.coordinates, part.spread) for part in (self, other)]),
        )


def joined_presence(parts: Sequence[tuple[Tensor, Tensor | None]]) -> Tensor | None:
    """Returns which tokens of concatenated parts exist, (B, N) bool; None: all.

    Each part is a tensor (B, n, ...) of tokens, and (B, n) bool, which of them exist (None: all).
    """
    if all(present is None for _, present in parts):
        return None
    known = [
        torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
        if present is None
        else present
        for tokens, present in parts
    ]
    return torch.cat(known, dim=1)


def joined_spread(parts: Sequence[tuple[Tensor, Tensor | None]]) -> Tensor | None:
    """Returns the spread of the places of concatenated parts, (B, N, axes); None: zero.

    Each part is the coordinates (B, n, axes) of tokens and their spread (None: zero).
    """
    if all(spread is None for _, spread in parts):
        return None
    known = [torch.zeros_like(here) if spread is None else spread for here, spread in parts]
    return torch.cat(known, dim=1)


class ImageTokens(Protocol):
    """Converts the cameras of an observation into tokens with positions; a `torch.nn.Module`.

    Attributes:
        cameras: The cameras that it reads.
        coordinates: Coordinates of the tokens.
        fusion: Joins the tokens of several streams.
        patch: Side of a patch, pixels of the images of `view`.
        prefix: Number of tokens of each camera before its patches, without a position.
    """

    cameras: tuple[Camera, ...]
    coordinates: Coordinates
    fusion: StreamFusion
    patch: int
    prefix: int

    def __call__(self, observation: Mapping[str, Tensor]) -> Tokens:
        """Encodes a batch; the tokens of all cameras, camera by camera, stream by stream."""
        ...

    def view(
        self, observation: Mapping[str, Tensor], camera: Camera, reads: Collection[str]
    ) -> tuple[Tensor, View]:
        """Returns images of a camera (B, H, W, 3) as the network gets them, and their view."""
        ...


ImageTokensFactory = Callable[..., ImageTokens]
"""Makes image tokens, given the cameras, and `coordinates`, `encoding` and `dim` by name."""


class RgbdTokens(nn.Module):
    """Converts the cameras of an observation into tokens with positions."""

    prefix = 0

    def __init__(
        self,
        cameras: Sequence[Camera],
        coordinates: Coordinates,
        dim: int = 128,
        *,
        depth: DepthInput | None = None,
        embedding: EmbeddingFactory = ConvolutionalStem,
        learned_places: bool = False,
    ) -> None:
        """Builds the embedding.

        Args:
            cameras: The cameras to read, in this order.
            coordinates: The coordinates of the tokens.
            dim: Channels of the tokens.
            depth: Depth as an input of the network; None: `ColourOnly()`.
            embedding: Factory of the patch embedding, the same for all cameras.
            learned_places: Whether patches are at a learned mean of their cells, see
                `LearnedPlaces`.

        Raises:
            ValueError: A camera does not fit, or learned places lack cells or metric coordinates.
        """
        super().__init__()
        self.cameras = tuple(cameras)
        self.coordinates = coordinates
        self.depth = ColourOnly() if depth is None else depth
        self.embedding = embedding(dim, channels=self.depth.channels)
        self.patch: int = self.embedding.patch
        for camera in self.cameras:
            check_camera(camera, self.patch, coordinates.reads)
        check_prior_depths(coordinates, [camera.name for camera in self.cameras])
        self.camera_mark = nn.Parameter(
            0.02 * torch.randn(len(self.cameras), dim, generator=torch.Generator().manual_seed(0))
        )
        self.learned = self._learned_places() if learned_places else None
        self.fusion = StreamFusion(dim, self.depth.streams)
        if self.depth.streams > 1:  # Tokens of the first stream have no mark.
            marks = torch.randn(
                self.depth.streams - 1, dim, generator=torch.Generator().manual_seed(1)
            )
            self.stream_mark = nn.Parameter(0.02 * marks)

    def forward(self, observation: Mapping[str, Tensor]) -> Tokens:
        """Encodes a batch of observations.

        Args:
            observation: Keys of the contract (`rgb/<camera>`, `depth/<camera>`,
                `intrinsics/<camera>`, `T_base_camera/<camera>`), each with a leading batch axis.
                Only `rgb` is read of cameras without depth in the contract (with `RayPlaces` also
                geometry), and if neither coordinates nor network use depth. Images may have another
                size than in the contract, if depth and intrinsics have the same size.
                `present/<camera>` (B,) bool marks the examples that have a camera; without that key
                all have it. The images of others have no effect.

        Returns:
            The tokens of all cameras, camera by camera; with several streams those of the first
            stream, then those of the next at the same positions.
        """
        parts = [
            self._camera(observation, camera, mark)
            for camera, mark in zip(self.cameras, self.camera_mark, strict=True)
        ]
        features = torch.cat([each.features for each in parts], dim=2)
        streams = len(features)
        present = joined_presence([(each.has_position, each.present) for each in parts])
        spread = joined_spread([(each.coordinates, each.spread) for each in parts])
        return Tokens(
            self._marked(features).transpose(0, 1).flatten(1, 2),
            torch.cat([each.coordinates for each in parts], dim=1).repeat(1, streams, 1),
            torch.cat([each.has_position for each in parts], dim=1).repeat(1, streams),
            None if present is None else present.repeat(1, streams),
            None if spread is None else spread.repeat(1, streams, 1),
        )

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay."""
        own = {"camera_mark"} | ({"stream_mark"} if self.depth.streams > 1 else set())
        return own if self.learned is None else own | {"learned.height"}

    def view(
        self, observation: Mapping[str, Tensor], camera: Camera, reads: Collection[str]
    ) -> tuple[Tensor, View]:
        """Returns the images of a camera, and their view."""
        return camera_view(observation, camera, reads)

    def _learned_places(self) -> LearnedPlaces:
        """Builds the choice of places within patches."""
        places = self.coordinates
        if self.embedding.cell is None or not isinstance(places, MetricPlaces | RayPlaces):
            raise ValueError(
                f"learned_places got {type(self.embedding).__name__} and {type(places).__name__}; "
                f"allowed: ConvolutionalStem, and MetricPlaces or RayPlaces."
            )
        return LearnedPlaces(self.embedding.cell_channels, axes=places.axes)

    def _camera(self, observation: Mapping[str, Tensor], camera: Camera, mark: Tensor) -> Tokens:
        """Returns the tokens of a camera, with features (streams, B, N, dim)."""
        images, view = camera_view(observation, camera, self.coordinates.reads | self.depth.reads)
        # Eight bits: exact in bfloat16.
        colours = images.to(_activation_type(self.camera_mark)) * (1 / 64) - 2
        seen: tuple[Tensor, ...] = self.depth(colours, view)
        # All streams share the weights.
        features, coordinates, has_position, spread = self._placed(torch.cat(seen), view)
        features = (features + mark).reshape(len(seen), -1, *features.shape[1:])
        has_position, present = presence(observation, camera, has_position, self.coordinates)
        return Tokens(features, coordinates, has_position, present, spread)

    def _placed(self, seen: Tensor, view: View) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Returns features of the images of all streams, and places, existence and spread."""
        patch = self.patch
        batch = len(seen) // self.depth.streams
        if self.learned is None or self.embedding.cell is None:
            found = patches_with_spread(self.coordinates, view, patch, batch, seen.device)
            return self.embedding(seen), *found
        features, cells = self.embedding.with_cells(seen)
        size = self.embedding.cell
        of_cells = patches_with_spread(self.coordinates, view, size, batch, seen.device)
        return features, *self.learned(cells[:batch], *of_cells, patch // size)

    def _marked(self, features: Tensor) -> Tensor:
        """Adds the learned marks to the streams after the first of (streams, B, N, dim)."""
        if len(features) == 1:
            return features
        return torch.cat((features[:1], features[1:] + self.stream_mark[:, None, None]))


def _activation_type(parameter: Tensor) -> torch.dtype:
    kind = parameter.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else parameter.dtype
