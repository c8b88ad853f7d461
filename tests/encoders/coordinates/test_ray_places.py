"""Patches without depth are on their ray, at the prior depth and with its spread."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from stringline.encoders.coordinates.coordinates import MetricPlaces, RayPlaces, patches_with_spread
from stringline.encoders.coordinates.geometry import View, patch_centres, patch_spread

CPU = torch.device("cpu")
INTRINSICS = torch.tensor([[[60.0, 0, 24], [0, 60, 16], [0, 0, 1]]], dtype=torch.float64)
# Above the table and directed downwards: x right, y towards the operator, z down.
DOWN = torch.tensor(
    [[[1.0, 0, 0, 0.3], [0, -1, 0, 0.1], [0, 0, -1, 0.9], [0, 0, 0, 1]]], dtype=torch.float64
)


def _view(depth: Tensor | None = None, T_base_camera: Tensor = DOWN) -> View:
    return View(
        height=32, width=48, depth=depth, intrinsics=INTRINSICS, T_base_camera=T_base_camera
    )


def _seen(
    coordinates: RayPlaces, depth: Tensor | None = None, T_base_camera: Tensor = DOWN
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns places, their existence, and their spread."""
    places, known, spread = coordinates.patches_with_spread(_view(depth, T_base_camera), 16, 1, CPU)
    assert spread is not None
    return places, known, spread


def _pixels(places: Tensor, T_base_camera: Tensor = DOWN) -> Tensor:
    """Returns the pixels (u, v) on which points (1, N, 3) appear."""
    to_camera = torch.linalg.inv(T_base_camera)
    seen = places @ to_camera[:, :3, :3].mT + to_camera[:, None, :3, 3]
    flat: Tensor = seen @ INTRINSICS.mT
    return flat[..., :2] / flat[..., 2:]


def test_patches_without_depth_are_where_their_rays_meet_the_plane() -> None:
    places, known, spread = _seen(RayPlaces(plane_m=0.05, spread=0.2))
    assert known.all()
    torch.testing.assert_close(places[..., 2], torch.full_like(places[..., 2], 0.05))
    torch.testing.assert_close(_pixels(places)[0], patch_centres(32, 48, 16).double())
    # The camera is 0.85 m above the plane; the spread is 0.2 of the depth along the ray.
    torch.testing.assert_close(spread, 0.2 * (places - DOWN[:, None, :3, 3]))


def test_rays_that_do_not_meet_the_plane_are_at_the_far_end() -> None:
    upwards = DOWN.clone()
    upwards[:, :3, :3] = torch.eye(3)
    away = RayPlaces(range_m=(0.1, 1.2)).patches(_view(T_base_camera=upwards), 16, 1, CPU)[0]
    torch.testing.assert_close(away[..., 2], torch.full_like(away[..., 2], 0.9 + 1.2))
    level = DOWN.clone()
    level[:, :3, :3] = torch.tensor([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]])
    below = torch.tensor([[0.0, 0, 0], [0, 0, 8], [0, 0, 0]])  # The rays of a row become level.
    view = replace(_view(T_base_camera=level), intrinsics=INTRINSICS + below)
    places = RayPlaces(range_m=(0.1, 1.2)).patches(view, 16, 1, CPU)[0]
    assert (places[..., 2] == 0.9).sum() == 3
    torch.testing.assert_close(places[..., 1], torch.full_like(places[..., 1], 0.1 + 1.2))


def test_without_a_plane_the_depth_is_the_middle_of_the_range() -> None:
    """So shifts and rotations of the world move the places with it."""
    coordinates = RayPlaces(plane_m=None, range_m=(0.2, 1.0), spread=0.2)
    places, _, spread = _seen(coordinates)
    torch.testing.assert_close(places[..., 2], torch.full_like(places[..., 2], 0.9 - 0.6))
    world, _ = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)))
    motion = torch.eye(4, dtype=torch.float64)
    motion[:3, :3] = world.double()
    motion[:3, 3] = torch.tensor([0.4, -1.0, 2.0])
    moved, _, turned = _seen(coordinates, T_base_camera=motion @ DOWN)
    torch.testing.assert_close(moved, places @ motion[:3, :3].mT + motion[:3, 3])
    torch.testing.assert_close(turned, spread @ motion[:3, :3].mT)


