"""Coordinates of patches: pixels, pixels and depth, metres in a frame of the robot, or rays.

The pixel of a patch is its centre, or in training a random pixel around it. Metric coordinates
are in the base frame, and `Frames` adds those in the grippers of the arms.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import (
    FINITE,
    NOT_NEGATIVE,
    POSITIVE,
    unknown_name,
)
from stringline.encoders.coordinates.geometry import (
    DepthPooling,
    View,
    base_rays,
    check_pooling,
    patch_centres,
    patch_places,
    patch_spread,
    pooled_depth,
)
from stringline.encoders.positions.precision import values_are_hidden


def truncated_normal(
    shape: tuple[int, ...], deviation: float, device: torch.device | None = None
) -> Tensor:
    """Draws float32 numbers from a normal distribution of mean 0 conditioned on [-1/2, 1/2].

    By the inverse distribution function, from torch's global generator of the device. `deviation`,
    above 0, is the standard deviation before truncation; the result approaches a uniform
    distribution as it grows.
    """
    unit = deviation * math.sqrt(2)
    # Near 1 floating-point numbers cannot resolve deviates above about 5.5: infinite ones are
    # clamped.
    uniform = 2 * torch.rand(shape, device=device) - 1
    return (unit * torch.erfinv(uniform * math.erf(0.5 / unit))).clamp(-0.5, 0.5)


class PatchCentres(nn.Module):
    """The pixels of patches; in training mode each patch may be moved within its cell.

    Position perturbation of ComRoPE (Yu et al., 2025, arXiv 2506.03737, equation 11): normal with
    standard deviation sigma cells, truncated to the cell. The published code takes half of it,
    clamps, which leaves a third of the draws on the border, and needs to be switched off at test
    time; here evaluation mode never draws.
    """

    def __init__(self, perturbation: float = 0.0) -> None:
        """Sets sigma, in cells; 0: no perturbation. The paper recommends 1."""
        super().__init__()
        if perturbation not in NOT_NEGATIVE:
            raise ValueError(
                f"perturbation is {perturbation}; allowed: 0 (none) and above, in cells."
            )
        self.perturbation = perturbation

    def forward(self, view: View, patch: int, batch: int, device: torch.device) -> Tensor:
        """Returns pixels (u, v), (batch, N, 2) float32, row by row; random in training."""
        if view.height % patch or view.width % patch:
            raise ValueError(
                f"Images are {view.height}x{view.width}; allowed: multiples of the patch of "
                f"{patch} pixels."
            )
        centres = patch_centres(view.height, view.width, patch, device).expand(batch, -1, -1)
        if not self.training or not self.perturbation:
            return centres
        return centres + patch * truncated_normal(tuple(centres.shape), self.perturbation, device)


RAYS = "rays"

MissingDepth = Literal["exclude", "centroid"]
"""What becomes of patches without depth.

