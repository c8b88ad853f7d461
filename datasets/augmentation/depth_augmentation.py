"""A stereo depth camera model for simulated depth: noise, missing pixels and rounding."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from stringline.datasets.augmentation.augment import CameraBatch, Transform, check_range, uniform
from stringline.datasets.contract.argument_checks import NOT_NEGATIVE, POSITIVE


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
        strength: Sequence[float] = (0.5, 1.5),
        edge_loss: Sequence[float] = (0.0, 0.8),
        edge_step: float = 0.05,
        grazing_deg: Sequence[float] = (75.0, 85.0),
    ) -> None:
        """Sets the parameters of the camera and the ranges of random numbers.

        Args:
            focal_px: Focal length of the camera at its own resolution; above 0.
            baseline_m: Distance between the lenses; above 0.
            subpixel: Error of the disparity in pixels; at least 0.
            strength: Factor of sigma, drawn for each example and camera, 0 to 10.
            edge_loss: Share of lost pixels beside an edge, drawn likewise, 0 to 1.
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
        self.strength = check_range("strength", strength, 0, 10)
        self.edge_loss = check_range("edge_loss", edge_loss, 0, 1)
        self.edge_step = edge_step
        self.grazing_deg = check_range("grazing_deg", grazing_deg, 0, 90)

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
            uniform(ends, len(depth), generator)[:, None, None]
            for ends in (self.strength, self.edge_loss)
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
