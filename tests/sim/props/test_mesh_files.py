"""Meshes from folders: shape, texture and hull arrive; what cannot be simulated is refused."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sim.mesh_boxes import BOTTOM, SIZE, TOP, write_box, write_texture

from stringline.sim.props import mesh_objects
from stringline.sim.props.mesh_objects import find_meshes, load_mesh

pytest.importorskip("trimesh")


@pytest.mark.parametrize(("unit_m", "up"), [(1.0, "z"), (0.01, "z"), (1.0, "y")])
def test_a_box_keeps_its_size_texture_and_hull(tmp_path: Path, unit_m: float, up: str) -> None:
    path = write_box(tmp_path / "box.obj", scale=1 / unit_m)
    write_texture(tmp_path / "texture.png")
    mesh = load_mesh(path, unit_m=unit_m, up=up)
    expected = SIZE if up == "z" else (SIZE[0], SIZE[2], SIZE[1])
    np.testing.assert_allclose(mesh.high - mesh.low, expected, atol=1e-9)
    assert len(mesh.hull) == 8
    (part,) = mesh.parts
    assert part.texture is not None
    assert part.uv is not None
    assert part.texture.shape == (8, 4, 3)
    assert part.texture[0, 0].tolist() == list(TOP)
    assert len(part.uv) == len(part.vertices)
    assert (part.uv.min(), part.uv.max()) == (0, 1)
    assert part.colour.tolist() == [1, 1, 1, 1]
    corners = part.vertices[part.faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    outwards = corners.mean(1) - (mesh.low + mesh.high) / 2
    assert ((normals * outwards).sum(1) != 0).all()
    assert len({np.sign(each) for each in (normals * outwards).sum(1)}) == 1, "no face is mirrored"


def test_a_glb_is_the_same_mesh(tmp_path: Path) -> None:
    trimesh: Any = import_module("trimesh")
    obj = write_box(tmp_path / "box.obj")
    write_texture(tmp_path / "texture.png")
    trimesh.load_scene(obj).export(tmp_path / "box.glb")
    ours, theirs = load_mesh(obj), load_mesh(tmp_path / "box.glb")
    np.testing.assert_allclose(theirs.high - theirs.low, ours.high - ours.low, atol=1e-6)
    assert theirs.parts[0].texture is not None
    assert theirs.parts[0].texture[7, 0].tolist() == list(BOTTOM)


def test_layouts_of_data_sets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """YCB has several resolutions per object, Google Scanned Objects textures in a folder apart."""
    for resolution in ("google_16k", "poisson", "clouds"):
        write_box(tmp_path / "003_cracker_box" / resolution / "textured.obj")
    scanned = write_box(tmp_path / "Mug_White" / "meshes" / "model.obj")
    write_texture(tmp_path / "Mug_White" / "materials" / "textures" / "texture.png")
    plain = write_box(tmp_path / "block.obj")
    assert find_meshes(tmp_path) == {
        "003_cracker_box": tmp_path / "003_cracker_box" / "google_16k" / "textured.obj",
        "Mug_White": scanned,
        "block": plain,
    }
    assert "has no licence file" in caplog.text
    texture = load_mesh(scanned).parts[0].texture
    assert texture is not None
    assert texture[0, 0].tolist() == list(TOP)
    assert load_mesh(plain).parts[0].texture is None
    caplog.clear()
    (tmp_path / "LICENSE.txt").write_text("CC-BY 4.0")
    find_meshes(tmp_path)
    assert not caplog.text


def test_what_cannot_be_simulated_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = write_box(tmp_path / "box.obj")
    (tmp_path / "texture.png").write_text("no picture")
    with pytest.raises(ValueError, match=r"texture.png of .*box.obj is not an image"):
        load_mesh(box)
    write_texture(tmp_path / "texture.png")
    empty = tmp_path / "empty.obj"
    empty.write_text("v 0 0 0\nv 1 0 0\n")
    with pytest.raises(ValueError, match=r"empty.obj has 0 faces; allowed: 1 to 200000"):
        load_mesh(empty)
    flat = tmp_path / "flat.obj"
    flat.write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 1 1 0\nf 1 2 3\nf 2 4 3\n")
    with pytest.raises(ValueError, match=r"flat.obj is flat; physics needs"):
        load_mesh(flat)
    with pytest.raises(ValueError, match=r"0.04 mm thick; allowed: 0.1 mm and above"):
        load_mesh(box, unit_m=0.001)
    broken = tmp_path / "broken.glb"
    broken.write_bytes(b"glTF\x02\x00")
    with pytest.raises(ValueError, match=r"broken.glb cannot be read"):
        load_mesh(broken)
    with pytest.raises(ValueError, match=r"box.mtl is not a mesh file; allowed: .glb, .obj"):
        load_mesh(box.with_suffix(".mtl"))
    with pytest.raises(ValueError, match=r"There is no upward axis 'w'. .*Allowed: y, z"):
        load_mesh(box, up="w")
    monkeypatch.setattr(mesh_objects, "MOST_FACES", 11)
    with pytest.raises(ValueError, match=r"box.obj has 12 faces; allowed: 1 to 11"):
        load_mesh(box)
    with pytest.raises(ValueError, match=r"There is no folder .*nowhere"):
        find_meshes(tmp_path / "nowhere")
    (tmp_path / "bare").mkdir()
    with pytest.raises(ValueError, match=r"bare has no meshes; allowed: .glb, .obj"):
        find_meshes(tmp_path / "bare")
