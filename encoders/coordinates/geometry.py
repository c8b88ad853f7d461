"""Geometry of depth images: positions of patches in the base frame of the robot, and normals."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.encoders.positions.precision import values_are_hidden

DepthPooling = Literal["median", "mean"]
"""The depth of a patch, of its pixels with depth."""


@dataclass(frozen=True, kw_only=True)
class View:
    """Depth and geometry of one camera for a batch of B images; None for unknown values.

    Values are checked, except in `torch.compile` and CUDA graph capture.

    Attributes:
        height: Rows of the images.
        width: Columns of the images.
        depth: (B, height, width), along the optical axis in units of `depth_unit_m`; 0 or NaN: no
            return.
        depth_unit_m: Metres per count of `depth`.
        intrinsics: (B, 3, 3), pixels, of undistorted images; pixel (0, 0) has its centre at (0.5,
            0.5).
        T_base_camera: (B, 4, 4), camera (x right, y down, z forward) to base, metres; see
            `calibrated`.
        name: Name of the camera; empty: unknown.
    """

    height: int
    width: int
    depth: Tensor | None = None
    depth_unit_m: float = 0.001
    intrinsics: Tensor | None = None
    T_base_camera: Tensor | None = None
    name: str = ""

    def __post_init__(self) -> None:
        expected = {
            "depth": (self.height, self.width),
            "intrinsics": (3, 3),
            "T_base_camera": (4, 4),
        }
        given = {name: x for name in expected if (x := getattr(self, name)) is not None}
        batch = {len(x) for x in given.values() if x.ndim == 3}
        for name, x in given.items():
            if x.ndim != 3 or tuple(x.shape[1:]) != expected[name] or len(batch) > 1:
                allowed = ", ".join(str(size) for size in expected[name])
                raise ValueError(
                    f"{name} has shape {tuple(x.shape)} beside images of "
                    f"{self.height}x{self.width} pixels; allowed: (B, {allowed}), the same B for "
                    f"all (got {sorted(batch)})."
                )
        # Not `POSITIVE.check`, which `torch.compile` cannot trace.
        if not 0 < self.depth_unit_m < math.inf:
            raise ValueError(f"depth_unit_m must be a number above 0 (got {self.depth_unit_m}).")
        if given and not values_are_hidden(next(iter(given.values()))):
            self._check_values()

    def calibrated(self) -> Tensor:
        """Returns whether `T_base_camera` is known, (B,) bool.

        Mixtures of stores fill in a matrix without rotation for cameras without calibration, which
        no crop changes. Such a view needs `T_base_camera`.
        """
        assert self.T_base_camera is not None
        return self.T_base_camera[:, :3, :3].flatten(1).any(dim=1)

    def _check_values(self) -> None:
        """Checks all values with a single transfer from the device, since each one synchronises."""
        faults: dict[str, Tensor] = {}
        if self.depth is not None and self.depth.dtype.is_signed:
            faults["depth"] = (self.depth < 0) | self.depth.isinf()
        if self.intrinsics is not None:
            faults["intrinsics"] = ~_invertible(self.intrinsics)
        if self.T_base_camera is not None:
            faults["T_base_camera"] = ~self.T_base_camera.isfinite()
        if not faults or not bool(torch.stack([fault.any() for fault in faults.values()]).any()):
            return
        name = next(name for name, fault in faults.items() if fault.any())
        wrong = getattr(self, name)[faults[name]]
        allowed = {
            "depth": "0 or NaN for no return, otherwise positive and finite",
            "intrinsics": (
                "finite [[fx, s, cx], [0, fy, cy], [0, 0, 1]] in pixels with fx and fy other than 0"
            ),
            "T_base_camera": "finite numbers",
        }
        raise ValueError(f"{name} holds {wrong[0].tolist()}; allowed: {allowed[name]}.")


def _invertible(intrinsics: Tensor) -> Tensor:
    """Returns whether each matrix (3, 3) is an invertible camera matrix, (B,)."""
    focal = intrinsics.diagonal(dim1=-2, dim2=-1)[:, :2]
    below = torch.stack(
        (intrinsics[:, 1, 0], intrinsics[:, 2, 0], intrinsics[:, 2, 1], intrinsics[:, 2, 2] - 1),
        dim=-1,
    )
    return (
        intrinsics.isfinite().flatten(1).all(dim=-1)
        & (focal != 0).all(dim=-1)
        & (below == 0).all(dim=-1)
    )


def returned(depth: Tensor) -> Tensor:
    """Returns depth counts as float32 (float64 for float64); zero for pixels without a return."""
    counts = depth.to(torch.float64 if depth.dtype == torch.float64 else torch.float32)
    return (
        torch.where(counts.isfinite() & (counts > 0), counts, 0.0)
        if depth.dtype.is_signed
        else counts
    )


def patch_depth(depth: Tensor, depth_unit_m: float, patch: int) -> tuple[Tensor, Tensor]:
    """Averages the depth (B, H, W) of each patch over its pixels with depth.

    0 and non-finite values mean that nothing was measured. Returns (B, N) metres, zero if unknown,
    and (B, N) bool, whether it is known; N = H W / patch^2, row by row. The type is float32, or
    float64 for float64 depth.
    """
    if depth.ndim != 3 or depth.shape[1] % patch or depth.shape[2] % patch:
        raise ValueError(
            f"depth has shape {tuple(depth.shape)}; allowed: (B, H, W) with H and W multiples of "
            f"{patch}."
        )
    counts = returned(depth)
    batch, height, width = counts.shape
    patches = counts.reshape(batch, height // patch, patch, width // patch, patch)
    known = (patches > 0).sum(dim=(2, 4)).flatten(1)
    return patches.sum(dim=(2, 4)).flatten(1) * depth_unit_m / known.clamp(min=1), known > 0


def patch_median_depth(depth: Tensor, depth_unit_m: float, patch: int) -> tuple[Tensor, Tensor]:
    """Returns the lower median of the depth of each patch, as `patch_depth` returns the mean.

    The mean of two surfaces is between them; the median is on one of them.
    """
    _, known = patch_depth(depth, depth_unit_m, patch)
    pixels = _pixels(returned(depth), patch)
    median = torch.where(pixels > 0, pixels, torch.nan).nanmedian(dim=-1).values
    return torch.where(known, median * depth_unit_m, 0.0), known


def pooled_depth(
    depth: Tensor, depth_unit_m: float, patch: int, pooling: DepthPooling = "median"
) -> tuple[Tensor, Tensor]:
    """Returns `patch_median_depth` or `patch_depth` by name."""
    pool = patch_median_depth if pooling == "median" else patch_depth
    return pool(depth, depth_unit_m, patch)


def check_pooling(pooling: str) -> None:
    """Raises a ValueError for a name that is not in `DepthPooling`."""
    if pooling not in get_args(DepthPooling):
        raise unknown_name("depth_pooling", str(pooling), get_args(DepthPooling))


def _pixels(image: Tensor, patch: int) -> Tensor:
    """Returns the pixels (B, N, patch^2) of the patches of an image (B, H, W)."""
    batch, height, width = image.shape
    pixels = image.reshape(batch, height // patch, patch, width // patch, patch).transpose(2, 3)
    return pixels.flatten(3).flatten(1, 2)


def patch_spread(depth: Tensor, depth_unit_m: float, patch: int) -> Tensor:
    """Returns the standard deviation of the depth of each patch, (B, N) metres.

    It is that of the pixels with depth, zero without any. Arguments and type as for `patch_depth`,
    which checks them.
    """
    mean, _ = patch_depth(depth, depth_unit_m, patch)
    pixels = _pixels(returned(depth) * depth_unit_m, patch)
    seen = pixels > 0
    # Differences to the mean: in float32 the difference of two squares would lose the spread.
    squares = torch.where(seen, pixels - mean.unsqueeze(-1), 0.0).square()
    return (squares.sum(dim=-1) / seen.sum(dim=-1).clamp(min=1)).sqrt()


def patch_centres(
    height: int, width: int, patch: int, device: torch.device | None = None
) -> Tensor:
    """Returns the centres (u, v) of all patches, (N, 2) float32 in pixels, row by row."""
    v = torch.arange(height // patch, dtype=torch.float32, device=device) * patch + patch / 2
    u = torch.arange(width // patch, dtype=torch.float32, device=device) * patch + patch / 2
    return torch.stack((u.repeat(len(v)), v.repeat_interleave(len(u))), dim=-1)


def rays(pixels: Tensor, intrinsics: Tensor) -> tuple[Tensor, Tensor]:
    """Returns x and y, (B, N) each, of the points at z = 1 behind pixels, in the camera frame.

    Pixels (u, v) are (N, 2) or (B | 1, N, 2); intrinsics (B, 3, 3) have the type of the result.
    """
    K = intrinsics
    u, v = pixels.to(K.dtype).unbind(-1)
    y = (v - K[:, 1, 2, None]) / K[:, 1, 1, None]
    return (u - K[:, 0, 2, None] - K[:, 0, 1, None] * y) / K[:, 0, 0, None], y


def base_rays(pixels: Tensor, intrinsics: Tensor, T_base_camera: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the rays of pixels in the base frame: a point at depth z is z direction + origin.

    Pixels and intrinsics are as for `rays`, T_base_camera (B, 4, 4) of the same type. Directions
    are (B, N, 3), of length 1 along the optical axis; origins (B, 1, 3), metres.
    """
    x, y = rays(pixels, intrinsics)
    # Products and sums instead of a matmul, which TF32 or autocast would round.
    axes = T_base_camera[:, None, :3, :3]
    directions = x[..., None] * axes[..., 0] + y[..., None] * axes[..., 1] + axes[..., 2]
    return directions, T_base_camera[:, None, :3, 3]


