"""Augmentation of training batches on the device of the model: images, depth and intrinsics.

`datasets/augmentation` is the only folder of `datasets` that imports torch.

Colour and lighting change by an affine map of colours per example. Textures on the segments of an
image stand for other backgrounds and other surfaces of objects.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from stringline.datasets.contract.argument_checks import Range
from stringline.datasets.contract.contract import FIRST_FOREGROUND_SEGMENT, Camera
from stringline.datasets.contract.distributions import Distribution, Drawn, distribution

Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class CameraBatch:
    """The images of one camera in B examples.

    Attributes:
        rgb: (B, H, W, 3) uint8.
        depth: (B, H, W) counts of `depth_unit_m`, 0 = no return; None without depth.
        depth_unit_m: Metres per count.
        intrinsics: (B, 3, 3) pixels; pixel (0, 0) has its centre at (0.5, 0.5). None if unknown.
        segments: (B, H, W) uint8, see `segmentation/<camera>` in the contract. None if unknown.
    """

    rgb: Tensor
    depth: Tensor | None = None
    depth_unit_m: float = 0.001
    intrinsics: Tensor | None = None
    segments: Tensor | None = None


KEYS = {"rgb": "rgb", "depth": "depth", "intrinsics": "intrinsics", "segments": "segmentation"}
"""The kind of key of the contract by attribute of `CameraBatch`."""


class Transform(nn.Module, ABC):
    """A random change of images, drawn independently for each example.

    Attributes:
        reads_segments: Whether segments of the images are needed, as far as they are known.
        moves_pixels: Whether something seen gets another place in the image, or leaves it.
    """

    reads_segments = False
    moves_pixels = False

    @abstractmethod
    def forward(
        self, views: Mapping[str, CameraBatch], generator: torch.Generator
    ) -> dict[str, CameraBatch]:
        """Returns changed images of the same sizes and types; the input stays unchanged.

        Args:
            views: Images of the same B examples by name of the camera.
            generator: Random generator on the device of the images.
        """


class Augmentation(nn.Module):
    """Applies transforms to all cameras of a batch; the other keys stay unchanged."""

    def __init__(self, transforms: Sequence[Transform] = ()) -> None:
        """Sets the transforms.

        Args:
            transforms: Applied in this order, with new random numbers for each example; models of
                sensors come before changes of their images. Empty: images stay as they are
                recorded.
        """
        super().__init__()
        self.transforms = nn.ModuleList(transforms)

    @property
    def reads_segments(self) -> bool:
        """Whether a transform needs `segmentation/<camera>` in the batch."""
        return any(bool(transform.reads_segments) for transform in self.transforms)

    @property
    def moves_pixels(self) -> bool:
        """Whether a transform moves pixels, so that boxes in the image no longer hold."""
        return any(bool(transform.moves_pixels) for transform in self.transforms)

    def forward(
        self, batch: Batch, cameras: Sequence[Camera], generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Returns the augmented batch.

        Args:
            batch: Keys of the contract with a leading batch axis, on one device.
            cameras: Cameras of the contract; those with images in the batch are changed.
            generator: Random generator on the same device.
        """
        views = {
            camera.name: _view(batch, camera) for camera in cameras if f"rgb/{camera.name}" in batch
        }
        for transform in self.transforms:
            views = transform(views, generator)
        changed = dict(batch)
        for name, view in views.items():
            for attribute, kind in KEYS.items():
                if (value := getattr(view, attribute)) is not None:
                    changed[f"{kind}/{name}"] = value
        return changed


def _view(batch: Batch, camera: Camera) -> CameraBatch:
    read = {
        attribute: batch.get(f"{kind}/{camera.name}")
        for attribute, kind in KEYS.items()
        if attribute != "rgb"
    }
    return CameraBatch(rgb=batch[f"rgb/{camera.name}"], depth_unit_m=camera.depth_unit_m, **read)


