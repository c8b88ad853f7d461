"""Coordinates of patches: pixels, pixels and depth, or metres in the base frame."""

from collections.abc import Sequence
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import FINITE, unknown_name
from stringline.encoders.coordinates.geometry import (
    DepthPooling,
    View,
    check_pooling,
    patch_places,
    pooled_depth,
)
from stringline.encoders.coordinates.perturbation import PatchCentres
from stringline.encoders.positions.precision import values_are_hidden

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
            grid: Patches a side at training, or (rows, columns) of them.
            perturbation: See `PatchCentres`.
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
            grid: Patches a side at training, or (rows, columns) of them.
            units_per_metre: Initial slope, in patches per metre of depth.
            perturbation: See `PatchCentres`; applies to u and v, not to the depth.
            depth_pooling: Depth of a patch; `mean` as in the paper.
            missing_depth: See `MissingDepth`.
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
            perturbation: See `PatchCentres`; a moved patch lies on the ray of its new pixel, at the
                depth of the patch.
            depth_pooling: Depth of a patch. The mean of two surfaces is a place in the air between
                them; the median is on one of them.
            missing_depth: See `MissingDepth`.
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
