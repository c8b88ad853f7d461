"""Transformations of the scene are shifts of canonical coordinates, without effect on attention."""

import math

import pytest
import torch
from torch import Tensor

from stringline import CylindricalPlaces, MetricPlaces, SphericalPlaces, View
from stringline.encoders.coordinates.canonical import CanonicalPlaces, DirectionPlaces

CPU = torch.device("cpu")
AZIMUTH = {SphericalPlaces: 1, CylindricalPlaces: 0}
ORIGIN, AXIS, FORWARD = (0.2, -0.4, 0.1), (0.3, -0.2, 2.0), (1.0, 1.0, 0.0)


def _about(axis: Tensor, angle: float) -> Tensor:
    """Returns the rotation (3, 3) about a direction, by its exponential."""
    x, y, z = (axis / axis.norm()).tolist()
    return torch.linalg.matrix_exp(
        angle * torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
    )


def _ahead(count: int = 40) -> Tensor:
    """Returns points (1, count, 3) within 50 degrees of `forward`, well off the axis."""
    generator = torch.Generator().manual_seed(0)
    axis = torch.tensor(AXIS, dtype=torch.float64)
    origin = torch.tensor(ORIGIN, dtype=torch.float64)
    forward = torch.tensor(FORWARD, dtype=torch.float64)
    upright = axis / axis.norm()
    forward = forward - (forward @ upright) * upright
    radial, height, turn = torch.rand(3, count, dtype=torch.float64, generator=generator)
    points = torch.stack(
        [
            _about(axis, math.radians(100 * float(a) - 50))
            @ (forward * (0.3 + float(r)) + upright * (float(h) - 0.5))
            for r, h, a in zip(radial, height, turn, strict=True)
        ]
    )
    return (points + origin).unsqueeze(0)


def _turned(points: Tensor, angle: float) -> Tensor:
    origin = torch.tensor(ORIGIN, dtype=torch.float64)
    return (points - origin) @ _about(torch.tensor(AXIS, dtype=torch.float64), angle).mT + origin


def _make(kind: type[CanonicalPlaces]) -> CanonicalPlaces:
    return kind(origin=ORIGIN, axis=AXIS, forward=FORWARD)


@pytest.mark.parametrize("kind", [SphericalPlaces, CylindricalPlaces])
@pytest.mark.parametrize("angle", [0.3, -1.1])
def test_a_rotation_about_the_axis_shifts_the_azimuth_only(
    kind: type[CanonicalPlaces], angle: float
) -> None:
    places, points = _make(kind), _ahead()
    (before, has_position) = places.points(points)
    (after, _) = places.points(_turned(points, angle))
    assert has_position.all()
    expected = torch.zeros(3, dtype=torch.float64)
    expected[AZIMUTH[kind]] = angle
    torch.testing.assert_close(after - before, expected.expand_as(after), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [SphericalPlaces, CylindricalPlaces])
def test_a_rotation_across_the_cut_shifts_it_up_to_full_turns(kind: type[CanonicalPlaces]) -> None:
    places, points = _make(kind), _ahead()
    difference = (places.points(_turned(points, 3.0))[0] - places.points(points)[0])[
        ..., AZIMUTH[kind]
    ]
    turns = (difference - 3.0) / (2 * math.pi)
    torch.testing.assert_close(turns, turns.round(), rtol=0, atol=1e-12)
    assert sorted(turns.round().unique().tolist()) == [-1.0, 0.0]


