"""Surface normals of depth pictures."""

import math

import torch
from torch import Tensor

from stringline.encoders.geometry import patch_centres, rays, returned


def surface_normals(
    depth: Tensor,
    depth_unit_m: float,
    intrinsics: Tensor,
    T_base_camera: Tensor | None = None,
    *,
    reach: int = 1,
    steepest_deg: float = 80.0,
) -> Tensor:
    """Returns the unit normal of the surface that each pixel shows, towards the camera.

    The normal is perpendicular to the differences of back-projected neighbours, left to right and upper to lower, so it is
    exact on planes. A neighbour without depth is replaced by the pixel itself. Nothing is averaged over an edge: beside one
    there is no normal.

    Args:
        depth: (B, H, W), along the optical axis; 0 and anything not finite = no return. Differentiable where it is float.
        depth_unit_m: Metres per count of `depth`.
        intrinsics: (B, 3, 3), pixels, without distortion.
        T_base_camera: (B, 4, 4) turns the normals into the base frame; None leaves them in the camera frame (x right, y down,
            z forward). Its translation has no effect.
        reach: Pixels to the neighbours; more of them see less of the noise and less of the shape.
        steepest_deg: A step of depth between neighbours is an edge when a surface between them would lean this much, or more,
            against a plane that faces the camera.

    Returns:
        (B, H, W, 3), float32 or float64 as `patch_places` does; zero vectors at pixels without depth, at edges, and where no
        neighbour in a row or column has depth.

    Raises:
        ValueError: An argument is out of range.
    """
    if depth.ndim != 3 or reach < 1 or not 0 < steepest_deg < 90:
        got = f"depth has shape {tuple(depth.shape)}, reach is {reach}, steepest_deg is {steepest_deg}"
        raise ValueError(f"{got}; allowed: (B, H, W), reach from 1, steepest_deg between 0 and 90.")
    z = returned(depth) * depth_unit_m
    z = z if T_base_camera is None else z.to(torch.promote_types(z.dtype, T_base_camera.dtype))
    K = intrinsics.to(z.dtype)
    x, y = (ray.reshape(z.shape) for ray in rays(patch_centres(z.shape[1], z.shape[2], 1, z.device), K))
    points = torch.stack((x * z, y * z, z), dim=-1)
    slope = math.tan(math.radians(steepest_deg)) * reach
    along_row, row_is_smooth = _difference(points, 2, reach, slope / K[:, 0, 0].abs())
    along_column, column_is_smooth = _difference(points, 1, reach, slope / K[:, 1, 1].abs())
    across = torch.linalg.cross(along_column, along_row)
    found = (z > 0) & row_is_smooth & column_is_smooth & (across.square().sum(dim=-1) > 0)
    # Where nothing was found, a vector of length one goes through the root in its stead: its gradient is finite.
    across = torch.where(found.unsqueeze(-1), across, across.new_tensor((0.0, 0.0, -1.0)))
    normals = across / across.square().sum(dim=-1, keepdim=True).sqrt()
    away = (normals * points).sum(dim=-1, keepdim=True) > 0
    normals = torch.where(found.unsqueeze(-1), torch.where(away, -normals, normals), 0.0)
    return normals if T_base_camera is None else _turned(normals, T_base_camera.to(z.dtype))


def _difference(points: Tensor, axis: int, reach: int, relative_step: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the difference of the neighbours along an axis, (B, H, W, 3), and whether no edge lies between, (B, H, W)."""
    z = points[..., 2]
    smooth = torch.ones_like(z, dtype=torch.bool)
    ends = []
    for offset in (-reach, reach):
        index = (torch.arange(points.shape[axis], device=points.device) + offset).clamp(0, points.shape[axis] - 1)
        neighbour = points.index_select(axis, index)
        known = neighbour[..., 2] > 0
        step, nearer = (neighbour[..., 2] - z).abs(), torch.minimum(neighbour[..., 2], z)
        smooth = smooth & ~(known & (step > relative_step[:, None, None] * nearer))
        ends.append(torch.where(known.unsqueeze(-1), neighbour, points))
    return ends[1] - ends[0], smooth


def _turned(vectors: Tensor, T: Tensor) -> Tensor:
    """Returns vectors (B, H, W, 3) turned by the rotation of T (B, 4, 4), without a matmul, which TF32 would round."""
    axes = T[:, None, None, :3, :3]
    return vectors[..., 0:1] * axes[..., 0] + vectors[..., 1:2] * axes[..., 1] + vectors[..., 2:3] * axes[..., 2]
