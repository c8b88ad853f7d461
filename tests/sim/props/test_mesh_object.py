"""Objects of meshes: they rest where their hull touches, and show their texture as stored."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from dm_control import mjcf
from tests.sim.mesh_boxes import BOTTOM, SIZE, TOP, write_box, write_texture

from stringline.sim.props.mesh_objects import MeshObject, load_mesh
from stringline.sim.props.prop import CONTACT
from stringline.sim.rendering.rendering import Renderer, set_flat_rendering

pytest.importorskip("trimesh")


def test_an_object_rests_on_its_hull_and_shows_its_texture(tmp_path: Path) -> None:
    """The texture's upper half, v from 0.5 to 1, is towards +y on the upper face of the box."""
    path = write_box(tmp_path / "box.obj")
    write_texture(tmp_path / "texture.png")
    box = MeshObject("box", load_mesh(path))
    assert box.rest_height == pytest.approx(SIZE[2] / 2)
    assert box.lowest(np.eye(4)) == pytest.approx(-SIZE[2] / 2)
    assert box.reach == pytest.approx(np.linalg.norm(SIZE) / 2)
    root = mjcf.RootElement()
    set_flat_rendering(root)
    root.worldbody.add("geom", type="plane", size=(1, 1, 0.1), contype=3, conaffinity=15)
    root.worldbody.add("camera", name="above", pos=(0, 0, 0.5), fovy=20)
    frame = root.attach(box.mjcf_model)
    frame.add("freejoint")
    frame.pos = (0, 0, box.rest_height + 0.01)
    physics = mjcf.Physics.from_mjcf_model(root)
    for _ in range(500):
        physics.step()
    place = physics.bind(frame).xpos
    np.testing.assert_allclose(place, (0, 0, box.rest_height), atol=2e-4)
    assert physics.bind(box.body).mass == pytest.approx(600 * np.prod(SIZE))
    assert physics.model.geom_contype.tolist().count(CONTACT["contype"]) == 1, "only the hull"
    with closing(Renderer(physics.model.ptr, 80, 80)) as renderer:
        renderer.update(physics.data.ptr)
        image = renderer.image(0)[0].astype(int)
    for row, colour in ((32, TOP), (48, BOTTOM)):
        seen = image[row, 40]
        assert np.argmax(seen) == np.argmax(colour), image[:, 40]
