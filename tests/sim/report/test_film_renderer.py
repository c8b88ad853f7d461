"""Views contain what they frame; images for people have shadows, soft edges and a background."""

import mujoco
import numpy as np
import pytest
from dm_control import mjcf

from stringline.sim.rendering.rendering import set_flat_rendering
from stringline.sim.report.film import FilmRenderer, View

SCENE = """
<mujoco>
  <worldbody>
    <light directional="true" dir="0.3 0.3 -1" diffuse="0.6 0.6 0.6"/>
    <geom type="box" size="0.5 0.5 0.02" pos="0 0 -0.02" rgba="0.2 0.2 0.2 1"/>
    <body name="ball" pos="0 0 0.15"><freejoint/><geom size="0.1" rgba="1 0 0 1"/></body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize(("azimuth", "elevation"), [(90, -26), (115, -26), (-30, -60), (10, 0)])
def test_a_view_is_the_nearest_that_contains_all_points(azimuth: int, elevation: int) -> None:
    """In axes of the camera, computed by rotations, a point is at the edge and none beyond."""
    points = np.random.default_rng(0).normal(size=(30, 3)) * (0.6, 0.4, 0.2)
    view = View.of(points, aspect=16 / 9, azimuth_deg=azimuth, elevation_deg=elevation)
    a, e = np.radians([azimuth, elevation])
    forward = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
    right = np.cross(forward, [0, 0, 1])
    right /= np.linalg.norm(right)
    seen = points - (view.centre - view.distance * forward)
    across = seen @ right / (seen @ forward) / np.tan(np.radians(16)) / (16 / 9)
    upwards = seen @ np.cross(right, forward) / (seen @ forward) / np.tan(np.radians(16))
    furthest = max(np.abs(across).max(), np.abs(upwards).max())
    assert (seen @ forward > 0).all()
    assert furthest == pytest.approx(0.98, abs=1e-9)


def test_an_image_shows_a_lit_ball_with_its_shadow_and_leaves_the_model_alone() -> None:
    root = mjcf.from_xml_string(SCENE)
    set_flat_rendering(root)
    physics = mjcf.Physics.from_mjcf_model(root)
    model, data = physics.model.ptr, physics.data.ptr
    before = model.vis.quality.shadowsize, data.qpos.copy(), model.geom_rgba.copy()
    view = View.of(np.array([[-0.5, -0.5, 0], [0.5, 0.5, 0.3]]), aspect=1, azimuth_deg=90,
                   elevation_deg=-40)  # fmt: skip
    renderer = FilmRenderer(model, height=96, width=96, view=view)
    with_ball = renderer.image(data).astype(int)
    data.qpos[2] = -2.0  # Under the table.
    mujoco.mj_kinematics(model, data)
    without = renderer.image(data).astype(int)
    renderer.close()
    data.qpos[:] = before[1]
    changed = np.abs(with_ball - without).sum(axis=2)
    red = with_ball[..., 0] - with_ball[..., 1]
    assert (red > 100).sum() > 200
    # The shadow is where the table became darker and is not red.
    assert ((changed > 20) & (np.abs(red) < 10) & (with_ball[..., 0] < without[..., 0])).sum() > 50
    # Between ball and table are mixtures of both colours.
    assert ((red > 20) & (red < 80)).sum() > 10
    assert without[0, 0].min() > 150  # The background is light.
    assert model.vis.quality.shadowsize == before[0] == 0
    np.testing.assert_array_equal(model.geom_rgba, before[2])