def uniform(low: float, high: float, count: int, generator: torch.Generator) -> Tensor:
    """Draws uniform float32 numbers (count,) from a range."""
    drawn = torch.rand(count, generator=generator, device=generator.device)
    return low + (high - low) * drawn


def draw(setting: Distribution[float], count: int, generator: torch.Generator) -> Tensor:
    """Draws float32 numbers (count,); a fixed value takes as many random numbers as a range."""
    if setting.between:
        low, high = setting.values
        return uniform(low, high, count, generator)
    values = torch.tensor(setting.values).to(generator.device, non_blocking=True)
    place = uniform(0, len(values), count, generator).long()
    return values[place.clamp(max=len(values) - 1)]


SHARES = Range(least=0, most=1)
FACTORS = Range(least=0, most=4)
GREY = (0.299, 0.587, 0.114)  # ITU-R BT.601, as in JPEG and most implementations of colour jitter.
_YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))


class LightAugmentation(Transform):
    """Changes brightness, contrast, saturation, hue, camera gains, and the direction of light.

    All except the direction of light are one affine map of sRGB values. Hue rotates the colour
    plane of YIQ. All cameras of an example share the changes, as they share the light in a room,
    except the gains.
    """

    def __init__(
        self,
        *,
        brightness: Drawn = (0.8, 1.2),
        contrast: Drawn = (0.8, 1.2),
        saturation: Drawn = (0.7, 1.3),
        hue_deg: Drawn = (-10.0, 10.0),
        gain: Drawn = (0.95, 1.05),
        falloff: Drawn = (0.0, 0.2),
    ) -> None:
        """Sets the ranges.

        Args:
            brightness: Factor of all colour values; within 0 and 4.
            contrast: Factor of the difference from the mean grey of the image; within 0 and 4.
            saturation: Factor of the difference of a colour from its grey; within 0 and 4.
            hue_deg: Rotation of the hue, -180 to 180 degrees.
            gain: Factor of each colour channel of each camera (exposure, white balance); within 0
                and 4.
            falloff: Relative brightness of one side of the image above its middle, 0 to 1, in a
                random direction.
        """
        super().__init__()
        self.brightness = distribution("brightness", brightness, FACTORS)
        self.contrast = distribution("contrast", contrast, FACTORS)
        self.saturation = distribution("saturation", saturation, FACTORS)
        self.hue_deg = distribution("hue_deg", hue_deg, Range(least=-180, most=180))
        self.gain = distribution("gain", gain, FACTORS)
        self.falloff = distribution("falloff", falloff, SHARES)

    def forward(
        self, views: Mapping[str, CameraBatch], generator: torch.Generator
    ) -> dict[str, CameraBatch]:
        """Changes colours and light; see `Transform`."""
        if not views:
            return {}
        batch = len(next(iter(views.values())).rgb)
        colour = self._colour(batch, generator)
        contrast = draw(self.contrast, batch, generator)
        angle = uniform(0, 2 * torch.pi, batch, generator)
        strength = draw(self.falloff, batch, generator)
        slope = (
            strength[:, None] * torch.stack((angle.cos(), angle.sin()), dim=-1)
            if self.falloff.highest
            else None
        )
        changed = {}
        for name, view in views.items():
            gain = draw(self.gain, 3 * batch, generator).reshape(batch, 3)
            changed[name] = replace(
                view, rgb=relight(view.rgb, gain[:, :, None] * colour, contrast, slope)
            )
        return changed

    def _colour(self, batch: int, generator: torch.Generator) -> Tensor:
        """Returns (B, 3, 3): brightness, saturation and hue as one matrix of colours."""
        brightness = draw(self.brightness, batch, generator)
        saturation = draw(self.saturation, batch, generator)
        turn = torch.deg2rad(draw(self.hue_deg, batch, generator))
        inner = torch.zeros(batch, 3, 3, device=generator.device)
        inner[:, 0, 0] = 1
        inner[:, 1, 1] = inner[:, 2, 2] = saturation * turn.cos()
        inner[:, 2, 1] = saturation * turn.sin()
        inner[:, 1, 2] = -inner[:, 2, 1]
        yiq = torch.tensor(_YIQ).to(generator.device, non_blocking=True)
        matrix: Tensor = torch.linalg.inv(yiq) @ inner @ yiq
        return brightness[:, None, None] * matrix


