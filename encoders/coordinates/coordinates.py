"""What a place is: pixels, pixels and depth, or metres in the base frame."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from stringline.datasets.contract.arguments import FINITE
from stringline.encoders.coordinates.geometry import View, patch_depth, patch_places
from stringline.encoders.coordinates.perturbation import PatchCentres
from stringline.encoders.positions.precision import values_are_hidden


class Coordinates(Protocol):
    """A choice of coordinates for patches of images and for points of the robot, such as its grippers.

    Attributes:
        axes: Coordinates per place.
        reads: Kinds of keys of the contract that the places of patches are computed from, of
            `depth`, `intrinsics` and `T_base_camera`.
    """

    axes: int
    reads: frozenset[str]

    def patches(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Returns the places (batch, N, axes) of a view's patches, row by row, and which of them have one (batch, N) bool."""
        ...

    def points(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the places (B, M, axes) of points (B, M, 3), metres in the base frame, and which of them have one (B, M)."""
        ...


class GridPlaces(nn.Module):
    """Two axes: column u and row v of the patch, in each camera's own image; points stand at the image's centre.

    The unit is the patch of an image with `grid` patches a side, so images of another resolution
    keep their meaning. With `grid=1` these are ComRoPE's coordinates, (i + 1/2) / n between 0 and 1
    (Yu et al., 2025, arXiv 2506.03737, section 3.4.1).
    """

    axes = 2
    reads = frozenset[str]()

    def __init__(self, grid: int | Sequence[int] = 8, *, perturbation: float = 0.0) -> None:
        """Keeps the size.

        Args:
            grid: Patches a side at training, or (rows, columns) of them.
            perturbation: See `PatchCentres`.

        Raises:
            ValueError: The grid or the perturbation is out of range.
        """
        super().__init__()
        self.grid = _grid_size(grid)
        self.centres = PatchCentres(perturbation)

    def patches(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Returns (u, v) of the patch centres; all have a place."""
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
    """Three axes: u and v as in `GridPlaces`, and a learned affine function of the patch's mean depth (STRING, section 4.4.2).

    The paper averages over all pixels; here pixels without depth are left out, and a patch without
    any has no place. Points of the robot belong to no image and have no place.
    """

    axes = 3
    reads = frozenset({"depth"})

    def __init__(
        self,
        grid: int | Sequence[int] = 8,
        units_per_metre: float = 8.0,
        *,
        perturbation: float = 0.0,
    ) -> None:
        """Starts the affine function.

        Args:
            grid: Patches a side at training, or (rows, columns) of them.
            units_per_metre: Its slope at the start, in patches per metre of depth.
            perturbation: See `PatchCentres`; of u and v, while the depth stays that of the patch.

        Raises:
            ValueError: The grid or the perturbation is out of range, or the slope is not finite.
        """
        super().__init__()
        FINITE.check(units_per_metre=units_per_metre)
        self.grid = _grid_size(grid)
        self.centres = PatchCentres(perturbation)
        self.slope = nn.Parameter(torch.tensor(units_per_metre))
        self.offset = nn.Parameter(torch.tensor(0.0))

    def patches(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Returns (u, v, slope depth + offset); patches without depth have no place."""
        uv = _in_cells(self.centres(view, patch, batch, device), view, self.grid)
        if view.depth is None:
            return nn.functional.pad(uv, (0, 1)), torch.zeros(
                uv.shape[:2], dtype=torch.bool, device=device
            )
        depth, known = patch_depth(view.depth, view.depth_unit_m, patch)
        return torch.cat(
            (uv.to(depth.dtype), (self.slope * depth + self.offset).unsqueeze(-1)), dim=-1
        ), known

    def points(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Returns no places."""
        check_points(points)
        return torch.zeros_like(points), ~_all_placed(points)

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay would falsify."""
        return {"slope", "offset"}


class MetricPlaces(nn.Module):
    """Three axes: metres in the robot's base frame, the same for every camera and for the points of the robot."""

    axes = 3
    reads = frozenset({"depth", "intrinsics", "T_base_camera"})

    def __init__(self, *, perturbation: float = 0.0) -> None:
        """Keeps the perturbation.

        Args:
            perturbation: See `PatchCentres`; a moved patch stands on its new pixel's ray, at the
                mean depth of the patch.

        Raises:
            ValueError: The perturbation is out of range.
        """
        super().__init__()
        self.centres = PatchCentres(perturbation)

    def patches(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Returns the back-projected patches; those without depth, and cameras without geometry, have no place."""
        centres: Tensor = self.centres(view, patch, batch, device)
        if view.depth is None or view.intrinsics is None or view.T_base_camera is None:
            nowhere = torch.zeros(*centres.shape[:2], 3, device=device)
            return nowhere, torch.zeros(centres.shape[:2], dtype=torch.bool, device=device)
        return patch_places(
            view.depth,
            view.depth_unit_m,
            view.intrinsics,
            view.T_base_camera,
            patch,
            centres=centres,
        )

    def points(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the points themselves."""
        check_points(points)
        return points, _all_placed(points)


def check_points(points: Tensor) -> None:
    """Refuses what is no set of points.

    Raises:
        ValueError: The shape is not (B, M, 3), the type is no floating point, or a coordinate is
            not finite.
    """
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
    """Returns (B, N, 2): pixels (u, v) in units of the cells of an image with `grid` (rows, columns) of them."""
    rows, columns = grid
    return centres * centres.new_tensor((columns / view.width, rows / view.height))


def _all_placed(points: Tensor) -> Tensor:
    return torch.ones(points.shape[:2], dtype=torch.bool, device=points.device)
