"""Normals of planes, spheres and steps whose true normals are known."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stringline.encoders.coordinates.geometry import patch_centres, surface_normals

HEIGHT, WIDTH = 24, 32
K = torch.tensor([[[40.0, 0.7, 15.2], [0.0, 43.0, 11.1], [0.0, 0.0, 1.0]]], dtype=torch.float64)


def _rays(K: Tensor = K, height: int = HEIGHT, width: int = WIDTH) -> Tensor:
    """Returns (H, W, 3), the directions with z = 1 of all pixels, by inverting the whole matrix."""
    pixels = patch_centres(height, width, 1).double()
    homogeneous = torch.cat((pixels, torch.ones(len(pixels), 1, dtype=torch.float64)), dim=-1)
    return (homogeneous @ torch.linalg.inv(K[0]).mT).reshape(height, width, 3)


def _plane(normal: Tensor, distance_m: float, rays: Tensor | None = None) -> Tensor:
    """Returns the depth (1, H, W) of the plane normal . p = -distance."""
    rays = _rays() if rays is None else rays
    return (-distance_m / (rays @ normal)).unsqueeze(0)


def _unit(*components: float) -> Tensor:
    vector = torch.tensor(components, dtype=torch.float64)
    return vector / vector.norm()


def _pose(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    rotation, _ = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=generator))
    pose = torch.eye(4, dtype=torch.float64)
    pose[:3, :3] = rotation * torch.linalg.det(rotation)
    pose[:3, 3] = torch.randn(3, dtype=torch.float64, generator=generator)
    return pose.unsqueeze(0)


def _degrees(first: Tensor, second: Tensor) -> Tensor:
    cross = torch.linalg.cross(first, second.expand_as(first)).norm(dim=-1)
    return torch.atan2(cross, (first * second).sum(dim=-1)).rad2deg()


@pytest.mark.parametrize("radius_px", [1, 3])
@pytest.mark.parametrize("normal", [_unit(0, 0, -1), _unit(0.3, -0.5, -1), _unit(-0.8, 0.6, -1)])
def test_normals_of_a_plane_are_exact_up_to_the_border(normal: Tensor, radius_px: int) -> None:
    found = surface_normals(_plane(normal, 0.7), 1.0, K, radius_px=radius_px)
    torch.testing.assert_close(found, normal.expand(1, HEIGHT, WIDTH, 3), rtol=0, atol=1e-9)


def test_normals_of_a_sphere_point_away_from_its_centre() -> None:
    """The error of differences over one pixel is of second order in the resolution."""
    errors = []
    for finer in (1, 2):
        fine = K.clone()
        fine[:, :2] *= finer
        rays = _rays(fine, HEIGHT * finer, WIDTH * finer)
        centre, radius = torch.tensor([0.02, -0.01, 0.9], dtype=torch.float64), 0.2
        along, square = rays @ centre, rays.square().sum(dim=-1)
        root = along.square() - square * (centre.square().sum() - radius**2)
        z = torch.where(root > 0, (along - root.clamp(min=0).sqrt()) / square, 0.0)
        true = (rays * z.unsqueeze(-1) - centre) / radius
        found = surface_normals(z.unsqueeze(0), 1.0, fine)[0]
        assert (found[z == 0] == 0).all()
        inside = (true[..., 2] < -0.7) & (z > 0)
        assert inside.sum() > 30
        errors.append(float(_degrees(found, true)[inside].max()))
    assert errors[0] < 4
    assert errors[1] < errors[0] / 3


def test_normals_rotate_with_the_camera_and_ignore_its_position() -> None:
    depth, pose = _plane(_unit(0.3, -0.5, -1), 0.7), _pose()
    in_camera, in_base = surface_normals(depth, 1.0, K), surface_normals(depth, 1.0, K, pose)
    torch.testing.assert_close(in_base, in_camera @ pose[0, :3, :3].mT, rtol=0, atol=1e-12)
    moved = pose.clone()
    moved[:, :3, 3] += 5
    assert torch.equal(surface_normals(depth, 1.0, K, moved), in_base)


def test_two_cameras_agree_on_the_table() -> None:
    """Both observe the plane z = 0 of the base frame from different poses."""
    for tilt in (0.0, 0.4):
        cos, sin = math.cos(tilt), math.sin(tilt)
        pose = torch.eye(4, dtype=torch.float64)
        pose[:3, :3] = torch.tensor(
            [[1, 0, 0], [0, -cos, -sin], [0, sin, -cos]], dtype=torch.float64
        )
        pose[2, 3] = 0.8
        depth = (-pose[2, 3] / (_rays() @ pose[2, :3])).unsqueeze(0)
        found = surface_normals(depth, 1.0, K, pose.unsqueeze(0))
        torch.testing.assert_close(found, _unit(0, 0, 1).expand_as(found), rtol=0, atol=1e-9)


def test_a_hole_is_zero_and_leaves_its_neighbours_exact() -> None:
    normal = _unit(0.3, -0.5, -1)
    depth = _plane(normal, 0.7)
    depth[0, 5:9, 10:14] = 0
    depth[0, 20, 3] = torch.nan
    found, hole = surface_normals(depth, 1.0, K), ~(depth > 0)
    assert (found[hole] == 0).all()
    torch.testing.assert_close(
        found[~hole], normal.expand(int((~hole).sum()), 3), rtol=0, atol=1e-9
    )


def test_a_pixel_without_neighbours_has_no_normal() -> None:
    depth = torch.zeros(1, 3, 3)
    depth[0, 1, :] = 1.0  # A single row: the direction of the columns is unknown.
    assert (surface_normals(depth, 1.0, K.float()) == 0).all()


def test_nothing_is_averaged_over_an_edge() -> None:
    """A slanted near plane before a far wall: no normals at the step, correct ones elsewhere."""
    near, far = _unit(0.3, 0.2, -1), _unit(0, 0, -1)
    is_near = torch.zeros(1, HEIGHT, WIDTH, dtype=torch.bool)
    is_near[:, :, :11] = True
    found = surface_normals(torch.where(is_near, _plane(near, 0.5), _plane(far, 1.5)), 1.0, K)
    assert (found[:, :, 10:12] == 0).all()
    torch.testing.assert_close(found[:, :, :10], near.expand(1, HEIGHT, 10, 3), rtol=0, atol=1e-9)
    torch.testing.assert_close(
        found[:, :, 12:], far.expand(1, HEIGHT, WIDTH - 12, 3), rtol=0, atol=1e-9
    )


def test_an_edge_is_defined_by_a_slope() -> None:
    """A plane inclined by 75 degrees is an edge only with a smaller `steepest_deg`."""
    leaning = _unit(math.tan(math.radians(75)), 0, -1)
    rays = _rays()
    visible = (rays @ leaning) < -0.3
    depth = torch.where(visible, _plane(leaning, 0.7, rays), 0.0)
    assert (
        surface_normals(depth, 1.0, K)[visible.unsqueeze(0)].norm(dim=-1) > 0.99
    ).float().mean() > 0.5
    assert (surface_normals(depth, 1.0, K, steepest_deg=40.0) == 0).all()


def test_normals_have_length_one_or_zero_and_point_to_the_camera() -> None:
    generator = torch.Generator().manual_seed(0)
    depth = 800 + 40 * torch.rand(2, HEIGHT, WIDTH, generator=generator)
    depth[torch.rand(depth.shape, generator=generator) < 0.3] = 0
    found = surface_normals(depth.to(torch.uint16), 0.001, K.float().expand(2, 3, 3))
    assert found.dtype == torch.float32
    length = found.norm(dim=-1)
    assert ((length < 1e-6) | ((length - 1).abs() < 1e-5)).all()
    assert 0.2 < (length > 0).float().mean() < 0.9
    assert ((found * _rays().float()).sum(dim=-1)[length > 0] < 0).all()


def test_a_mirrored_image_has_the_same_normals_from_its_mirrored_camera() -> None:
    normal, mirrored = _unit(0.3, -0.5, -1), K.clone()
    mirrored[:, 0, 0] *= -1
    mirrored[:, 0, 1] *= -1
    mirrored[:, 0, 2] = WIDTH - K[:, 0, 2]
    found = surface_normals(_plane(normal, 0.7).flip(2), 1.0, mirrored)
    torch.testing.assert_close(found, normal.expand_as(found), rtol=0, atol=1e-9)


def test_gradients_of_float_depth_are_right_and_finite_beside_holes() -> None:
    generator = torch.Generator().manual_seed(1)
    depth = 0.7 + 0.01 * torch.rand(1, 5, 6, dtype=torch.float64, generator=generator)
    assert torch.autograd.gradcheck(
        lambda z: surface_normals(z, 1.0, K, _pose()), depth.requires_grad_()
    )
    holed = depth.detach().clone()
    holed[0, 1:3, 2:5] = 0
    holed[0, 0, 0] = torch.nan
    holed.requires_grad_()
    surface_normals(holed, 1.0, K).square().sum().backward()
    assert holed.grad is not None
    assert holed.grad.isfinite().all()


def _mean_error_deg(noise_m: float, radius_px: int) -> float:
    normal = _unit(0.3, -0.5, -1)
    noise = torch.randn(
        1, HEIGHT, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    found = surface_normals(_plane(normal, 0.7) + noise_m * noise, 1.0, K, radius_px=radius_px)
    valid = found.norm(dim=-1) > 0
    return float(_degrees(found[valid], normal).mean())


def test_noise_of_depth_is_amplified_and_a_longer_reach_reduces_it() -> None:
    """The noise of normals: 3 mm at 70 cm, with 18 mm between pixels, are several degrees."""
    assert _mean_error_deg(0.0, 1) < 1e-6
    assert 2 < _mean_error_deg(0.003, 1) < 20
    assert _mean_error_deg(0.003, 1) > 2 * _mean_error_deg(0.001, 1)
    assert _mean_error_deg(0.003, 3) < _mean_error_deg(0.003, 1) / 2


Change = Callable[[], Tensor]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: surface_normals(torch.ones(4, 4), 1.0, K), r"depth has shape \(4, 4\)"),
        (
            lambda: surface_normals(torch.ones(1, 4, 4), 1.0, K, radius_px=0),
            "radius_px is 0.*radius_px from 1",
        ),
        (
            lambda: surface_normals(torch.ones(1, 4, 4), 1.0, K, steepest_deg=90.0),
            "steepest_deg is 90.0.*between 0 and 90",
        ),
    ],
)
def test_arguments_out_of_range_are_rejected(change: Change, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        change()