def test_cameras_with_a_depth_of_their_own_do_not_see_the_plane() -> None:
    """Their patches are on a plane that moves with them; other cameras are not affected."""
    coordinates = RayPlaces(depth_m={"wrist": 0.3}, spread=0.2)
    turned = DOWN.clone()
    turned[:, :3, :3] = DOWN[:, :3, :3] @ torch.tensor(
        [[0.6, 0, 0.8], [0, 1, 0], [-0.8, 0, 0.6]], dtype=torch.float64
    )
    for pose in (DOWN, turned):
        wrist = replace(_view(T_base_camera=pose), name="wrist")
        places, known, spread = coordinates.patches_with_spread(wrist, 16, 1, CPU)
        assert known.all()
        assert spread is not None
        along = (places - pose[:, None, :3, 3]) @ pose[:, :3, 2].mT
        torch.testing.assert_close(along, torch.full_like(along, 0.3))
        torch.testing.assert_close(_pixels(places, pose)[0], patch_centres(32, 48, 16).double())
        torch.testing.assert_close(spread, 0.2 * (places - pose[:, None, :3, 3]))
    other = replace(_view(), name="overhead")
    torch.testing.assert_close(
        coordinates.patches(other, 16, 1, CPU)[0], RayPlaces().patches(_view(), 16, 1, CPU)[0]
    )


def test_measured_depth_counts_and_holes_are_on_their_rays() -> None:
    depth = torch.full((1, 32, 48), 700)
    depth[:, :16, :16] = 0
    places, known, spread = _seen(RayPlaces(spread=0.2), depth)
    metric, measured = MetricPlaces().patches(_view(depth), 16, 1, CPU)
    prior = RayPlaces().patches(_view(), 16, 1, CPU)[0]
    assert known.all()
    assert measured.sum() == 5
    torch.testing.assert_close(places[measured], metric[measured])
    assert not spread[measured].any()
    torch.testing.assert_close(places[~measured], prior[~measured])
    assert (spread[~measured].norm(dim=-1) > 0.1).all()


def test_edges_of_the_depth_have_a_spread() -> None:
    depth = torch.full((1, 32, 48), 800)
    depth[:, :16, 8:16] = 400  # One patch is half object, half table.
    spread = _seen(RayPlaces(spread=0.2, edges=True), depth)[2]
    assert spread.norm(dim=-1)[0, 0] == pytest.approx(0.2, abs=0.02)
    assert spread[0, 1:].norm(dim=-1).max() < 1e-6
    generator = torch.Generator().manual_seed(0)
    noisy = torch.randint(300, 900, (1, 32, 48), generator=generator)
    expected = noisy[0, 16:, 32:].double().std(correction=0) / 1000
    assert patch_spread(noisy, 0.001, 16)[0, -1].double() == pytest.approx(
        expected.item(), abs=1e-6
    )


def test_a_placeholder_of_the_pose_gives_no_position() -> None:
    """Mixtures of stores fill in a pose without rotation for cameras without calibration."""
    view = replace(_view(), T_base_camera=torch.diag(torch.tensor([0.0, 0, 0, 1]))[None])
    places, known, spread = RayPlaces(spread=0.2).patches_with_spread(view, 16, 1, CPU)
    assert not known.any()
    assert spread is not None
    assert not spread.any()
    assert places.isfinite().all()


def test_exact_places_have_no_spread() -> None:
    exact = RayPlaces()
    assert exact.patches_with_spread(_view(), 16, 1, CPU)[2] is None
    torch.testing.assert_close(
        exact.patches(_view(), 16, 1, CPU)[0],
        RayPlaces(spread=0.2).patches(_view(), 16, 1, CPU)[0],
    )
    assert patches_with_spread(MetricPlaces(), _view(), 16, 1, CPU)[2] is None


def test_errors_say_what_is_allowed() -> None:
    with pytest.raises(ValueError, match="The view has no intrinsics"):
        RayPlaces().patches(View(height=32, width=48), 16, 1, CPU)
    with pytest.raises(ValueError, match=r"range_m is \[1.0, 0.5\]; allowed: two depths in metres"):
        RayPlaces(range_m=(1.0, 0.5))
    with pytest.raises(ValueError, match=r"range_m is \[1.0\]; allowed: two depths"):
        RayPlaces(range_m=(1.0,))
    with pytest.raises(ValueError, match="spread must be a number of at least 0"):
        RayPlaces(spread=-1.0)
    with pytest.raises(ValueError, match=r"depth_m.wrist must be a number above 0"):
        RayPlaces(depth_m={"wrist": 0.0})
    with pytest.raises(ValueError, match="plane_m must be a finite number"):
        RayPlaces(plane_m=float("nan"))