def relight(
    images: Tensor, colour: Tensor, contrast: Tensor, slope: Tensor | None = None
) -> Tensor:
    """Applies a colour matrix, then contrast about the mean grey, then a gradient of light.

    Args:
        images: (B, H, W, 3) uint8.
        colour: (B, 3, 3) matrices of sRGB values.
        contrast: (B,).
        slope: (B, 2), relative increase of the light from the middle to the right and to the lower
            edge; None for uniform light.

    Returns:
        (B, H, W, 3), clipped to 0 and 255 and rounded.
    """
    batch, height, width = images.shape[:3]
    mean = images.flatten(1, 2).float().mean(dim=1)
    grey = (colour @ mean.unsqueeze(-1)).squeeze(-1) @ mean.new_tensor(GREY)
    matrix = contrast[:, None, None] * colour
    offset = ((1 - contrast) * grey)[:, None, None]
    changed = torch.baddbmm(offset, images.flatten(1, 2).float(), matrix.mT).reshape(images.shape)
    if slope is not None:
        across, down = (
            2 * (torch.arange(size, device=slope.device) + 0.5) / size - 1
            for size in (width, height)
        )
        light = 1 + slope[:, 0, None, None] * across + slope[:, 1, None, None] * down[:, None]
        changed *= light.reshape(batch, height, width, 1)
    return changed.round_().clamp_(0, 255).to(images.dtype)


SEGMENTS = 256
# Sides of the random grids that bend a pattern, and grain it.
_WARP_CELLS = 5
_GRAIN_CELLS = 48
_GRAIN = 18.0  # Largest usual change of a colour by grain, of 255.


class TextureOverlay(Transform):
    """Blends random textures into the segments of images; depth, labels and shapes stay.

    Each texture is a wave between two random colours, sin(2 pi (f . p + w n(p))) with a random
    frequency f, a smooth noise n of weight w, and a random sharpness: stripes, veins, clouds or
    patches. The cameras of an example share colours and patterns of each segment, as they share the
    room. Images without segments stay unchanged.
    """

    reads_segments = True

    def __init__(
        self,
        *,
        background: float = 0.5,
        background_opacity: Drawn = (0.7, 1.0),
        others: float = 0.3,
        other_opacity: Drawn = (0.1, 0.5),
        length: Drawn = (0.05, 0.6),
    ) -> None:
        """Sets the probabilities and ranges.

        Args:
            background: Probability that the room or the table of an example gets a texture, drawn
                for each of the two, 0 to 1.
            background_opacity: Weight of these textures in the image; within 0 and 1, 1 replaces
                the background.
            others: Probability that an arm or an object gets a texture, drawn for each, 0 to 1.
            other_opacity: Weight of these textures in the image; within 0 and 1.
            length: Length of the waves of textures as a share of the image's height; within 0.02
                and 10.

        Raises:
            ValueError: A setting is out of range.
        """
        super().__init__()
        SHARES.check(background=background, others=others)
        self.background = background
        self.background_opacity = distribution("background_opacity", background_opacity, SHARES)
        self.others = others
        self.other_opacity = distribution("other_opacity", other_opacity, SHARES)
        self.length = distribution("length", length, Range(least=0.02, most=10))

    def forward(
        self, views: Mapping[str, CameraBatch], generator: torch.Generator
    ) -> dict[str, CameraBatch]:
        """Changes images with segments; see `Transform`."""
        if not views:
            return {}
        textures = self._textures(len(next(iter(views.values())).rgb), generator)
        return {
            name: view
            if view.segments is None
            else replace(view, rgb=_overlaid(view.rgb, view.segments, textures, generator))
            for name, view in views.items()
        }

    def _textures(self, batch: int, generator: torch.Generator) -> Tensor:
        """Draws the texture of each segment.

        Returns (B, 256, 12): the frequency across and down in waves per height of the image, phase,
        weight of the noise, sharpness, a colour (3) and the difference to another one (3), opacity.
        """

        def drawn(low: float, high: float) -> Tensor:
            return uniform(low, high, batch * SEGMENTS, generator).reshape(batch, SEGMENTS)

        def each(setting: Distribution[float]) -> Tensor:
            return draw(setting, batch * SEGMENTS, generator).reshape(batch, SEGMENTS)

        turn = drawn(0, math.pi)
        frequency = each(self.length.mapped(lambda length: math.log(1 / length))).exp()
        colours = torch.stack([drawn(0, 255) for _ in range(6)], dim=-1)
        opacity = torch.where(
            drawn(0, 1) < self.others, each(self.other_opacity), torch.zeros_like(turn)
        )
        front = FIRST_FOREGROUND_SEGMENT
        replaced = drawn(0, 1)[:, :front] < self.background
        opacity[:, :front] = each(self.background_opacity)[:, :front] * replaced
        pattern = (
            frequency * turn.cos(),
            frequency * turn.sin(),
            drawn(0, 1),
            drawn(0, 1.5),
            drawn(0, math.log(8)).exp(),
        )
        return torch.cat(
            (
                torch.stack(pattern, dim=-1),
                colours[..., :3],
                colours[..., 3:] - colours[..., :3],
                opacity[..., None],
            ),
            dim=-1,
        )


