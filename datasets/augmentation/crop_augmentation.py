"""Random crops, as through another lens: intrinsics follow, so that positions in metres stay."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from stringline.datasets.augmentation.augment import CameraBatch, Transform, check_range, uniform


class CropAndResize(Transform):
    """Resizes a random window with the aspect ratio of the image to the size of the image.

    Corners of windows are not on whole pixels. Colours are interpolated linearly. Depth and segment
    are those of the nearest pixel, so that no points appear between two surfaces; a point is off by
    at most half an old pixel across the ray. `T_base_camera` stays. Windows are independent for
    each camera and example. A window larger than the image shows it smaller: outside of it, the
    colours of its edge continue, and depth and segment are 0, unknown.
    """

    moves_pixels = True

    def __init__(self, scale: Sequence[float] = (0.8, 1.0)) -> None:
        """Sets the range of `scale`, the side of the window as a share of the image, 0.05 to 4."""
        super().__init__()
        self.scale = check_range("scale", scale, 0.05, 4.0)

    def forward(
        self, views: Mapping[str, CameraBatch], generator: torch.Generator
    ) -> dict[str, CameraBatch]:
        """Crops the images; see `Transform`."""
        return {name: self._camera(view, generator) for name, view in views.items()}

    def _camera(self, view: CameraBatch, generator: torch.Generator) -> CameraBatch:
        batch, height, width = view.rgb.shape[:3]
        scale = uniform(self.scale, batch, generator)
        left, top = (
            (1 - scale) * size * uniform((0, 1), batch, generator) for size in (width, height)
        )
        return crop(view, scale, left, top)


def crop(view: CameraBatch, scale: Tensor, left: Tensor, top: Tensor) -> CameraBatch:
    """Resizes a window to the size of the image, for B examples.

    `scale` (B,) are the sides of the window as shares of the sides of the image, `left` and `top`
    (B,) its left and upper edge in pixels.
    """
    height, width = view.rgb.shape[1:3]
    # (B, W) and (B, H), pixels.
    columns = left[:, None] + scale[:, None] * (torch.arange(width, device=left.device) + 0.5)
    rows = top[:, None] + scale[:, None] * (torch.arange(height, device=top.device) + 0.5)
    depth, segments = (
        None if images is None else _nearest(images, rows, columns)
        for images in (view.depth, view.segments)
    )
    intrinsics = None if view.intrinsics is None else _cropped(view.intrinsics, scale, left, top)
    rgb = _linear(view.rgb, rows, columns)
    return replace(view, rgb=rgb, depth=depth, intrinsics=intrinsics, segments=segments)


def _linear(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Samples images (B, H, W, 3) uint8 at rows (B, H) and columns (B, W); borders repeat."""
    height, width = images.shape[1:3]
    across = (2 * columns / width - 1)[:, None, :].expand(-1, height, -1)
    down = (2 * rows / height - 1)[:, :, None].expand(-1, -1, width)
    grid = torch.stack((across, down), dim=-1)
    planes = images.permute(0, 3, 1, 2).float()
    sampled = functional.grid_sample(
        planes, grid, mode="bilinear", padding_mode="border", align_corners=False
    )
    return sampled.round_().clamp_(0, 255).to(images.dtype).permute(0, 2, 3, 1).contiguous()


def _nearest(depth: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Samples depth or segments (B, H, W) of any type at rows (B, H) and columns (B, W).

    Outside of the images it is 0.
    """
    batch, height, width = depth.shape
    inside = ((rows >= 0) & (rows < height))[:, :, None]
    inside = inside & ((columns >= 0) & (columns < width))[:, None, :]
    down = rows.floor().long().clamp(0, height - 1)[:, :, None]
    across = columns.floor().long().clamp(0, width - 1)[:, None, :]
    example = torch.arange(batch, device=depth.device)[:, None, None]
    # Torch cannot index uint16; int16 has the same bits.
    signed = depth.view(torch.int16) if depth.dtype == torch.uint16 else depth
    sampled = signed[example, down, across]
    return torch.where(inside, sampled, torch.zeros_like(sampled)).view(depth.dtype)


def _cropped(intrinsics: Tensor, scale: Tensor, left: Tensor, top: Tensor) -> Tensor:
    """Returns A K, where A maps pixels of the old image to those of the new one."""
    change = torch.eye(3, dtype=torch.float64, device=intrinsics.device).repeat(
        len(intrinsics), 1, 1
    )
    change[:, 0, 0] = change[:, 1, 1] = 1 / scale.double()
    change[:, 0, 2] = -left.double() / scale.double()
    change[:, 1, 2] = -top.double() / scale.double()
    return (change @ intrinsics.double()).to(intrinsics.dtype)