`exclude`: they take no part in attention where other patches of their image have a position.
`centroid`: they take part, at the centroid of all tokens with a position.
"""


class Coordinates(Protocol):
    """A choice of coordinates for patches of images and for points such as the grippers.

    Attributes:
        axes: Coordinates per place.
        reads: Kinds of keys of the contract that patches need: of `depth`, `intrinsics` and
            `T_base_camera`; with `RAYS` the last two also of cameras without depth.
    """

    axes: int
    reads: frozenset[str]

    def patches(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Returns the coordinates (batch, N, axes) of a view's patches, row by row.

        The second tensor, (batch, N) bool, is True for patches that have a position.
        """
        ...

    def points(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the coordinates (B, M, axes) of points (B, M, 3), metres in the base frame.

        The second tensor, (B, M) bool, is True for points that have a position.
        """
        ...


class GridPlaces(nn.Module):
    """Column u and row v of the patch in its own image; points are put at the image's centre.

    The unit is the patch of an image with `grid` patches a side, so images of another resolution
    keep their coordinates. With `grid=1` these are ComRoPE's coordinates, (i + 1/2) / n between 0
    and 1 (Yu et al., 2025, arXiv 2506.03737, section 3.4.1).
    """

    axes = 2
    reads = frozenset[str]()

    def __init__(self, grid: int | Sequence[int] = 8, *, perturbation: float = 0.0) -> None:
        """Sets the grid.

        Args:
            grid: Patches per side in training, or [rows, columns]; stringline-train counts those of
                the images. With 1, coordinates are from 0 to 1.
            perturbation: Standard deviation of random shifts of patches in training, in cells.
        """
        super().__init__()
        self.grid = _grid_size(grid)
        self.centres = PatchCentres(perturbation)

    def patches(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Returns (u, v) of the patch centres; all have a position."""
        uv = _in_cells(self.centres(view, patch, batch, device), view, self.grid)
        return uv, torch.ones(uv.shape[:2], dtype=torch.bool, device=device)

    def points(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the centre of the image for every point."""
        check_points(points)
        rows, columns = self.grid
        return points.new_tensor((columns / 2, rows / 2)).expand(*points.shape[:2], 2), _all_placed(
            points
        )


class PatchDepthPlaces(nn.Module):
    """u and v as in `GridPlaces`, and a learned affine function of the patch's mean depth.

    After STRING, section 4.4.2. The paper averages over all pixels; here pixels without depth are
    left out, and a patch without any has no position. Points of the robot belong to no image and
    have no position.

    Attributes:
        missing_depth: See `MissingDepth`.
    """

    axes = 3
    reads = frozenset({"depth"})

    def __init__(
        self,
        grid: int | Sequence[int] = 8,
        units_per_metre: float = 8.0,
        *,
        perturbation: float = 0.0,
        depth_pooling: DepthPooling = "mean",
        missing_depth: MissingDepth = "exclude",
    ) -> None:
        """Initialises the affine function.

        Args:
            grid: Patches per side in training, or [rows, columns]; stringline-train counts those of
                the images.
            units_per_metre: Initial slope of the affine function, in patches per metre of depth.
            perturbation: Standard deviation of random shifts of patches in training, in cells, see
                `PatchCentres`; it applies to u and v, not to the depth.
            depth_pooling: Depth of a patch: the mean of its pixels, as in the paper, or the median.
            missing_depth: Patches without depth: exclude (from attention), or centroid (they stand
                at that of the others).
        """
        super().__init__()
        FINITE.check(units_per_metre=units_per_metre)
        check_pooling(depth_pooling)
        _check_missing_depth(missing_depth)
        self.depth_pooling: DepthPooling = depth_pooling
        self.missing_depth: MissingDepth = missing_depth
        self.grid = _grid_size(grid)
        self.centres = PatchCentres(perturbation)
        self.slope = nn.Parameter(torch.tensor(units_per_metre))
        self.offset = nn.Parameter(torch.tensor(0.0))

    def patches(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Returns (u, v, slope depth + offset); patches without depth have no position."""
        uv = _in_cells(self.centres(view, patch, batch, device), view, self.grid)
        if view.depth is None:
            return nn.functional.pad(uv, (0, 1)), torch.zeros(
                uv.shape[:2], dtype=torch.bool, device=device
            )
        depth, known = pooled_depth(view.depth, view.depth_unit_m, patch, self.depth_pooling)
        return torch.cat(
            (uv.to(depth.dtype), (self.slope * depth + self.offset).unsqueeze(-1)), dim=-1
        ), known

    def points(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Returns zeros; no point has a position."""
        check_points(points)
        return torch.zeros_like(points), ~_all_placed(points)

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay."""
        return {"slope", "offset"}


class MetricPlaces(nn.Module):
    """Metres in the base frame of the robot, for all cameras and points.

    Attributes:
        missing_depth: See `MissingDepth`.
    """

    axes = 3
    reads = frozenset({"depth", "intrinsics", "T_base_camera"})

    def __init__(
        self,
        *,
        perturbation: float = 0.0,
        depth_pooling: DepthPooling = "median",
        missing_depth: MissingDepth = "exclude",
    ) -> None:
        """Sets the rules for the depth of patches.

        Args:
            perturbation: Standard deviation of random shifts of patches in training, in cells, see
                `PatchCentres`; a moved patch lies on the ray of its new pixel, at the depth of the
                patch.
            depth_pooling: Depth of a patch: the median of its pixels, or the mean, which lies
                between two surfaces.
            missing_depth: Patches without depth: exclude (from attention), or centroid (they stand
                at that of the others).
        """
        super().__init__()
        check_pooling(depth_pooling)
        _check_missing_depth(missing_depth)
        self.centres = PatchCentres(perturbation)
        self.depth_pooling: DepthPooling = depth_pooling
        self.missing_depth: MissingDepth = missing_depth

    def patches(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Returns back-projected patches; without depth or geometry they have no position."""
        centres: Tensor = self.centres(view, patch, batch, device)
        if view.depth is None or view.intrinsics is None or view.T_base_camera is None:
            no_position = torch.zeros(*centres.shape[:2], 3, device=device)
            return no_position, torch.zeros(centres.shape[:2], dtype=torch.bool, device=device)
        places, known = patch_places(
            view.depth,
            view.depth_unit_m,
            view.intrinsics,
            view.T_base_camera,
            patch,
            centres=centres,
            pooling=self.depth_pooling,
        )
        return places, known & view.calibrated()[:, None]

    def points(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the points themselves."""
        check_points(points)
        return points, _all_placed(points)


def excludes_missing_depth(coordinates: Coordinates) -> bool:
    """Returns whether patches without depth take no part in attention; see `MissingDepth`.

    Coordinates without the attribute `missing_depth` exclude none.
    """
    return bool(getattr(coordinates, "missing_depth", "centroid") == "exclude")


def _check_missing_depth(missing_depth: str) -> None:
    if missing_depth not in get_args(MissingDepth):
        raise unknown_name("missing_depth", str(missing_depth), get_args(MissingDepth))


def check_points(points: Tensor) -> None:
    """Raises a ValueError unless points are (B, M, 3), floating point and finite."""
    if points.ndim != 3 or points.shape[-1] != 3 or not points.is_floating_point():
        got = f"{tuple(points.shape)} {points.dtype}"
        raise ValueError(
            f"Points are {got}; allowed: (B, M, 3) floating point, metres in the base frame."
        )
    if not values_are_hidden(points) and not bool(points.isfinite().all()):
        raise ValueError(
            f"Points hold {points[~points.isfinite()][0].item()}; allowed: finite metres in the "
            f"base frame."
        )


def _grid_size(grid: int | Sequence[int]) -> tuple[int, int]:
    """Returns (rows, columns)."""
    sides = (grid, grid) if isinstance(grid, int) else tuple(grid)
    if len(sides) != 2 or not all(isinstance(side, int) and side >= 1 for side in sides):
        raise ValueError(
            f"grid is {grid}; allowed: a number of patches from 1, or (rows, columns) of them."
        )
    return sides[0], sides[1]


def _in_cells(centres: Tensor, view: View, grid: tuple[int, int]) -> Tensor:
    """Returns pixels (u, v), (B, N, 2), in units of the cells of a (rows, columns) grid."""
    rows, columns = grid
    return centres * centres.new_tensor((columns / view.width, rows / view.height))


def _all_placed(points: Tensor) -> Tensor:
    return torch.ones(points.shape[:2], dtype=torch.bool, device=points.device)


Division = Literal["axes", "heads"]
Pose = Tensor | None
"""Poses (B, 4, 4) of a frame in the base frame; if None, the base frame itself."""


class Frames(nn.Module):
    """The frames in which tokens have coordinates, in metres.

    In the frame of a gripper, a point p of the base frame has the coordinates R^T (p - t), with the
    present rotation R and position t of the gripper. So the orientation of the gripper enters
    attention, and relative values are rotated with it. If the base frame is not among the frames, a
    rigid motion of the whole scene including the robot has no effect.
    """

    def __init__(self, *, names: Sequence[str] = ("grippers",), by: Division = "axes") -> None:
        """Sets the frames.

        Args:
            names: `base`, `grippers` (one frame per arm) or `gripper/<arm>`, each frame once.
            by: `axes`: one encoding over the coordinates in all frames, 3 axes per frame; `heads`:
                the attention heads are divided among the frames, and each frame has its own
                encoding.
        """
        super().__init__()
        if by not in get_args(Division):
            raise unknown_name("division of frames", str(by), get_args(Division))
        if isinstance(names, str) or not names:
            raise ValueError(
                f"The names of frames are {names!r}; allowed: a list such as [base, grippers]."
            )
        self.names = tuple(names)
        self.by = by

    def arms(self, known: Sequence[str]) -> tuple[str | None, ...]:
        """Returns the arm of each frame, None for the base frame.

        Args:
            known: The arms that have a gripper pose.

        Raises:
            ValueError: A frame does not exist or occurs twice.
        """
        of_one = {f"gripper/{arm}": (arm,) for arm in known}
        meanings: dict[str, tuple[str | None, ...]] = {"base": (None,), "grippers": tuple(known)}
        meanings |= of_one
        for name in self.names:
            if name not in meanings:
                raise unknown_name("frame", name, meanings)
        found = [arm for name in self.names for arm in meanings[name]]
        if len(set(found)) < len(found):
            raise ValueError(f"The frames {list(self.names)} repeat one; allowed: each once.")
        return tuple(found)


def are_metric(coordinates: Coordinates) -> bool:
    """Returns whether coordinates are metres in the base frame: points keep their coordinates."""
    point = torch.tensor([[[0.1, -0.2, 0.3]]])
    placed, has_position = coordinates.points(point)
    return placed.shape == point.shape and torch.equal(placed, point) and bool(has_position.all())


def in_frames(points: Tensor, poses: Sequence[Pose]) -> Tensor:
    """Returns the coordinates of points (B, N, 3) in F frames side by side, (B, N, 3 F)."""
    return torch.cat([points if T is None else _inside(points, T) for T in poses], dim=-1)


def directions_in_frames(rotations: Tensor, poses: Sequence[Pose]) -> Tensor:
    """Returns the axes of rotations (B, M, 3, 3) in F frames, (B, M, 3 F, 3).

    These are the derivatives of `in_frames` of a point along the axes of each rotation.
    """
    return torch.cat([rotations if T is None else _turned(rotations, T) for T in poses], dim=-2)


def vectors_in_frames(vectors: Tensor, poses: Sequence[Pose]) -> Tensor:
    """Returns vectors (B, N, 3), without an origin, in F frames side by side, (B, N, 3 F)."""
    return torch.cat([vectors if T is None else _rotated(vectors, T) for T in poses], dim=-1)


# Products and sums instead of a matmul, which TF32 or autocast would round.
def _inside(points: Tensor, T: Tensor) -> Tensor:
    T = T.to(points.dtype)
    return _rotated(points - T[:, None, :3, 3], T)


def _rotated(vectors: Tensor, T: Tensor) -> Tensor:
    return (T[:, None, :3, :3].to(vectors.dtype) * vectors[..., None]).sum(dim=-2)


def _turned(rotations: Tensor, T: Tensor) -> Tensor:
    back = T[:, None, :3, :3].to(rotations.dtype)
    return (back[..., :, None] * rotations[..., :, None, :]).sum(dim=-3)


class RayPlaces(nn.Module):
    """Metres in the base frame, for calibrated cameras with and without depth.

    A patch with depth has the place of `MetricPlaces`. Any other patch, of a camera without depth
    or in a hole of the depth, is on the ray of its centre at the prior depth: where the ray meets
    the horizontal plane `plane_m`, such as the table, within `range_m`; rays that do not meet it
    are at the far end. Without a plane it is the middle of the range, and shifts of the world in
    any direction have no effect; with a plane, those along it. Cameras of `depth_m` have one prior
    depth for all patches: the patches of a camera on a gripper are then on a plane that moves with
    it, where the table would be a wrong guess for the fingers and for what they hold.

    The spread of a place is the standard deviation of its depth along its ray. Rotary encodings
    then use the expected rotation; see `PositionEncoding.prepare`.
    """

    axes = 3
    reads = MetricPlaces.reads | {RAYS}

    def __init__(
        self,
        *,
        plane_m: float | None = 0.0,
        range_m: Sequence[float] = (0.1, 1.5),
        depth_m: Mapping[str, float] | None = None,
        spread: float = 0.0,
        edges: bool = False,
        perturbation: float = 0.0,
        depth_pooling: DepthPooling = "median",
    ) -> None:
        """Sets the prior of the depth.

        Args:
            plane_m: Height of the plane where rays end, m in the base frame: the table; if None,
                the middle of range_m.
            range_m: Smallest and largest prior depth along the optical axis, metres.
            depth_m: Prior depth by camera, such as {wrist: 0.3}, in place of the plane; if None,
                0.3 m for moving ones.
            spread: Standard deviation of the prior depth, as a share of it; 0: depths count as
                exact, as encodings need that support no spread.
            edges: Whether a patch with depth has a spread too, the standard deviation of the depth
                of its pixels, which is large at the edges of objects.
            perturbation: Standard deviation of random shifts of patches in training, in cells.
            depth_pooling: Depth of a patch: the median of its pixels, or the mean, which lies
                between two surfaces.

        Raises:
            ValueError: An argument is out of range.
        """
        super().__init__()
        check_pooling(depth_pooling)
        NOT_NEGATIVE.check(spread=spread)
        if plane_m is not None:
            FINITE.check(plane_m=plane_m)
        near, far = range_m if len(range_m) == 2 else (0.0, 0.0)
        if near not in FINITE or far not in FINITE or not 0 < near < far:
            raise ValueError(
                f"range_m is {list(range_m)}; allowed: two depths in metres, above 0, the smaller "
                f"one first."
            )
        POSITIVE.check(**{f"depth_m.{name}": depth for name, depth in (depth_m or {}).items()})
        self.plane_m = plane_m
        self.depth_m = dict(depth_m or {})
        self.range_m = (float(near), float(far))
        self.spread = spread
        self.edges = edges
        self.depth_pooling: DepthPooling = depth_pooling
        self.centres = PatchCentres(perturbation)

    def patches(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Returns back-projected patches; all have a position, see `patches_with_spread`."""
        return self.patches_with_spread(view, patch, batch, device)[:2]

    def patches_with_spread(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns coordinates and existence of the positions of a view's patches, and their spread.

        The spread (batch, N, 3) is a vector along the ray, metres; None without `spread` and
        `edges`, for encodings that support none. Only patches of views that are not
        `View.calibrated` have no position.

        Raises:
            ValueError: The view lacks intrinsics or `T_base_camera`.
        """
        if view.intrinsics is None or view.T_base_camera is None:
            raise ValueError(without_rays("The view"))
        kind = torch.promote_types(torch.float32, view.T_base_camera.dtype)
        measured = (
            None
            if view.depth is None
            else pooled_depth(view.depth, view.depth_unit_m, patch, self.depth_pooling)
        )
        kind = kind if measured is None else torch.promote_types(kind, measured[0].dtype)
        directions, origin = base_rays(
            self.centres(view, patch, batch, device),
            view.intrinsics.to(kind),
            view.T_base_camera.to(kind),
        )
        depth = self._prior(directions, origin, view.name)
        deviation = self.spread * depth
        if measured is not None and view.depth is not None:
            known = measured[1]
            depth = torch.where(known, measured[0].to(kind), depth)
            within = patch_spread(view.depth, view.depth_unit_m, patch) if self.edges else 0.0
            deviation = torch.where(known, within, deviation)
        calibrated = view.calibrated()[:, None].expand(depth.shape)
        places = directions * depth.unsqueeze(-1) + origin
        if not self.spread and not self.edges:
            return places, calibrated, None
        deviation = torch.where(calibrated, deviation, 0.0)
        return places, calibrated, deviation.unsqueeze(-1) * directions

    def points(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the points themselves."""
        check_points(points)
        return points, torch.ones(points.shape[:2], dtype=torch.bool, device=points.device)

    def _prior(self, directions: Tensor, origin: Tensor, camera: str) -> Tensor:
        """Returns the prior depth (B, N), metres, of rays of a camera as from `base_rays`."""
        near, far = self.range_m
        if camera in self.depth_m:
            return torch.full_like(directions[..., 2], self.depth_m[camera])
        if self.plane_m is None:
            return torch.full_like(directions[..., 2], (near + far) / 2)
        below = self.plane_m - origin[..., 2]
        slope = directions[..., 2]
        # Rays that never meet the plane, and those along it, would divide by zero or go backwards.
        meets = below * slope > 0
        return torch.where(meets, below / torch.where(meets, slope, 1.0), far).clamp(near, far)


def without_rays(what: str) -> str:
    """Returns the error of places on rays for something, such as a camera, without calibration."""
    return (
        f"{what} has no intrinsics or no T_base_camera, so its patches have no rays; allowed for "
        f"RayPlaces: calibrated cameras. GridPlaces (coordinates=grid) need no calibration."
    )


def check_prior_depths(coordinates: Coordinates, cameras: Sequence[str]) -> None:
    """Raises a ValueError if `depth_m` contains a camera that is not among those that are read."""
    if not isinstance(coordinates, RayPlaces):
        return
    for name in coordinates.depth_m:
        if name not in cameras:
            raise ValueError(f"coordinates.places.depth_m: {unknown_name('camera', name, cameras)}")


def patches_with_spread(
    coordinates: Coordinates, view: View, patch: int, batch: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns `coordinates.patches`, and the spread (batch, N, axes) of the places; None: zero."""
    if isinstance(coordinates, RayPlaces):
        return coordinates.patches_with_spread(view, patch, batch, device)
    return *coordinates.patches(view, patch, batch, device), None
