"""Shapes of the page are MuJoCo's: volume, orientation of faces, colour and place."""

import mujoco
import numpy as np
import pytest

from stringline.sim.teleop.scene_view import Triangles, appearance, drawn_bodies, triangles

GEOM = mujoco.mjtGeom
XML = """
<mujoco>
  <asset>
    <material name="red" rgba="1 0 0 1"/>
    <mesh name="wedge" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>
  </asset>
  <worldbody>
    <body name="object" pos="1 0 0">
      <geom type="box" size="0.1 0.2 0.3" pos="0 0 1" quat="0.70710678 0 0 0.70710678"
        material="red"/>
      <geom type="sphere" size="0.1" rgba="1 0 0 1"/>
      <geom type="sphere" size="0.1" rgba="0 1 0 0.5"/>
      <geom type="sphere" size="0.1" rgba="0 1 0 0"/>
      <geom type="sphere" size="0.1" group="3"/>
    </body>
    <body name="wedge"><geom type="mesh" mesh="wedge"/></body>
    <body name="nothing"/>
  </worldbody>
</mujoco>
"""


def volume(surface: Triangles) -> float:
    """By the divergence theorem; positive if faces are oriented outwards."""
    a, b, c = np.moveaxis(surface.vertices[surface.faces], 1, 0)
    return float((a * np.cross(b, c)).sum() / 6)


@pytest.mark.parametrize(
    ("kind", "size", "expected"),
    [
        (GEOM.mjGEOM_BOX, (0.1, 0.2, 0.3), 8 * 0.1 * 0.2 * 0.3),
        (GEOM.mjGEOM_SPHERE, (0.1, 0, 0), 4 / 3 * np.pi * 0.1**3),
        (GEOM.mjGEOM_ELLIPSOID, (0.1, 0.2, 0.3), 4 / 3 * np.pi * 0.1 * 0.2 * 0.3),
        (GEOM.mjGEOM_CAPSULE, (0.1, 0.3, 0), np.pi * 0.1**2 * (0.6 + 4 / 3 * 0.1)),
        (GEOM.mjGEOM_CYLINDER, (0.1, 0.3, 0), np.pi * 0.1**2 * 0.6),
    ],
)
def test_volumes(kind: mujoco.mjtGeom, size: tuple[float, float, float], expected: float) -> None:
    surface = triangles(int(kind), np.array(size))
    assert expected * 0.96 < volume(surface) <= expected * (1 + 1e-12)
    edges = np.sort(
        np.concatenate(
            [surface.faces[:, [0, 1]], surface.faces[:, [1, 2]], surface.faces[:, [2, 0]]]
        ),
        axis=1,
    )
    places = np.unique(surface.vertices.round(9), axis=0, return_inverse=True)[1].reshape(-1)
    edges = np.sort(places[edges], axis=1)
    counts = np.unique(edges[edges[:, 0] != edges[:, 1]], axis=0, return_counts=True)[1]
    assert (counts % 2 == 0).all()  # Closed: each edge belongs to two triangles.


def test_planes_without_an_end_have_one() -> None:
    assert np.ptp(
        triangles(int(GEOM.mjGEOM_PLANE), np.array([0.0, 0.5, 0.1])).vertices, axis=0
    ).tolist() == [4.0, 1.0, 0.0]
    with pytest.raises(ValueError, match="Shapes of MuJoCo's kind mjGEOM_HFIELD cannot be drawn"):
        triangles(int(GEOM.mjGEOM_HFIELD), np.ones(3))


def test_bodies_have_their_visible_shapes() -> None:
    model = mujoco.MjModel.from_xml_string(XML)
    item, wedge = drawn_bodies(model)
    assert (item.number, wedge.number) == (1, 2)
    assert set(item.surfaces) == {(1.0, 0.0, 0.0, 1.0), (0.0, 1.0, 0.0, 0.5)}
    red = item.surfaces[1.0, 0.0, 0.0, 1.0].vertices
    np.testing.assert_allclose(
        red.max(axis=0), [0.2, 0.1, 1.3], atol=1e-6
    )  # The box lies across, and below it the sphere.
    assert red[:, 2].min() == pytest.approx(-0.1)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    (corners,) = wedge.surfaces.values()
    world = corners.vertices @ data.xmat[2].reshape(3, 3).T + data.xpos[2]
    assert {tuple(row) for row in world.round(6).tolist()} == {
        (0, 0, 0),
        (1, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
    }
    assert volume(corners) == pytest.approx(1 / 6)


def test_changes_of_appearance_are_detected() -> None:
    model = mujoco.MjModel.from_xml_string(XML)
    before = appearance(model)
    assert appearance(model) == before
    model.geom_rgba[1] = (0, 0, 1, 1)
    assert appearance(model) != before
