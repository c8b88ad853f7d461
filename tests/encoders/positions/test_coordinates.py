"""The three choices of what a place is."""

import pytest
import torch
from torch import Tensor

from stringline.encoders.geometry import View
from stringline.encoders.positions.coordinates import Coordinates, GridPlaces, MetricPlaces, PatchDepthPlaces

CPU = torch.device("cpu")
CHOICES: list[Coordinates] = [GridPlaces(), PatchDepthPlaces(), MetricPlaces()]


def _view(side: int = 128, *, geometry: bool = True, depth: Tensor | None = None) -> View:
    intrinsics = torch.tensor([[side * 1.2, 0, side / 2], [0, side * 1.2, side / 2], [0, 0, 1]]).expand(2, 3, 3)
    return View(
        height=side,
        width=side,
        depth=torch.full((2, side, side), 500) if depth is None else depth,
        intrinsics=intrinsics if geometry else None,
        T_base_camera=torch.eye(4).expand(2, 4, 4) if geometry else None,
    )


@pytest.mark.parametrize("choice", CHOICES)
def test_shapes_are_those_of_the_face(choice: Coordinates) -> None:
    for coordinates, placed in (choice.patches(_view(), 16, 2, CPU), choice.points(torch.zeros(2, 64, 3))):
        assert coordinates.shape == (2, 64, choice.axes)
        assert placed.shape == (2, 64)
        assert placed.dtype == torch.bool


@pytest.mark.parametrize("choice", CHOICES)
def test_resolution_does_not_move_a_patch(choice: Coordinates) -> None:
    """A picture twice as large with patches twice as large shows the same patches."""
    small, large = choice.patches(_view(64), 8, 2, CPU), choice.patches(_view(128), 16, 2, CPU)
    torch.testing.assert_close(small[0], large[0])


def test_grid_counts_patches_and_puts_points_in_the_middle() -> None:
    coordinates, placed = GridPlaces(8).patches(_view(), 16, 2, CPU)
    assert placed.all()
    assert coordinates[0, [0, 1, 8, 63]].tolist() == [[0.5, 0.5], [1.5, 0.5], [0.5, 1.5], [7.5, 7.5]]
    points, placed = GridPlaces(8).points(torch.randn(2, 3, 3))
    assert placed.all()
    assert points.unique().tolist() == [4.0]


def test_patch_depth_learns_what_depth_is_worth() -> None:
    places = PatchDepthPlaces(8, units_per_metre=8.0)
    coordinates, placed = places.patches(_view(), 16, 2, CPU)
    assert placed.all()
    torch.testing.assert_close(coordinates[..., :2], GridPlaces(8).patches(_view(), 16, 2, CPU)[0])
    torch.testing.assert_close(coordinates[..., 2], torch.full((2, 64), 4.0))
    coordinates[..., 2].sum().backward()
    assert places.slope.grad is not None
    torch.testing.assert_close(places.slope.grad, torch.tensor(64.0))  # 128 patches at half a metre.
    assert places.no_weight_decay() == {name for name, _ in places.named_parameters()}


@pytest.mark.parametrize("choice", [PatchDepthPlaces(), MetricPlaces()])
def test_holes_have_no_place(choice: Coordinates) -> None:
    depth = torch.full((2, 128, 128), 500)
    depth[1, :16, 16:32] = 0
    _, placed = choice.patches(_view(depth=depth), 16, 2, CPU)
    assert (~placed).nonzero().tolist() == [[1, 1]]


def test_a_camera_without_geometry_has_no_metric_places() -> None:
    coordinates, placed = MetricPlaces().patches(_view(geometry=False), 16, 2, CPU)
    assert coordinates.shape == (2, 64, 3)
    assert not placed.any()
    assert PatchDepthPlaces().patches(_view(geometry=False), 16, 2, CPU)[1].all()


def test_a_camera_without_depth_has_grid_places_only() -> None:
    view = View(height=128, width=128)
    assert GridPlaces().patches(view, 16, 2, CPU)[1].all()
    for choice in (PatchDepthPlaces(), MetricPlaces()):
        assert not choice.patches(view, 16, 2, CPU)[1].any()


def test_metric_points_are_themselves() -> None:
    points = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0))
    coordinates, placed = MetricPlaces().points(points)
    torch.testing.assert_close(coordinates, points)
    assert placed.all()
