"""Catalogues of furniture: a small one of our own, and folders of meshes."""

import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stringline.sim.scenes import catalogue
from stringline.sim.scenes.catalogue import (
    entries_of_index,
    head_noun,
    load_assets,
    parse_properties,
)
from stringline.sim.scenes.room_renderer import RoomBuilder, RoomRenderer, View
from stringline.sim.scenes.rooms import PlacedAsset, Room
from stringline.sim.scenes.scene_images import looking

pytest.importorskip("trimesh")

# A cube from (0, 0, 0) to (1, 2, 1); y is up. The first face has a texture.
CUBE = """mtllib cube.mtl
v 0 0 0\nv 1 0 0\nv 1 2 0\nv 0 2 0\nv 0 0 1\nv 1 0 1\nv 1 2 1\nv 0 2 1
vt 0 0\nvt 1 0\nvt 1 1\nvt 0 1
usemtl paper
f 5/1 6/2 7/3 8/4
usemtl paint
f 4/4 3/3 2/2 1/1\nf 1/1 5/2 8/3 4/4\nf 2/1 3/2 7/3 6/4\nf 4/1 8/2 7/3 3/4\nf 1/1 2/2 6/3 5/4
"""
MATERIALS = "newmtl paper\nKd 1 1 1\nmap_Kd paper.jpg\nnewmtl paint\nKd 1 0 0\n"
ENTRY = """name#{n}={name}
model#{n}=/{model}
width#{n}=50
depth#{n}=40
height#{n}=120
elevation#{n}={elevation}
doorOrWindow#{n}={door}
license#{n}=CC0
"""
PIECES = [
    ("Caf\\u00e9 chair", "cube/cube.obj", 0, "false"),
    ("Clock", "cube/cube.obj", 150, "false"),
    ("Door", "cube/cube.obj", 0, "true"),
    ("Empty box", "empty/empty.obj", 0, "false"),
    ("Ghost", "ghost/ghost.obj", 0, "false"),
]


def write_catalogue(path: Path) -> Path:
    picture = io.BytesIO()
    Image.new("RGB", (300, 200), (0, 0, 255)).save(picture, "jpeg")
    text = "".join(
        ENTRY.format(n=n, name=name, model=model, elevation=elevation, door=door)
        for n, (name, model, elevation, door) in enumerate(PIECES, 1)
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("PluginFurnitureCatalog.properties", text)
        archive.writestr("cube/cube.obj", CUBE)
        archive.writestr("cube/cube.mtl", MATERIALS)
        archive.writestr("cube/paper.jpg", picture.getvalue())
        archive.writestr("empty/empty.obj", "v 0 0 0\nv 1 0 0\n")
    return path


def test_a_catalogue_gives_assets_of_the_stated_size(tmp_path: Path) -> None:
    found = load_assets(write_catalogue(tmp_path / "small.sh3f"))
    chair, clock, door = found.assets
    assert door.stand == "opening"
    assert (chair.name, chair.noun, chair.stand) == ("café chair", "chair", "floor")
    assert clock.stand == "wall"
    np.testing.assert_allclose(chair.size, (0.5, 0.4, 1.2), atol=1e-9)
    np.testing.assert_allclose(chair.low, (-0.25, -0.2, 0), atol=1e-9)
    assert chair.identity == "small/1"
    meshes = [solid.mesh for solid in chair.solids]
    [textured] = [mesh for mesh in meshes if mesh is not None and mesh.image is not None]
    assert textured.image is not None
    assert max(textured.image.shape[:2]) <= catalogue.MOST_PIXELS
    # The textured face is the front.
    np.testing.assert_allclose(textured.vertices[:, 1], -0.2, atol=1e-9)


def test_refused_pieces_are_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_catalogue(tmp_path / "small.sh3f")
    refused = dict(load_assets(path).refused)
    assert set(refused) == {"empty box", "ghost"}
    assert refused["ghost"] == "The archive lacks its model ghost/ghost.obj."
    monkeypatch.setattr(catalogue, "MOST_FACES", 11)
    refused = dict(load_assets(path).refused)
    assert refused["clock"] == "cube.obj has 12 faces; allowed: up to 11."


def test_the_cache_gives_the_same_assets_without_conversion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_catalogue(tmp_path / "small.sh3f")
    first = load_assets(path, tmp_path / "cache").assets

    def fail(*_: object) -> None:
        raise ValueError("converted again")

    monkeypatch.setattr(catalogue, "_arrays", fail)
    again = load_assets(path, tmp_path / "cache").assets
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.high, other.high)
        for a, b in zip(one.solids, other.solids, strict=True):
            assert a.mesh is not None
            assert b.mesh is not None
            np.testing.assert_array_equal(a.mesh.vertices, b.mesh.vertices)
            assert a.colour == b.colour


