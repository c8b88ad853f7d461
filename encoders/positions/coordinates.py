"""What a place is: pixels, pixels and depth, or metres in the base frame."""

from typing import Protocol

import torch
from torch import Tensor, nn

from stringline.encoders.geometry import View, patch_centres, patch_depth, patch_places


class Coordinates(Protocol):
    """A choice of coordinates for patches of pictures and for points of the robot, such as its grippers.

    Attributes:
        axes: Coordinates per place.
    """

    axes: int

    def patches(self, view: View, patch: int, batch: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Returns the places (batch, N, axes) of a view's patches, row by row, and which of them have one (batch, N) bool."""
        ...

    def points(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the places (B, M, axes) of points (B, M, 3), metres in the base frame, and which of them have one (B, M)."""
        ...


class GridPlaces(nn.Module):
    """Two axes: column u and row v of the patch, in each camera's own picture; points stand at the picture's centre.

    The unit is the patch of a picture with `grid` patches a side, so pictures of another resolution keep their meaning.
    """

    axes = 2

    def __init__(self, grid: int = 8) -> None:
        """Keeps the size.

        Args:
            grid: Patches a side at training.
        """
        super().__init__()
        self.grid = grid

    def patches(self, view: View, patch: int, batch: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Returns (u, v) of the patch centres; all have a place."""
        uv = _grid(view, patch, self.grid, device)
        return uv.expand(batch, -1, -1), torch.ones(batch, len(uv), dtype=torch.bool, device=device)

    def points(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the centre of the picture for every point."""
        return points.new_full((*points.shape[:2], 2), self.grid / 2), _all_placed(points)


class PatchDepthPlaces(nn.Module):
    """Three axes: u and v as in `GridPlaces`, and a learned affine function of the patch's mean depth (STRING, appendix E).

    The paper averages over all pixels; here pixels without depth are left out, and a patch without any has no place.
    Points of the robot belong to no picture and have no place.
    """

    axes = 3

    def __init__(self, grid: int = 8, units_per_metre: float = 8.0) -> None:
        """Starts the affine function.

        Args:
            grid: Patches a side at training.
            units_per_metre: Its slope at the start, in patches per metre of depth.
        """
        super().__init__()
        self.grid = grid
        self.slope = nn.Parameter(torch.tensor(units_per_metre))
        self.offset = nn.Parameter(torch.tensor(0.0))

    def patches(self, view: View, patch: int, batch: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Returns (u, v, slope depth + offset); patches without depth have no place."""
        uv = _grid(view, patch, self.grid, device).expand(batch, -1, -1)
        if view.depth is None:
            return nn.functional.pad(uv, (0, 1)), torch.zeros(uv.shape[:2], dtype=torch.bool, device=device)
        depth, known = patch_depth(view.depth, view.depth_unit_m, patch)
        return torch.cat((uv.to(depth.dtype), (self.slope * depth + self.offset).unsqueeze(-1)), dim=-1), known

    def points(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Returns no places."""
        return torch.zeros_like(points), ~_all_placed(points)

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay would falsify."""
        return {"slope", "offset"}


class MetricPlaces(nn.Module):
    """Three axes: metres in the robot's base frame, the same for every camera and for the points of the robot."""

    axes = 3

    def patches(self, view: View, patch: int, batch: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Returns the back-projected patches; those without depth, and cameras without geometry, have no place."""
        if view.depth is None or view.intrinsics is None or view.T_base_camera is None:
            tokens = (view.height // patch) * (view.width // patch)
            return torch.zeros(batch, tokens, 3, device=device), torch.zeros(batch, tokens, dtype=torch.bool, device=device)
        return patch_places(view.depth, view.depth_unit_m, view.intrinsics, view.T_base_camera, patch)

    def points(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the points themselves."""
        return points, _all_placed(points)


def _grid(view: View, patch: int, grid: int, device: torch.device) -> Tensor:
    """Returns (N, 2): the centres of the patches, in patches of a picture with `grid` of them a side."""
    size = torch.tensor((view.width, view.height), dtype=torch.float32, device=device)
    return patch_centres(view.height, view.width, patch, device) * (grid / size)


def _all_placed(points: Tensor) -> Tensor:
    return torch.ones(points.shape[:2], dtype=torch.bool, device=points.device)
