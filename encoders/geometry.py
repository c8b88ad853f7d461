"""From depth to places: where, in the robot's base frame, each patch of a picture stands."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class View:
    """What one camera knows about space, for a batch of B examples; None for what is unknown.

    Attributes:
        height: Rows of the pictures.
        width: Columns of the pictures.
        depth: (B, height, width), along the optical axis in units of `depth_unit_m`; 0 = no return.
        depth_unit_m: Metres per count of `depth`.
        intrinsics: (B, 3, 3), pixels, of undistorted pictures; pixel (0, 0) has its centre at (0.5, 0.5).
        T_base_camera: (B, 4, 4), camera (x right, y down, z forward) to base, metres.
    """

    height: int
    width: int
    depth: Tensor | None = None
    depth_unit_m: float = 0.001
    intrinsics: Tensor | None = None
    T_base_camera: Tensor | None = None


def patch_depth(depth: Tensor, depth_unit_m: float, patch: int) -> tuple[Tensor, Tensor]:
    """Averages the depth of each patch over its pixels that have one.

    Args:
        depth: (B, H, W) of any type; 0 and anything not finite = no return. H and W are multiples of `patch`.
        depth_unit_m: Metres per count.
        patch: Side of a patch, pixels.

    Returns:
        (B, N) metres, zero where nothing is known, and (B, N) bool, whether anything is; N = H W / patch^2, row by row. The
        type is float32, or float64 for float64 depth.

    Raises:
        ValueError: The patches do not tile the picture.
    """
    if depth.ndim != 3 or depth.shape[1] % patch or depth.shape[2] % patch:
        raise ValueError(f"depth has shape {tuple(depth.shape)}; allowed: (B, H, W) with H and W multiples of {patch}.")
    counts = depth.to(torch.float64 if depth.dtype == torch.float64 else torch.float32)
    if depth.is_floating_point():
        counts = torch.where(counts.isfinite() & (counts > 0), counts, 0.0)
    batch, height, width = counts.shape
    patches = counts.reshape(batch, height // patch, patch, width // patch, patch)
    known = (patches > 0).sum(dim=(2, 4)).flatten(1)
    return patches.sum(dim=(2, 4)).flatten(1) * depth_unit_m / known.clamp(min=1), known > 0


def patch_centres(height: int, width: int, patch: int, device: torch.device | None = None) -> Tensor:
    """Returns the centres (u, v) of all patches, (N, 2) float32 in pixels, row by row; u to the right, v down."""
    v = torch.arange(height // patch, dtype=torch.float32, device=device) * patch + patch / 2
    u = torch.arange(width // patch, dtype=torch.float32, device=device) * patch + patch / 2
    return torch.stack((u.repeat(len(v)), v.repeat_interleave(len(u))), dim=-1)


def patch_places(
    depth: Tensor, depth_unit_m: float, intrinsics: Tensor, T_base_camera: Tensor, patch: int
) -> tuple[Tensor, Tensor]:
    """Places each patch where its centre's ray reaches the patch's mean depth.

    Args:
        depth: (B, H, W), along the optical axis; 0 = no return, left out of the mean.
        depth_unit_m: Metres per count of `depth`.
        intrinsics: (B, 3, 3), pixels, without distortion.
        T_base_camera: (B, 4, 4), camera (x right, y down, z forward) to base, metres.
        patch: Side of a patch, pixels.

    Returns:
        (B, N, 3) metres in the base frame, row by row, float64 where depth or `T_base_camera` is, and (B, N) bool, False for
        patches without any depth.
    """
    z, known = patch_depth(depth, depth_unit_m, patch)
    z = z.to(torch.promote_types(z.dtype, T_base_camera.dtype))
    K, T = intrinsics.to(z.dtype), T_base_camera.to(z.dtype)
    u, v = patch_centres(depth.shape[1], depth.shape[2], patch, depth.device).to(z.dtype).unbind(-1)
    y = (v - K[:, 1, 2, None]) / K[:, 1, 1, None]
    x = (u - K[:, 0, 2, None] - K[:, 0, 1, None] * y) / K[:, 0, 0, None]
    axes = T[:, None, :3, :3]  # Products and sums instead of a matmul, which TF32 or autocast would round.
    points = x[..., None] * axes[..., 0] + y[..., None] * axes[..., 1] + axes[..., 2]
    return points * z.unsqueeze(-1) + T[:, None, :3, 3], known