def _overlaid(
    images: Tensor, segments: Tensor, textures: Tensor, generator: torch.Generator
) -> Tensor:
    """Blends textures (B, 256, 12) into images (B, H, W, 3) by their segments (B, H, W)."""
    batch, height, width = segments.shape
    index = segments.int() + SEGMENTS * torch.arange(
        batch, dtype=torch.int32, device=segments.device
    ).reshape(-1, 1, 1)
    # One plane (B, H, W) for each of the 12 numbers: neighbours in memory belong together.
    tables = textures.flatten(0, 1).T.contiguous()
    planes = (table.index_select(0, index.flatten()).reshape(segments.shape) for table in tables)
    across, down, wave, warp, sharp = itertools.islice(planes, 5)
    columns, rows = (
        (torch.arange(size, device=segments.device) + 0.5) / height for size in (width, height)
    )
    wave.addcmul_(across, columns).addcmul_(down, rows[:, None])
    wave.addcmul_(warp, _smooth(batch, (height, width), _WARP_CELLS, generator))
    share = wave.mul_(2 * math.pi).sin_().mul_(sharp).clamp_(-1, 1).mul_(0.5).add_(0.5)
    grain = _GRAIN * _smooth(batch, (height, width), _GRAIN_CELLS, generator)
    colours = [next(planes).add_(grain) for _ in range(3)]
    drawn = [colour.addcmul_(share, next(planes)) for colour in colours]
    opacity = next(planes)
    blended = torch.empty_like(images)
    for channel, colour in enumerate(drawn):
        seen = images[..., channel].float()
        blended[..., channel] = seen.lerp_(colour, opacity).round_().clamp_(0, 255)
    return blended


def _smooth(batch: int, size: tuple[int, int], cells: int, generator: torch.Generator) -> Tensor:
    """Returns noise (B, H, W) of standard deviation 0.5 on a grid, interpolated linearly."""
    grid = torch.randn(batch, 1, cells, cells, generator=generator, device=generator.device)
    noise = functional.interpolate(0.5 * grid, size, mode="bilinear", align_corners=False)
    return noise[:, 0]
