"""Surface normals of depth images."""

import math

import torch
from torch import Tensor

from stringline.encoders.coordinates.geometry import patch_centres, rays, returned


def surface_normals(
    depth: Tensor,
    depth_unit_m: float,
    intrinsics: Tensor,
    T_base_camera: Tensor | None = None,
    *,
    reach: int = 1,
    steepest_deg: float = 80.0,
) -> Tensor:
    """Returns the unit surface normal at each pixel, towards the camera.

    The normal is perpendicular to the differences of back-projected neighbours, left to right and
    upper to lower, so it is exact on planes. A neighbour without depth is replaced by the pixel
    itself. Pixels beside an edge have no normal, since nothing is averaged over edges.

    Args:
        depth: (B, H, W), as in `View`; differentiable if it is floating point.
        depth_unit_m: Metres per count of `depth`.
        intrinsics: (B, 3, 3), pixels, without distortion.
        T_base_camera: (B, 4, 4), rotates the normals into the base frame; None: camera frame (x
            right, y down, z forward).
        reach: Distance of the neighbours in pixels; a larger one reduces noise and detail.
        steepest_deg: A depth step between neighbours is an edge if the surface between them would
            be inclined by at least this angle against the image plane. Off the image centre this
            includes surfaces at a grazing angle, whose depth is unreliable.

    Returns:
        (B, H, W, 3), float32 or float64 as `patch_places`; zero at pixels without depth, at edges,
        and without a neighbour with depth in a row or column.
    """
    if depth.ndim != 3 or reach < 1 or not 0 < steepest_deg < 90:
        got = (
            f"depth has shape {tuple(depth.shape)}, reach is {reach}, steepest_deg is "
            f"{steepest_deg}"
        )
        raise ValueError(f"{got}; allowed: (B, H, W), reach from 1, steepest_deg between 0 and 90.")
    z = returned(depth) * depth_unit_m
    z = z if T_base_camera is None else z.to(torch.promote_types(z.dtype, T_base_camera.dtype))
    K = intrinsics.to(z.dtype)
    x, y = (
        ray.reshape(z.shape) for ray in rays(patch_centres(z.shape[1], z.shape[2], 1, z.device), K)
    )
    # Components first, since a CPU is faster on whole planes.
    points = torch.stack((x * z, y * z, z))
    slope = math.tan(math.radians(steepest_deg)) * reach
    along_row, row_is_smooth = _difference(points, 3, reach, slope / K[:, 0, 0].abs())
    along_column, column_is_smooth = _difference(points, 2, reach, slope / K[:, 1, 1].abs())
    across = _cross(along_column, along_row)
    square = across.square().sum(dim=0)
    found = (z > 0) & row_is_smooth & column_is_smooth & (square > 0)
    # Without a normal the root of 1 keeps gradients finite. The sign points normals to the camera.
    towards = torch.where((across * points).sum(dim=0) > 0, -1.0, 1.0).to(z.dtype)
    normals = across * torch.where(found, towards / torch.where(found, square, 1.0).sqrt(), 0.0)
    if T_base_camera is not None:
        normals = _turned(normals, T_base_camera.to(z.dtype))
    return normals.movedim(0, -1).contiguous()


def _difference(
    points: Tensor, axis: int, reach: int, relative_step: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns differences of neighbours along an axis, (3, B, H, W), and the absence of edges."""
    z = points[2]
    relative_step = relative_step[:, None, None]
    smooth = torch.ones_like(z, dtype=torch.bool)
    ends = []
    for offset in (-reach, reach):
        neighbour = _moved(points, axis, offset)
        known = neighbour[2] > 0
        step = (neighbour[2] - z).abs()
        nearer = torch.minimum(neighbour[2], z)
        smooth = smooth & ~(known & (step > relative_step * nearer))
        ends.append(torch.where(known, neighbour, points))
    return ends[1] - ends[0], smooth


def _moved(x: Tensor, axis: int, offset: int) -> Tensor:
    """Returns x[i + offset] along an axis, the border value outside."""
    size = x.shape[axis]
    beyond = min(abs(offset), size)
    if offset > 0:
        border = x.narrow(axis, size - 1, 1)
        return torch.cat((x.narrow(axis, beyond, size - beyond), *[border] * beyond), dim=axis)
    return torch.cat((*[x.narrow(axis, 0, 1)] * beyond, x.narrow(axis, 0, size - beyond)), dim=axis)


def _cross(a: Tensor, b: Tensor) -> Tensor:
    """Returns cross products (3, ...) by planes, faster on a CPU than `torch.linalg.cross`."""
    return torch.stack(
        (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])
    )


def _turned(vectors: Tensor, T: Tensor) -> Tensor:
    """Rotates vectors (3, B, H, W) by T (B, 4, 4), without a matmul, which TF32 would round."""
    axes = T[:, :3, :3].permute(1, 2, 0)[..., None, None]  # (3, 3, B, 1, 1)
    return vectors[0] * axes[:, 0] + vectors[1] * axes[:, 1] + vectors[2] * axes[:, 2]
