"""Tokens with positions from the images of several cameras.

Images, geometry and presence of each camera are read from an observation. A token may have a
place finer than its patch: a learned mean of the places of its cells.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Camera
from stringline.encoders.coordinates.coordinates import (
    RAYS,
    Coordinates,
    MetricPlaces,
    RayPlaces,
    check_prior_depths,
    excludes_missing_depth,
    patches_with_spread,
    without_rays,
)
from stringline.encoders.coordinates.geometry import View
from stringline.encoders.positions.precision import without_autocast
from stringline.encoders.vision.patches import (
    ColourOnly,
    ConvolutionalStem,
    DepthInput,
    EmbeddingFactory,
    StreamFusion,
)


def check_camera(camera: Camera, patch: int, reads: Collection[str] = ()) -> None:
    """Raises a ValueError unless patches tile the images and the images are undistorted.

    With `RAYS` in `reads`, the camera must be calibrated.
    """
    if camera.height % patch or camera.width % patch:
        got = f"{camera.height}x{camera.width}"
        raise ValueError(
            f"Camera {camera.name!r} has {got} pixels; allowed: multiples of {patch}"
            f"{_nearest_size(camera, patch)}."
        )
    if RAYS in reads and not camera.has_geometry:
        raise ValueError(without_rays(f"Camera {camera.name!r}"))
    if camera.has_geometry and camera.distortion_model != "none":
        got = f"{camera.distortion_model!r} distortion"
        raise ValueError(f"Camera {camera.name!r} has {got}; undistort its images first.")


def _nearest_size(camera: Camera, patch: int) -> str:
    """Returns the words on the largest allowed size within the images, and on the way to it."""
    rows, columns = (side - side % patch for side in (camera.height, camera.width))
    if not rows or not columns:
        return ""
    return (
        f", such as {rows}x{columns}. To store recorded images at this size, import them with "
        f"image_size=[{rows},{columns}] image_fit=crop (or resize, or pad), or copy the store: "
        f"stringline-data cache store=STORE output=COPY height={rows} width={columns}"
    )


def camera_view(
    observation: Mapping[str, Tensor], camera: Camera, reads: Collection[str]
) -> tuple[Tensor, View]:
    """Returns the images (B, H, W, 3) of a camera in a batch of observations, and their view.

    `reads` are the needed kinds of keys: of `depth`, `intrinsics` and `T_base_camera`. Without
    depth in the contract, neither depth nor, except with `RAYS`, geometry is read.
    """
    images = read_key(observation, f"rgb/{camera.name}")
    if images.ndim != 4 or images.shape[-1] != 3:
        raise ValueError(
            f"rgb/{camera.name} has shape {tuple(images.shape)}; allowed: (B, H, W, 3)."
        )
    promised = {"depth"} if camera.depth is not None else set()
    if (promised or RAYS in reads) and camera.has_geometry:
        promised |= {"intrinsics", "T_base_camera"}
    known = {
        kind: read_key(observation, f"{kind}/{camera.name}")
        for kind in sorted(promised & set(reads))
    }
    try:
        return images, View(
            height=images.shape[1],
            width=images.shape[2],
            depth_unit_m=camera.depth_unit_m,
            name=camera.name,
            **known,
        )
    except ValueError as error:
        raise ValueError(f"Camera {camera.name!r}: {error}") from error


def resized(images: Tensor, view: View, size: tuple[int, int]) -> tuple[Tensor, View]:
    """Returns images (B, rows, columns, 3) of another size, and their view.

    Colours are averaged (bilinear, antialiased), depth is that of the pixel at the same place, and
    intrinsics fit the new size.
    """
    before = view.height, view.width
    if before == size:
        return images, view
    colours = nn.functional.interpolate(
        images.permute(0, 3, 1, 2).float(), size, mode="bilinear", antialias=True
    )
    depth, intrinsics = view.depth, view.intrinsics
    if depth is not None:
        rows, columns = (
            (2 * torch.arange(new, device=depth.device) + 1) * old // (2 * new)
            for new, old in zip(size, before, strict=True)
        )
        depth = depth[:, rows][:, :, columns]
    if intrinsics is not None:
        scale = [size[1] / before[1], size[0] / before[0], 1.0]
        intrinsics = intrinsics * intrinsics.new_tensor(scale)[:, None]
    made = replace(view, height=size[0], width=size[1], depth=depth, intrinsics=intrinsics)
    return colours.permute(0, 2, 3, 1), made


def presence(
    observation: Mapping[str, Tensor],
    camera: Camera,
    has_position: Tensor,
    coordinates: Coordinates | None = None,
    prefix: int = 0,
) -> tuple[Tensor, Tensor | None]:
    """Marks the tokens that do not exist: of a camera that an example lacks, and excluded ones.

    `present/<camera>` (B,) bool tells which examples have the camera; without that key all have it.
    Coordinates may exclude patches without a position (`MissingDepth`); then they do not exist
    where other patches of their image have one. An image without any placed patch, such as of a
    camera without depth, keeps all of its tokens.

    Args:
        observation: The batch.
        camera: The camera.
        has_position: (B, N) bool, which of its tokens have a position.
        coordinates: The coordinates of the tokens; if None, none are excluded.
        prefix: Number of tokens before the patches, which are never excluded.

    Returns:
        (B, N) bool, tokens that exist and have a position, and (B, N) bool, tokens that exist
        (None means all).
    """
    present = observation.get(f"present/{camera.name}")
    if present is not None:
        present = present[:, None].expand_as(has_position)
        has_position = has_position & present
    if coordinates is None or not excludes_missing_depth(coordinates):
        return has_position, present
    kept = has_position | ~has_position.any(dim=1, keepdim=True)
    if prefix:
        kept = nn.functional.pad(kept[:, prefix:], (prefix, 0), value=True)
    return has_position, kept if present is None else kept & present


def read_key(observation: Mapping[str, Tensor], key: str) -> Tensor:
    """Returns the value of a key of an observation; a ValueError names the nearest key."""
    if key not in observation:
        raise unknown_name("observation key", key, observation)
    return observation[key]


STARTING_HEIGHT_M = 0.02
_OFFSET_M = 0.1


class LearnedPlaces(nn.Module):
    """Puts each patch at the softmax-weighted mean of the places of its cells.

    A patch of an overhead camera covers 10 cm of a table, so its centre may be far from the object
    that it shows. The scores are those of a small perceptron of the features of a cell and of its
    offset from the mean place of the patch, plus a learned multiple of the height of that offset.
    They start with the height alone: a cell that is 2 cm higher than another has e times its
    weight. Cells without a position have none. Offsets do not depend on shifts, so invariances of
    the coordinates remain.
    """

    def __init__(self, channels: int, *, axes: int = 3, hidden: int = 16) -> None:
        """Builds the perceptron.

        Args:
            channels: Channels of the features of a cell.
            axes: Coordinates per place, in metres, the last one upwards.
            hidden: Width of the perceptron.
        """
        super().__init__()
        self.features = nn.Linear(channels, hidden)
        self.offset = nn.Linear(axes, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)  # A bias would cancel in the softmax.
        # In units of the starting height: steps of an optimiser do not follow large parameters.
        self.height = nn.Parameter(torch.tensor(1.0))
        nn.init.zeros_(self.score.weight)

    def forward(
        self, maps: Tensor, places: Tensor, known: Tensor, spread: Tensor | None, side: int
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns places (B, N, axes) of patches, their existence (B, N), and their spread.

        Args:
            maps: Features of cells, (B, channels, rows, columns).
            places: Their places, (B, rows columns, axes), row by row.
            known: (B, rows columns) bool, whether a cell has a position.
            spread: Standard deviation of their places, (B, rows columns, axes); if None, zero.
            side: Cells along a side of a patch.
        """
        size = maps.shape[2:]
        inside = _by_patch(known.unsqueeze(-1), size, side)
        cells = torch.where(inside, _by_patch(places, size, side), 0.0)
        middle = cells.sum(dim=2, keepdim=True) / inside.sum(dim=2, keepdim=True).clamp(min=1)
        features = _by_patch(maps.flatten(2).transpose(1, 2), size, side)
        with without_autocast(maps):
            scores = self._scores(features, torch.where(inside, cells - middle, 0.0))
            # Finite, so that a patch without any cell has neither NaN nor gradients.
            scores = scores.masked_fill(~inside, torch.finfo(scores.dtype).min)
            weights = torch.softmax(scores, dim=2).to(cells.dtype)
        spread = None if spread is None else (weights * _by_patch(spread, size, side)).sum(dim=2)
        return (weights * cells).sum(dim=2), inside.any(dim=2).squeeze(-1), spread

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay."""
        return {"height"}

    def _scores(self, features: Tensor, offsets: Tensor) -> Tensor:
        """Returns the scores (B, N, cells, 1) of cells with offsets (B, N, cells, axes), metres."""
        kind = self.score.weight.dtype
        near = offsets.to(kind)
        seen = self.features(features.to(kind))
        scores: Tensor = self.score(nn.functional.gelu(seen + self.offset(near / _OFFSET_M)))
        return scores + self.height * near[..., -1:] / STARTING_HEIGHT_M


def _by_patch(cells: Tensor, size: torch.Size, side: int) -> Tensor:
    """Returns values of cells (B, rows columns, C) as (B, patches, cells of a patch, C)."""
    rows, columns = size
    split = cells.reshape(len(cells), rows // side, side, columns // side, side, -1)
    return split.transpose(2, 3).flatten(3, 4).flatten(1, 2)


@dataclass(frozen=True)
class Tokens:
    """Tokens and their positions.

    Attributes:
        features: (B, N, dim).
        coordinates: (B, N, axes), in the unit of the chosen coordinates.
        has_position: (B, N) bool, False for tokens without a position.
        present: (B, N) bool, False for tokens of cameras that an example lacks and for patches that
            are excluded (`MissingDepth`); if None, all exist.
        spread: (B, N, axes), standard deviation of the places as a vector, in the same unit; if
            None, all places are exact.
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
    """Returns which tokens of concatenated parts exist, (B, N) bool; None means all.

    Each part is a tensor (B, n, ...) of tokens, and (B, n) bool, which of them exist (if None,
    all).
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
    """Returns the spread of the places of concatenated parts, (B, N, axes); None means zero.

    Each part is the coordinates (B, n, axes) of tokens and their spread (if None, zero).
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
            depth: Depth as an input of the network; if None, `ColourOnly()`.
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
