"""Grasps of hulls: contacts face each other, and turn with the hull."""

import numpy as np
import pytest
from scipy.spatial import ConvexHull

from stringline.datasets.embodiments.transforms import rotation_about
from stringline.sim.props.mesh_objects import SKEW_DEG, hull_holds
from stringline.sim.props.objects import WIDEST

CORNERS = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) / 2


def ring(radius: float, height: float) -> np.ndarray:
    angles = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    return np.stack([radius * np.cos(angles), radius * np.sin(angles), 0 * angles + height], axis=1)


def test_a_box_is_held_across_the_two_sides_that_fit() -> None:
    """The best grasps; further ones are inclined."""
    points = CORNERS * (0.04, 0.2, 0.06)
    first, second = hull_holds(points)[:2]
    assert sorted(round(hold.width, 6) for hold in (first, second)) == [0.04, 0.06]
    for hold in hull_holds(points):
        np.testing.assert_allclose(hold.point, 0, atol=1e-9)


def test_contacts_are_on_the_surface_and_face_each_other() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        points = rng.normal(size=(30, 3)) * (0.03, 0.02, 0.02)
        hull = ConvexHull(points)
        for hold in hull_holds(points):
            for side in (-0.5, 0.5):
                contact = hold.point + side * hold.width * hold.across
                heights = hull.equations[:, :3] @ contact + hull.equations[:, 3]
                assert heights.max() == pytest.approx(0, abs=1e-7)
                normal = hull.equations[heights.argmax(), :3]
                assert 2 * side * normal @ hold.across > np.cos(np.radians(SKEW_DEG)) - 1e-6
            assert np.ptp(points @ hold.across) <= WIDEST


def test_the_best_grasps_turn_with_the_hull() -> None:
    turn = rotation_about(np.array([0.6, 0.0, 0.8]), 0.7)
    points = CORNERS * (0.04, 0.2, 0.06)
    turned = {round(hold.width, 6): hold for hold in hull_holds(points @ turn.T)[:2]}
    for hold in hull_holds(points)[:2]:
        other = turned[round(hold.width, 6)]
        assert abs(other.across @ turn @ hold.across) == pytest.approx(1, abs=1e-5)


def test_grasps_pass_through_the_centroid() -> None:
    """That of a pyramid is a quarter of its height above its base."""
    pyramid = np.array([(-1, -1, 0), (-1, 1, 0), (1, -1, 0), (1, 1, 0), (0, 0, 8)]) * 0.02
    holds = hull_holds(pyramid)
    assert any(hold.is_level() for hold in holds)
    for hold in holds:
        beside = np.cross(hold.across, hold.point - (0, 0, 0.04))
        np.testing.assert_allclose(beside, 0, atol=1e-9)


def test_a_cylinder_is_held_from_several_sides() -> None:
    holds = hull_holds(np.concatenate([ring(0.03, -0.04), ring(0.03, 0.04)]))
    level = [hold for hold in holds if hold.is_level()]
    assert len(level) >= 4
    for hold in level:
        assert 0.0595 < hold.width < 0.064


def test_steep_sides_give_no_grasp() -> None:
    """Opposite sides of the cone are inclined by 45 degrees."""
    cone = np.concatenate([ring(0.04, 0.0), [(0.0, 0.0, 0.04)]])
    assert not any(hold.is_level() for hold in hull_holds(cone))


def test_what_is_wider_than_the_gripper_has_no_grasp() -> None:
    assert not hull_holds(CORNERS * 0.12)