def test_the_angles_are_those_of_the_paper() -> None:
    """sin(theta) = sqrt(x^2 + y^2) / |r| and tan(phi) = y / x (section 3.3)."""
    r = torch.randn(1, 50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x, y, z = r.unbind(-1)
    theta, phi, distance = SphericalPlaces().points(r)[0].unbind(-1)
    torch.testing.assert_close(theta.sin(), (x.square() + y.square()).sqrt() / r.norm(dim=-1))
    torch.testing.assert_close(phi.tan(), y / x)
    torch.testing.assert_close(distance.exp(), r.norm(dim=-1))
    assert torch.equal(theta < math.pi / 2, z > 0)
    assert torch.equal(DirectionPlaces().points(r)[0], torch.stack((theta, phi), dim=-1))


@pytest.mark.parametrize("kind", [SphericalPlaces, CylindricalPlaces])
def test_the_map_is_injective(kind: type[CanonicalPlaces]) -> None:
    r = torch.randn(1, 50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    first, second, third = kind().points(r)[0].unbind(-1)
    if kind is SphericalPlaces:
        back = (
            torch.stack(
                (first.sin() * second.cos(), first.sin() * second.sin(), first.cos()), dim=-1
            )
            * third.exp()[..., None]
        )
    else:
        back = torch.stack((second * first.cos(), second * first.sin(), third), dim=-1)
    torch.testing.assert_close(back, r)


def test_shifts_of_the_other_coordinates_are_transformations_too() -> None:
    points, origin = _ahead(), torch.tensor(ORIGIN, dtype=torch.float64)
    upright = torch.tensor(AXIS, dtype=torch.float64)
    upright = upright / upright.norm()
    spherical = _make(SphericalPlaces)
    cylindrical = CylindricalPlaces(radius=0.5, origin=ORIGIN, axis=AXIS, forward=FORWARD)
    grown = spherical.points((points - origin) * 1.7 + origin)[0] - spherical.points(points)[0]
    torch.testing.assert_close(
        grown, grown.new_tensor((0, 0, math.log(1.7))).expand_as(grown), rtol=0, atol=1e-12
    )
    raised = cylindrical.points(points + 0.25 * upright)[0] - cylindrical.points(points)[0]
    torch.testing.assert_close(
        raised, raised.new_tensor((0, 0, 0.5)).expand_as(raised), rtol=0, atol=1e-12
    )
    # A polar rotation moves each point along its meridian: about the axis perpendicular to it.
    tipped = []
    for point in points[0]:
        meridian = torch.linalg.cross(upright, point - origin)
        tipped.append(_about(meridian, 0.2) @ (point - origin) + origin)
    polar = spherical.points(torch.stack(tipped).unsqueeze(0))[0] - spherical.points(points)[0]
    torch.testing.assert_close(
        polar, polar.new_tensor((0.2, 0, 0)).expand_as(polar), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("kind", [SphericalPlaces, CylindricalPlaces])
def test_points_on_the_axis_have_no_place_and_finite_gradients(
    kind: type[CanonicalPlaces],
) -> None:
    points = torch.tensor(
        [[[0.0, 0, 0], [0, 0, 0.5], [1e-7, 0, 0.3], [1e-3, 0, 0.3], [0.4, 0.1, 0]]],
        requires_grad=True,
    )
    coordinates, has_position = kind().points(points)
    assert has_position.tolist() == [[False, False, False, True, True]]
    assert coordinates.isfinite().all()
    coordinates.square().sum().backward()
    assert points.grad is not None
    assert points.grad.isfinite().all()
    assert points.grad[0, :3].abs().max() == 0
    assert points.grad[0, 3:].abs().max() > 0


def test_the_cut_is_opposite_to_forward() -> None:
    places = SphericalPlaces(forward=(0.0, 2.0, 1.0))
    points = torch.tensor(
        [[[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [1e-4, -1.0, 0.0], [-1e-4, -1.0, 0.0]]]
    )
    expected = torch.tensor([0.0, math.pi / 2, -math.pi, math.pi])
    torch.testing.assert_close(places.points(points)[0][0, :, 1], expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("kind", [SphericalPlaces, CylindricalPlaces])
def test_patches_have_the_coordinates_of_their_points(kind: type[CanonicalPlaces]) -> None:
    generator = torch.Generator().manual_seed(2)
    depth = torch.randint(300, 900, (2, 32, 32), generator=generator).double()
    depth[0, :16, :16] = 0
    pose = torch.eye(4, dtype=torch.float64).repeat(2, 1, 1)
    pose[:, :3, 3] = torch.randn(2, 3, dtype=torch.float64, generator=generator)
    K = torch.tensor([[40.0, 0, 16], [0, 40, 16], [0, 0, 1]], dtype=torch.float64).expand(2, 3, 3)
    view = View(height=32, width=32, depth=depth, intrinsics=K, T_base_camera=pose)
    metric, known = MetricPlaces().patches(view, 16, 2, CPU)
    coordinates, has_position = _make(kind).patches(view, 16, 2, CPU)
    assert torch.equal(has_position, known)
    torch.testing.assert_close(coordinates[has_position], _make(kind).points(metric)[0][known])
    assert coordinates.isfinite().all()


@pytest.mark.parametrize("kind", [SphericalPlaces, CylindricalPlaces])
def test_invalid_frames_are_rejected(kind: type[CanonicalPlaces]) -> None:
    for axis, forward in (
        ((0.0, 0, 1), (0.0, 0, -3)),
        ((0.0, 0, 0), (1.0, 0, 0)),
        ((0.0, 0, 1), (0.0, 0, 0)),
    ):
        with pytest.raises(
            ValueError, match="axis is .* and forward is .*two vectors that are not parallel"
        ):
            kind(axis=axis, forward=forward)
    with pytest.raises(ValueError, match=r"origin is \(0.0, nan, 0.0\)"):
        kind(origin=(0.0, math.nan, 0.0))
    with pytest.raises(ValueError, match=r"forward is \(1.0, 0.0\); allowed: three"):
        kind(forward=(1.0, 0.0))


def test_a_radius_that_is_not_positive_is_rejected() -> None:
    with pytest.raises(ValueError, match="radius is 0.0; allowed: above 0, in metres"):
        CylindricalPlaces(radius=0.0)
