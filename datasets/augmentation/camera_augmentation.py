"""Augmentation by models of cameras: another lens, a colour sensor or none, a stereo depth camera.

After a crop the intrinsics follow, so that positions in metres stay. `ColourSensor` adds the blur
of a lens, the noise of a sensor and the gamma of its tone curve. Without colour a network also
learns from depth alone. `StereoDepth` gives simulated depth the noise, the missing pixels and the
rounding of measured depth.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from stringline.datasets.augmentation.augment import CameraBatch, Transform, draw, uniform
from stringline.datasets.contract.argument_checks import NOT_NEGATIVE, POSITIVE, Range
from stringline.datasets.contract.distributions import Drawn, distribution


class CropAndResize(Transform):
    """Resizes a random window with the aspect ratio of the image to the size of the image.

    Corners of windows are not on whole pixels. Colours are interpolated linearly. Depth and segment
    are those of the nearest pixel, so that no points appear between two surfaces; a point is off by
    at most half an old pixel across the ray. `T_base_camera` stays. Windows are independent for
    each camera and example. A window larger than the image shows it smaller: outside of it, the
    colours of its edge continue, and depth and segment are 0, unknown.
    """

    moves_pixels = True

    def __init__(self, scale: Drawn = (0.8, 1.0)) -> None:
        """Sets the range.

        Args:
            scale: Side of a random window as a share of the image; within 0.05 and 4, above 1 it
                shrinks.
        """
        super().__init__()
        self.scale = distribution("scale", scale, Range(least=0.05, most=4))

    def forward(
        self, views: Mapping[str, CameraBatch], generator: torch.Generator
    ) -> dict[str, CameraBatch]:
        """Crops the images; see `Transform`."""
        return {name: self._camera(view, generator) for name, view in views.items()}

    def _camera(self, view: CameraBatch, generator: torch.Generator) -> CameraBatch:
        batch, height, width = view.rgb.shape[:3]
        scale = draw(self.scale, batch, generator)
        left, top = (
            (1 - scale) * size * uniform(0, 1, batch, generator) for size in (width, height)
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


_REACH = 2  # Pixels on each side of the middle of the blur, two of its largest deviations.


class ColourSensor(Transform):
    """Simulates a colour camera: blurs images, adds noise, and changes their gamma, in this order.

    All three are drawn for each example and camera. Noise is independent for each pixel and
    channel. Pixels keep their places, so depth and intrinsics stay right.
    """

    def __init__(
        self,
        *,
        blur_px: Drawn = (0.0, 0.8),
        noise: Drawn = (0.0, 0.03),
        gamma: Drawn = (0.75, 1.35),
    ) -> None:
        """Sets the ranges.

        Args:
            blur_px: Standard deviation of a Gaussian blur in pixels, 0 to 1.
            noise: Standard deviation of the noise as a share of the largest value; within 0 and
                0.5.
            gamma: Exponent of values between 0 and 1, 0.2 to 5, uniform in its logarithm.

        Raises:
            ValueError: A setting is out of range.
        """
        super().__init__()
        self.blur_px = distribution("blur_px", blur_px, Range(least=0, most=1))
        self.noise = distribution("noise", noise, Range(least=0, most=0.5))
        self.gamma = distribution("gamma", gamma, Range(least=0.2, most=5))

    def forward(
        self, views: Mapping[str, CameraBatch], generator: torch.Generator
    ) -> dict[str, CameraBatch]:
        """Changes colour images; see `Transform`."""
        return {
            name: replace(view, rgb=self._photographed(view.rgb, generator))
            for name, view in views.items()
        }

    def _photographed(self, images: Tensor, generator: torch.Generator) -> Tensor:
        batch = len(images)
        deviation = draw(self.blur_px, batch, generator)
        noise = 255 * draw(self.noise, batch, generator)
        gamma = draw(self.gamma.mapped(math.log), batch, generator).exp()
        values = images.float()
        if self.blur_px.highest:
            values = _blurred(values, deviation)
        if self.noise.highest:
            drawn = torch.randn(values.shape, generator=generator, device=values.device)
            values = torch.addcmul(values, drawn, noise[:, None, None, None])
        levels = values.round_().clamp_(0, 255)
        if set(self.gamma.values) == {1.0}:
            return levels.to(images.dtype)
        # A table of 256 values costs less than a power of each pixel.
        table = 255 * (torch.arange(256, device=gamma.device) / 255) ** gamma[:, None]
        looked_up = table.round_().to(images.dtype).gather(1, levels.flatten(1).long())
        return looked_up.reshape(images.shape)


def _blurred(values: Tensor, deviation: Tensor) -> Tensor:
    """Blurs images (B, H, W, 3) by Gaussians of standard deviations (B,) pixels; borders repeat."""
    places = torch.arange(-_REACH, _REACH + 1, device=values.device)
    # Without blur, all weights but the middle one underflow to 0.
    weights = (-0.5 * (places / deviation.clamp(min=1e-3)[:, None]).square()).softmax(dim=1)
    planes = values.movedim(-1, 1)
    padded = functional.pad(planes, (_REACH,) * 4, mode="replicate")
    for axis, size in ((2, values.shape[1]), (3, values.shape[2])):
        parts = [padded.narrow(axis, at, size) for at in range(2 * _REACH + 1)]
        padded = weights[:, 0, None, None, None] * parts[0]
        for at, part in enumerate(parts[1:], start=1):
            padded.addcmul_(weights[:, at, None, None, None], part)
    return padded.movedim(1, -1).contiguous()


GREY = 128


class ColourDropout(Transform):
    """Replaces the colours of an example by grey; depth, intrinsics and segments stay.

    Modality dropout after Neverova et al. 2015 (ModDrop, arXiv 1501.00102). In contrast to it, a
    single modality is dropped, and its values become grey (128) instead of zero, so that dropped
    colours do not look like a dark room. All cameras of an example lose their colours together,
    because the colours of one camera could replace depth.
    """

    def __init__(self, *, probability: float = 0.5) -> None:
        """Sets the probability.

        Args:
            probability: Probability that all cameras of an example become grey; their depth stays.
                Within 0 and 1.

        Raises:
            ValueError: The probability is out of range.
        """
        super().__init__()
        Range(least=0, most=1).check(probability=probability)
        self.probability = float(probability)

    def forward(
        self, views: Mapping[str, CameraBatch], generator: torch.Generator
    ) -> dict[str, CameraBatch]:
        """Removes colours; see `Transform`.

        Raises:
            ValueError: A camera has no depth, so that nothing of its images would be left.
        """
        for name, view in views.items():
            if view.depth is None:
                raise ValueError(
                    f"Camera {name} has no depth, and without colours nothing of its images would "
                    "be left. Use another augmentation, or a store with depth."
                )
        if not views:
            return {}
        batch = len(next(iter(views.values())).rgb)
        drawn = torch.rand(batch, generator=generator, device=generator.device)
        dropped = (drawn < self.probability)[:, None, None, None]
        return {
            name: replace(view, rgb=view.rgb.masked_fill(dropped, GREY))
            for name, view in views.items()
        }


class StereoDepth(Transform):
    """Simulates a stereo depth camera.

    Noise along the axis grows with the square of depth, sigma_z = z^2 subpixel / (focal_px
    baseline_m): an error of `subpixel` pixels of disparity d = focal_px baseline_m / z
    (Grunnet-Jepsen, Sweetser and Woodfill, Tuning depth cameras for best performance, Intel
    RealSense). The defaults are a D435 at 848x480: baseline 50 mm, 90 degrees wide, 0.08 pixels,
    Intel's value for textured targets; 3.8 mm at 1 m. A D405 has a baseline of 18 mm. Noise is
    independent for each pixel, unlike that of a real camera.

    Pixels are lost beside depth edges, which only one of the two lenses sees, and on surfaces at a
    grazing angle (only if the intrinsics are known). Results are rounded to the unit of the depth.
    """

    def __init__(
        self,
        *,
        focal_px: float = 424.0,
        baseline_m: float = 0.05,
        subpixel: float = 0.08,
        strength: Drawn = (0.5, 1.5),
        edge_loss: Drawn = (0.0, 0.8),
        edge_step: float = 0.05,
        grazing_deg: Sequence[float] = (75.0, 85.0),
    ) -> None:
        """Sets the parameters of the camera and the ranges of random numbers.

        Args:
            focal_px: Focal length of the stereo camera at its own resolution, px: a D435 at
                848x480.
            baseline_m: Distance between its lenses, m: 0.05 for a D435, 0.018 for a D405.
            subpixel: Error of the disparity, px; its effect on depth grows with the square of
                depth.
            strength: Factor of the error of the disparity, drawn for each example and camera;
                within 0 and 10.
            edge_loss: Share of the pixels lost beside depth edges, drawn likewise; within 0 and 1.
            edge_step: Depth difference between neighbours at an edge, as a share of depth; above 0.
            grazing_deg: Angles between ray and normal at which the loss of pixels begins and is
                complete; between 0 and 90.

        Raises:
            ValueError: A setting is out of range.
        """
        super().__init__()
        POSITIVE.check(focal_px=focal_px, baseline_m=baseline_m, edge_step=edge_step)
        NOT_NEGATIVE.check(subpixel=subpixel)
        self.noise_per_m = subpixel / (focal_px * baseline_m)
        self.strength = distribution("strength", strength, Range(least=0, most=10))
        self.edge_loss = distribution("edge_loss", edge_loss, Range(least=0, most=1))
        self.edge_step = edge_step
        if len(grazing_deg) != 2 or not 0 <= grazing_deg[0] <= grazing_deg[1] <= 90:
            raise ValueError(
                f"grazing_deg is {list(grazing_deg)}; allowed: two ascending angles, 0 to 90."
            )
        self.grazing_deg = (float(grazing_deg[0]), float(grazing_deg[1]))

    def forward(
        self, views: Mapping[str, CameraBatch], generator: torch.Generator
    ) -> dict[str, CameraBatch]:
        """Changes depth images; see `Transform`."""
        return {
            name: view if view.depth is None else self._camera(view, view.depth, generator)
            for name, view in views.items()
        }

    def _camera(self, view: CameraBatch, depth: Tensor, generator: torch.Generator) -> CameraBatch:
        strength, loss = (
            draw(setting, len(depth), generator)[:, None, None]
            for setting in (self.strength, self.edge_loss)
        )
        z = depth.float() * view.depth_unit_m
        steps = _steps(z)
        jump = torch.maximum(*(torch.maximum(step[0].abs(), step[1].abs()) for step in steps))
        lost = loss * (jump > self.edge_step * z)
        if view.intrinsics is not None:
            lost = torch.maximum(lost, self._grazing_loss(z, steps, view.intrinsics.float()))
        kept = torch.rand(z.shape, generator=generator, device=z.device) >= lost
        noise = torch.randn(z.shape, generator=generator, device=z.device)
        measured = z + noise * (self.noise_per_m * strength * z.square())
        return replace(
            view, depth=_counted(measured, kept & (z > 0), depth.dtype, view.depth_unit_m)
        )

    def _grazing_loss(self, z: Tensor, steps: tuple[Tensor, Tensor], intrinsics: Tensor) -> Tensor:
        """Returns the share (B, H, W) of pixels lost by the angle, linear in its cosine."""
        first, last = (math.cos(math.radians(angle)) for angle in self.grazing_deg)
        return ((first - _cosine(z, steps, intrinsics)) / max(first - last, 1e-6)).clamp_(0, 1)


def _steps(z: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the differences (2, B, H, W) to both neighbours, along columns and along rows.

    They are zero at the border and beside pixels without depth.
    """
    found = []
    known = z > 0
    for axis in (2, 1):
        inner = z.shape[axis] - 1
        both = known.narrow(axis, 0, inner) & known.narrow(axis, 1, inner)
        step = z.diff(dim=axis) * both
        steps = z.new_zeros(2, *z.shape)
        steps[0].narrow(axis, 0, inner).copy_(step)
        steps[1].narrow(axis, 1, inner).copy_(step)
        found.append(steps)
    return found[0], found[1]