def test_a_folder_of_meshes_is_read_and_drawn(tmp_path: Path) -> None:
    (tmp_path / "red_cube.obj").write_text("\n".join(CUBE.splitlines()[1:]))
    [asset] = load_assets(tmp_path).assets
    assert (asset.name, asset.noun) == ("red cube", "cube")
    np.testing.assert_allclose(asset.size, (1, 1, 2))
    builder = RoomBuilder(np.random.default_rng(0), (96, 96))
    builder.add_room(Room(np.random.default_rng(0), (4.0, 4.0), 0.5, 10))
    builder.add(PlacedAsset(asset, np.zeros(3), 0.3), 0)
    renderer = RoomRenderer((96, 96))
    renderer.open(builder.compile())
    intrinsics = np.array([[40.0, 0, 24], [0, 40, 24], [0, 0, 1]])
    pose = looking(np.array([2.5, -2.5, 1.5]), np.array([0, 0, 1.0]))
    numbers, depth = renderer.objects(View(pose, intrinsics, 48, 48))
    renderer.close()
    assert 100 < (numbers == 1).sum() < 48 * 48
    assert depth[numbers == 1].min() > 2000


def test_a_mesh_without_a_name_is_refused_alone(tmp_path: Path) -> None:
    for name in ("_", "red_cube"):
        (tmp_path / f"{name}.obj").write_text("\n".join(CUBE.splitlines()[1:]))
    found = load_assets(tmp_path)
    assert [asset.name for asset in found.assets] == ["red cube"]
    assert found.refused == (("_.obj", "The name is ''; allowed: at least one word."),)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("width#2=", "width is ''; allowed: a number."),
        ("height#2=nan", "height is 'nan'; allowed: a number."),
        ("modelRotation#2=1 0 0", "modelRotation has 3 numbers; allowed: 9."),
        ("modelRotation#2=1 0 0 0 1 0 0 0 x", "modelRotation is 'x'; allowed: a number."),
    ],
)
def test_a_wrong_field_refuses_its_piece_alone(line: str, reason: str) -> None:
    text = "".join(
        ENTRY.format(n=n, name=name, model=model, elevation=elevation, door=door)
        for n, (name, model, elevation, door) in enumerate(PIECES, 1)
    )
    read = dict(entries_of_index(f"{text}{line}\n", "small"))
    assert read["ghost"]().size_m == (0.5, 0.4, 1.2)
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        read["clock"]()


def test_names_and_properties() -> None:
    assert head_noun("folding chair with cushion") == "chair"
    assert head_noun("chest of drawers") == "chest"
    text = "# a = b\nname#1 = A \\\n   B\\: C\n"
    assert parse_properties(text) == {"name#1": "A B: C"}


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.sh3f").write_text("x")
    with pytest.raises(ValueError, match=r"text.sh3f is no .sh3f catalogue; allowed: such a file"):
        load_assets(tmp_path / "text.sh3f")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a", "b")
    with pytest.raises(ValueError, match="has no PluginFurnitureCatalog.properties; allowed"):
        load_assets(tmp_path / "other.zip")