def patch_places(
    depth: Tensor,
    depth_unit_m: float,
    intrinsics: Tensor,
    T_base_camera: Tensor,
    patch: int,
    *,
    centres: Tensor | None = None,
    pooling: DepthPooling = "median",
) -> tuple[Tensor, Tensor]:
    """Puts each patch where its centre's ray reaches the patch's median or mean depth.

    Depth and geometry are as in `View`; `centres` are the pixels (u, v) of the rays, (N, 2) or
    (B | 1, N, 2); if None, `patch_centres`. Returns (B, N, 3) metres in the base frame, row by row,
    float64 if depth or `T_base_camera` is, and (B, N) bool, False for patches without depth.
    """
    z, known = pooled_depth(depth, depth_unit_m, patch, pooling)
    z = z.to(torch.promote_types(z.dtype, T_base_camera.dtype))
    pixels = (
        patch_centres(depth.shape[1], depth.shape[2], patch, depth.device)
        if centres is None
        else centres
    )
    points, origin = base_rays(pixels, intrinsics.to(z.dtype), T_base_camera.to(z.dtype))
    return points * z.unsqueeze(-1) + origin, known


def surface_normals(
    depth: Tensor,
    depth_unit_m: float,
    intrinsics: Tensor,
    T_base_camera: Tensor | None = None,
    *,
    radius_px: int = 1,
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
        T_base_camera: (B, 4, 4), rotates the normals into the base frame; if None, camera frame (x
            right, y down, z forward).
        radius_px: Distance of the neighbours in pixels; a larger one reduces noise and detail.
        steepest_deg: A depth step between neighbours is an edge if the surface between them would
            be inclined by at least this angle against the image plane. Off the image centre this
            includes surfaces at a grazing angle, whose depth is unreliable.

    Returns:
        (B, H, W, 3), float32 or float64 as `patch_places`; zero at pixels without depth, at edges,
        and without a neighbour with depth in a row or column.
    """
    if depth.ndim != 3 or radius_px < 1 or not 0 < steepest_deg < 90:
        got = (
            f"depth has shape {tuple(depth.shape)}, radius_px is {radius_px}, steepest_deg is "
            f"{steepest_deg}"
        )
        raise ValueError(
            f"{got}; allowed: (B, H, W), radius_px from 1, steepest_deg between 0 and 90."
        )
    z = returned(depth) * depth_unit_m
    z = z if T_base_camera is None else z.to(torch.promote_types(z.dtype, T_base_camera.dtype))
    K = intrinsics.to(z.dtype)
    x, y = (
        ray.reshape(z.shape) for ray in rays(patch_centres(z.shape[1], z.shape[2], 1, z.device), K)
    )
    # Components first, since a CPU is faster on whole planes.
    points = torch.stack((x * z, y * z, z))
    slope = math.tan(math.radians(steepest_deg)) * radius_px
    along_row, row_is_smooth = _difference(points, 3, radius_px, slope / K[:, 0, 0].abs())
    along_column, column_is_smooth = _difference(points, 2, radius_px, slope / K[:, 1, 1].abs())
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
    points: Tensor, axis: int, radius_px: int, relative_step: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns differences of neighbours along an axis, (3, B, H, W), and the absence of edges."""
    z = points[2]
    relative_step = relative_step[:, None, None]
    smooth = torch.ones_like(z, dtype=torch.bool)
    ends = []
    for offset in (-radius_px, radius_px):
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
