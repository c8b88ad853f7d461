"""Objects of a folder: the split depends on names only, and what is left out is named."""

from pathlib import Path

import pytest
from tests.sim.mesh_boxes import write_box, write_texture

from stringline.sim.props.mesh_objects import MeshFolder

pytest.importorskip("trimesh")

COUNT = 40


def write_boxes(folder: Path, count: int = COUNT) -> Path:
    for number in range(count):
        write_box(folder / f"box_{number:02}.obj", scale=0.5 + number / count)
    write_texture(folder / "texture.png")
    (folder / "LICENSE").write_text("Public domain.\n")
    return folder


def names(source: MeshFolder) -> list[str]:
    return [item.name for item in source.objects()]


def test_each_object_is_either_held_out_or_not(tmp_path: Path) -> None:
    folder = write_boxes(tmp_path)
    kept = names(MeshFolder(folder, count=COUNT))
    held_out = names(MeshFolder(folder, count=COUNT, held_out=True))
    assert len(kept) > len(held_out) > 0
    assert sorted(kept + held_out) == [f"box_{number:02}" for number in range(COUNT)]


def test_further_files_change_neither_split_nor_order(tmp_path: Path) -> None:
    few = names(MeshFolder(write_boxes(tmp_path / "few", 20), count=COUNT))
    many = names(MeshFolder(write_boxes(tmp_path / "many"), count=COUNT))
    assert [name for name in many if name in few] == few
    assert names(MeshFolder(tmp_path / "many", count=3)) == many[:3]


def test_objects_that_cannot_be_used_are_left_out_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_boxes(tmp_path, 2)
    write_box(folder / "huge.obj", scale=3.0)
    (folder / "broken.obj").write_text("v 0 0 zero\n")
    found = names(MeshFolder(folder, share=0))
    assert sorted(found) == ["box_00", "box_01"]
    assert "which are left out: huge (120 x 180 x 300 mm)." in caplog.text
    assert "broken is left out: " in caplog.text


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"share must be a number of at least 0 and below 1 \(got 1\.5\)"
    ):
        MeshFolder(tmp_path, share=1.5)
    with pytest.raises(ValueError, match="count"):
        MeshFolder(tmp_path, count=0)
    with pytest.raises(ValueError, match="no held-out object that the gripper can grasp"):
        MeshFolder(write_boxes(tmp_path, 2), share=0, held_out=True).objects()
    with pytest.raises(ValueError, match="absent with meshes"):
        MeshFolder(tmp_path / "absent").objects()