def _cosine(z: Tensor, steps: tuple[Tensor, Tensor], intrinsics: Tensor) -> Tensor:
    """Returns the cosine (B, H, W) between the normal of the surface and the ray to the camera.

    With the ray (x, y, 1) and slopes z_u and z_v in metres per pixel, the normal is along (-fx z_u,
    -fy z_v, z + x fx z_u + y fy z_v), and its product with the ray is z. The slope is taken to the
    neighbour with the smaller difference of depth, so that surfaces beside an edge keep their
    slope.
    """
    slopes = [torch.where(step[0].abs() < step[1].abs(), step[0], step[1]) for step in steps]
    K = intrinsics[:, :, :, None, None]
    rows, columns = (torch.arange(size, device=z.device) + 0.5 for size in z.shape[1:])
    x = (columns - K[:, 0, 2]) / K[:, 0, 0]
    y = (rows[:, None] - K[:, 1, 2]) / K[:, 1, 1]
    across = K[:, 0, 0] * slopes[0]
    down = K[:, 1, 1] * slopes[1]
    normal = (across.square() + down.square() + (z + x * across + y * down).square()).sqrt()
    return z / (normal * (x.square() + y.square() + 1).sqrt()).clamp(min=1e-9)


def _counted(measured: Tensor, kept: Tensor, dtype: torch.dtype, unit_m: float) -> Tensor:
    """Rounds metres to counts of at least 1; pixels that are not kept become 0."""
    largest = math.inf if dtype.is_floating_point else torch.iinfo(dtype).max
    counts = (measured / unit_m).round().clamp(1, largest)
    return torch.where(kept, counts, 0.0).to(dtype)
