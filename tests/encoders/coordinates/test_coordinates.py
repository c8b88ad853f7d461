"""Places in the image, with depth, and in the base frame."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from stringline import (
    CylindricalPlaces,
    GridPlaces,
    MetricPlaces,
    PatchDepthPlaces,
    SphericalPlaces,
    View,
)
from stringline.encoders.coordinates.canonical import DirectionPlaces
from stringline.encoders.coordinates.coordinates import Coordinates

CPU = torch.device("cpu")
CHOICES: list[Coordinates] = [
    GridPlaces(),
    PatchDepthPlaces(),
    MetricPlaces(),
    SphericalPlaces(),
    DirectionPlaces(),
    CylindricalPlaces(),
]
METRIC: list[Coordinates] = [
    MetricPlaces(),
    SphericalPlaces(),
    DirectionPlaces(),
    CylindricalPlaces(),
]


def _view(side: int = 128, *, geometry: bool = True, depth: Tensor | None = None) -> View:
    intrinsics = torch.tensor(
        [[side * 1.2, 0, side / 2], [0, side * 1.2, side / 2], [0, 0, 1]]
    ).expand(2, 3, 3)
    return View(
        height=side,
        width=side,
        depth=torch.full((2, side, side), 500) if depth is None else depth,
        intrinsics=intrinsics if geometry else None,
        T_base_camera=torch.eye(4).expand(2, 4, 4) if geometry else None,
    )


@pytest.mark.parametrize("choice", CHOICES)
def test_shapes_are_those_of_the_interface(choice: Coordinates) -> None:
    for coordinates, has_position in (
        choice.patches(_view(), 16, 2, CPU),
        choice.points(torch.ones(2, 64, 3)),
    ):
        assert coordinates.shape == (2, 64, choice.axes)
        assert has_position.shape == (2, 64)
        assert has_position.dtype == torch.bool


@pytest.mark.parametrize("choice", CHOICES)
def test_resolution_does_not_move_a_patch(choice: Coordinates) -> None:
    """An image twice as large with patches twice as large shows the same patches."""
    small, large = choice.patches(_view(64), 8, 2, CPU), choice.patches(_view(128), 16, 2, CPU)
    torch.testing.assert_close(small[0], large[0])


def test_grid_places_count_patches_and_put_points_at_the_centre() -> None:
    coordinates, has_position = GridPlaces(8).patches(_view(), 16, 2, CPU)
    assert has_position.all()
    assert coordinates[0, [0, 1, 8, 63]].tolist() == [
        [0.5, 0.5],
        [1.5, 0.5],
        [0.5, 1.5],
        [7.5, 7.5],
    ]
    points, has_position = GridPlaces(8).points(torch.randn(2, 3, 3))
    assert has_position.all()
    assert points.unique().tolist() == [4.0]


def test_patch_depth_learns_the_scale_of_depth() -> None:
    places = PatchDepthPlaces(8, units_per_metre=8.0)
    coordinates, has_position = places.patches(_view(), 16, 2, CPU)
    assert has_position.all()
    torch.testing.assert_close(coordinates[..., :2], GridPlaces(8).patches(_view(), 16, 2, CPU)[0])
    torch.testing.assert_close(coordinates[..., 2], torch.full((2, 64), 4.0))
    coordinates[..., 2].sum().backward()
    assert places.slope.grad is not None
    torch.testing.assert_close(
        places.slope.grad, torch.tensor(64.0)
    )  # 128 patches at half a metre.
    assert places.no_weight_decay() == {name for name, _ in places.named_parameters()}


@pytest.mark.parametrize("choice", [PatchDepthPlaces(), *METRIC])
def test_patches_without_depth_have_no_place(choice: Coordinates) -> None:
    depth = torch.full((2, 128, 128), 500)
    depth[1, :16, 16:32] = 0
    _, has_position = choice.patches(_view(depth=depth), 16, 2, CPU)
    assert (~has_position).nonzero().tolist() == [[1, 1]]


def test_a_camera_without_geometry_has_no_metric_places() -> None:
    for choice in METRIC:
        coordinates, has_position = choice.patches(_view(geometry=False), 16, 2, CPU)
        assert coordinates.shape == (2, 64, choice.axes)
        assert not has_position.any()
    assert PatchDepthPlaces().patches(_view(geometry=False), 16, 2, CPU)[1].all()


def test_a_camera_without_depth_has_grid_places_only() -> None:
    view = View(height=128, width=128)
    assert GridPlaces().patches(view, 16, 2, CPU)[1].all()
    for choice in (PatchDepthPlaces(), *METRIC):
        assert not choice.patches(view, 16, 2, CPU)[1].any()


def test_metric_points_are_unchanged() -> None:
    points = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0))
    coordinates, has_position = MetricPlaces().points(points)
    torch.testing.assert_close(coordinates, points)
    assert has_position.all()


def test_places_depend_on_the_keys_that_they_read() -> None:
    """Keys outside of `reads` have no effect; without a key of `reads` a patch has no place."""
    everything = _view()
    for choice in CHOICES:
        before, has_position = choice.patches(everything, 16, 2, CPU)
        for kind in ("depth", "intrinsics", "T_base_camera"):
            without, still = choice.patches(replace(everything, **{kind: None}), 16, 2, CPU)  # type: ignore[arg-type]
            same = torch.equal(without, before) and torch.equal(still, has_position)
            assert same == (kind not in choice.reads), (choice, kind)


def test_a_grid_of_one_is_the_relative_scaling_of_comrope() -> None:
    """Coordinates are (i + 1/2) / n in the image of n patches, whatever its size and shape."""
    for height, width in ((128, 128), (64, 192)):
        coordinates, _ = GridPlaces(1).patches(View(height=height, width=width), 16, 2, CPU)
        rows, columns = height // 16, width // 16
        expected = [
            [(column + 0.5) / columns, (row + 0.5) / rows]
            for row in range(rows)
            for column in range(columns)
        ]
        torch.testing.assert_close(coordinates, torch.tensor([expected, expected]))
    assert GridPlaces(1).points(torch.zeros(1, 1, 3))[0].tolist() == [[[0.5, 0.5]]]


def test_a_grid_may_have_different_numbers_of_rows_and_columns() -> None:
    coordinates, _ = GridPlaces((4, 12)).patches(View(height=64, width=192), 16, 1, CPU)
    assert coordinates[0, [0, 1, 12, -1]].tolist() == [
        [0.5, 0.5],
        [1.5, 0.5],
        [0.5, 1.5],
        [11.5, 3.5],
    ]
    assert GridPlaces((4, 12)).points(torch.zeros(1, 1, 3))[0].tolist() == [[[6.0, 2.0]]]


@pytest.mark.parametrize("grid", [0, (4,), (4, 0), (4.5, 4)])
def test_an_invalid_grid_is_rejected(grid: int) -> None:
    for kind in (GridPlaces, PatchDepthPlaces):
        with pytest.raises(ValueError, match="grid is .*allowed: a number of patches from 1"):
            kind(grid)


PERTURBED: list[Coordinates] = [
    GridPlaces(perturbation=1.0),
    PatchDepthPlaces(perturbation=1.0),
    MetricPlaces(perturbation=1.0),
    SphericalPlaces(perturbation=1.0),
    CylindricalPlaces(perturbation=1.0),
]


@pytest.mark.parametrize("choice", PERTURBED)
def test_perturbation_acts_in_training_only_and_not_on_points(choice: Coordinates) -> None:
    assert isinstance(choice, torch.nn.Module)
    plain = type(choice)()
    points = torch.tensor([[[0.3, 0.2, 0.1]]])
    torch.testing.assert_close(
        choice.eval().patches(_view(), 16, 2, CPU)[0], plain.patches(_view(), 16, 2, CPU)[0]
    )
    torch.manual_seed(0)
    first, second = (choice.train().patches(_view(), 16, 2, CPU)[0] for _ in range(2))
    assert (first[0] != first[1]).any(dim=-1).all()  # Each example has its own,
    assert (first != second).any(dim=-1).all()  # and each call.
    torch.manual_seed(0)
    assert torch.equal(choice.patches(_view(), 16, 2, CPU)[0], first)
    assert torch.equal(choice.points(points)[0], plain.points(points)[0])


def test_a_moved_patch_stays_within_its_cell_at_its_depth() -> None:
    torch.manual_seed(0)
    centres = GridPlaces().patches(_view(), 16, 2, CPU)[0]
    for choice in (PERTURBED[0], PERTURBED[1]):
        offset = choice.patches(_view(), 16, 2, CPU)[0][..., :2] - centres
        assert 0.4 < offset.abs().max() <= 0.5
    torch.testing.assert_close(
        PERTURBED[1].patches(_view(), 16, 2, CPU)[0][..., 2], torch.full((2, 64), 4.0)
    )
    moved = PERTURBED[2].patches(_view(), 16, 2, CPU)[0]
    torch.testing.assert_close(moved[..., 2], torch.full((2, 64), 0.5))  # The camera looks along z.
    offset = (moved - MetricPlaces().patches(_view(), 16, 2, CPU)[0])[..., :2] * (
        128 * 1.2 / 0.5 / 16
    )
    assert 0.4 < offset.abs().max() <= 0.5 + 1e-5


@pytest.mark.parametrize("choice", CHOICES)
def test_invalid_points_are_rejected(choice: Coordinates) -> None:
    for points in (
        torch.zeros(2, 3),
        torch.zeros(2, 4, 2),
        torch.zeros(2, 4, 3, dtype=torch.int64),
    ):
        with pytest.raises(ValueError, match=r"Points are .*allowed: \(B, M, 3\) floating point"):
            choice.points(points)
    with pytest.raises(ValueError, match="Points hold nan; allowed: finite metres"):
        choice.points(torch.full((1, 1, 3), torch.nan))


@pytest.mark.parametrize("choice", CHOICES)
def test_patches_that_do_not_tile_are_rejected(choice: Coordinates) -> None:
    with pytest.raises(ValueError, match="128x128; allowed: multiples of the patch of 24 pixels"):
        choice.patches(_view(), 24, 2, CPU)


@pytest.mark.parametrize("kind", [PatchDepthPlaces, MetricPlaces])
def test_an_unknown_rule_for_missing_depth_is_refused(
    kind: type[PatchDepthPlaces | MetricPlaces],
) -> None:
    with pytest.raises(ValueError, match="no missing_depth 'excluded'. Did you mean 'exclude'"):
        kind(missing_depth="excluded")  # type: ignore[arg-type]
