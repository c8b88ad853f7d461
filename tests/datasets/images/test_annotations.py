"""Readers and writers of COCO's and Omni3D's JSON."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pycocotools.coco import COCO
from tests.datasets.images.labelled_items import (
    TURN,
    labelled_clip,
    labelled_image,
    random_pixels,
    read_all,
    write_png,
)

from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.images.coco import CocoImages, write_coco
from stringline.datasets.images.image_store import ImageStore, ImageWriter
from stringline.datasets.images.labelled_image import Box3d, LabelledImage, LabelledObject
from stringline.datasets.images.omni3d import Omni3dImages, write_omni3d


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    """Three images: with a 2D and a 3D box, without objects, and without a camera."""
    with ImageWriter(tmp_path / "store") as writer:
        writer.add(labelled_image())
        writer.add(labelled_image(objects=(), segments=None, captions=()))
        writer.add(labelled_image(intrinsics=None))
    return ImageStore(tmp_path / "store")


def test_what_write_coco_writes_pycocotools_reads(store: ImageStore, tmp_path: Path) -> None:
    left_out = write_coco(store, tmp_path / "coco")
    assert left_out.counts == {("objects", "without a 2D box"): 2}
    assert "objects  2: without a 2D box (the first: image 1, table)" in left_out.table()
    with contextlib.redirect_stdout(io.StringIO()):
        instances = COCO(tmp_path / "coco" / "instances.json")
        captions = COCO(tmp_path / "coco" / "captions.json")
    assert instances.getImgIds() == [1, 2, 3]
    (note,) = instances.loadAnns(instances.getAnnIds(imgIds=[1]))
    assert note["bbox"] == [1.5, 2, 8.5, 10]
    segments = store.image(0).segments
    assert segments is not None
    assert note["area"] == (segments == 1).sum()
    assert instances.cats[note["category_id"]]["name"] == "chair"
    notes = captions.loadAnns(captions.getAnnIds(imgIds=[3]))
    assert tuple(dict(each)["caption"] for each in notes) == store.image(2).captions


def test_coco_round_trip(store: ImageStore, tmp_path: Path) -> None:
    write_coco(store, tmp_path / "coco")
    reader = CocoImages(captions=str(tmp_path / "coco" / "captions.json"))
    found, left_out = read_all(reader, tmp_path / "coco" / "instances.json")
    assert not left_out
    for number, image in enumerate(found):
        assert isinstance(image, LabelledImage)
        before = store.image(number)
        np.testing.assert_array_equal(image.rgb, before.rgb)
        assert image.captions == before.captions
        kept = [each for each in before.objects if each.box2d is not None]
        assert [each.name for each in image.objects] == [each.name for each in kept]
        for one, other in zip(image.objects, kept, strict=True):
            np.testing.assert_array_equal(one.box2d, other.box2d)


def test_omni3d_round_trip(store: ImageStore, tmp_path: Path) -> None:
    left_out = write_omni3d(store, tmp_path / "omni3d")
    assert left_out.counts == {("images", "without intrinsics"): 1}
    found, left_out_again = read_all(Omni3dImages(), tmp_path / "omni3d" / "omni3d.json")
    assert left_out_again == {("3D boxes", "not valid (valid3D)"): 1}
    assert len(found) == 2
    image = found[0]
    before = store.image(0)
    assert isinstance(image, LabelledImage)
    assert (image.room, image.source) == ("room-1", "living")
    np.testing.assert_array_equal(image.intrinsics, before.intrinsics)
    chair = image.objects[0]
    assert (chair.name, chair.visibility, chair.truncation) == ("chair", 0.75, 0.0)
    assert chair.box3d is not None
    assert before.objects[0].box3d is not None
    for name in ("centre", "rotation", "size"):
        expected = getattr(before.objects[0].box3d, name)
        np.testing.assert_array_equal(getattr(chair.box3d, name), expected)
    np.testing.assert_array_equal(chair.box2d, before.objects[0].box2d)
    assert image.objects[1].box3d is None
    assert image.objects[1].box2d is None
    with contextlib.redirect_stdout(io.StringIO()):
        assert len(COCO(tmp_path / "omni3d" / "omni3d.json").anns) == 2


def test_omni3d_has_width_along_z_and_length_along_x(tmp_path: Path) -> None:
    """Its corners 0 and 1 differ along x by the length, 1 and 2 along y, 0 and 4 along z."""
    box = Box3d(np.array([0.0, 0, 3]), TURN, np.array([0.1, 0.2, 0.3]))
    with ImageWriter(tmp_path / "store") as writer:
        objects = (LabelledObject(name="box", box3d=box),)
        writer.add(labelled_image(objects=objects, segments=None))
    write_omni3d(ImageStore(tmp_path / "store"), tmp_path / "out")
    (note,) = json.loads((tmp_path / "out" / "omni3d.json").read_text())["annotations"]
    assert note["dimensions"] == [0.3, 0.2, 0.1]
    corners = np.array(note["bbox3D_cam"])
    np.testing.assert_allclose(corners[1] - corners[0], TURN @ [0.1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(corners[2] - corners[1], TURN @ [0, 0.2, 0], atol=1e-12)
    np.testing.assert_allclose(corners[4] - corners[0], TURN @ [0, 0, 0.3], atol=1e-12)
    key = np.lexsort(corners.T)
    np.testing.assert_allclose(corners[key], box.corners()[np.lexsort(box.corners().T)], atol=1e-12)


def test_writers_refuse_clips_and_existing_folders(store: ImageStore, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="exists already"):
        write_coco(store, tmp_path / "store")
    with ImageWriter(tmp_path / "clips") as writer:
        writer.add_clip(labelled_clip())
    with pytest.raises(ValueError, match="is a store of clips; allowed: images"):
        write_omni3d(ImageStore(tmp_path / "clips"), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clips", "store"]


def coco_file(path: Path, **changes: Any) -> Path:
    """Writes four images, of which two are intact, and a JSON file with many faults."""
    write_png(path / "a.png", random_pixels(1))
    write_png(path / "b.png", random_pixels(2))
    write_png(path / "small.png", random_pixels(3, 4, 4))
    names = ["a.png", "b.png", "missing.png", "small.png", "../a.png"]
    good = {"image_id": 0, "category_id": 18, "bbox": [1, 2, 3, 4], "iscrowd": 0}
    notes: list[dict[str, Any]] = [
        good | {"category_id": [18]},
        good | {"image_id": {}},
        good | {"segmentation": [[1, 2, 3, 4, 5, 6]]},
        good | {"bbox": [-1, -1, -1, -1]},
        good | {"bbox": [3, 3, 0, 2]},
        good | {"bbox": None},
        good | {"iscrowd": 1},
        good | {"category_id": 5},
        good | {"image_id": 77},
        good | {"image_id": 1, "bbox": [500, 500, 10, 10]},
        good | {"image_id": 1, "bbox": [-0.4, 2, 5, 100]},
        {"image_id": 1, "caption": " a dog "},
    ]
    plain = {
        "images": [
            {"id": n, "file_name": name, "height": 8, "width": 10} for n, name in enumerate(names)
        ],
        "annotations": [note | {"id": number} for number, note in enumerate(notes)],
        "categories": [{"id": 18, "name": "dog"}],
    }
    (path / "instances.json").write_text(json.dumps(plain | changes))
    return path / "instances.json"


def test_faults_of_coco_files_are_counted(tmp_path: Path) -> None:
    found, left_out = read_all(CocoImages(), coco_file(tmp_path))
    first, second = found
    assert isinstance(first, LabelledImage)
    assert isinstance(second, LabelledImage)
    (dog,) = first.objects
    assert dog.name == "dog"
    assert dog.box2d is not None
    assert dog.box2d.tolist() == [1, 2, 4, 6]
    (cut,) = second.objects
    assert cut.box2d is not None
    np.testing.assert_allclose(cut.box2d, [0, 2, 4.6, 8])
    assert second.captions == ("a dog",)
    assert left_out == {
        ("annotations", "the file lists no such image"): 2,
        ("objects", "without a box, or of no area"): 3,
        ("objects", "crowds (iscrowd)"): 1,
        ("objects", "their category is not in the file"): 2,
        ("objects", "their box is outside of the image"): 1,
        ("parts of boxes", "beyond the image"): 1,
        ("segmentations", "only boxes are read"): 1,
        ("images", "the file is missing"): 1,
        ("images", "their size is not that in the JSON file"): 1,
        ("images", "their path leaves the folder of the images"): 1,
    }


@pytest.mark.parametrize("images", [None, {}, [1]])
def test_other_json_is_an_error(tmp_path: Path, images: object) -> None:
    with pytest.raises(ForeignDataError, match="has no list 'images'; required"):
        read_all(CocoImages(), coco_file(tmp_path, images=images))
    (tmp_path / "cut.json").write_text('{"images": [')
    with pytest.raises(ForeignDataError, match=r"cut.json is not a JSON file"):
        read_all(Omni3dImages(), tmp_path / "cut.json")


def test_faults_of_omni3d_boxes_are_counted(tmp_path: Path) -> None:
    write_png(tmp_path / "a.png", random_pixels(1))
    good: dict[str, Any] = {
        "image_id": 1,
        "category_name": "sofa",
        "valid3D": True,
        "center_cam": [0, 0, 2.0],
        "dimensions": [0.8, 0.7, 2.0],
        "R_cam": np.eye(3).tolist(),
        "bbox2D_tight": [-1, -1, -1, -1],
        "bbox2D_trunc": [1, 2, 5, 6],
        "visibility": -1,
        "truncation": 0.25,
    }
    changes: list[dict[str, Any]] = [
        {},
        {"valid3D": False},
        {"dimensions": [-1, -1, -1]},
        {"dimensions": [0.8, 0.0, 2.0]},
        {"center_cam": [0, 0, -2.0]},
        {"behind_camera": True},
        {"R_cam": [[1, 0.2, 0], [0, 1, 0], [0, 0, 1]]},
        {"R_cam": np.diag([1, 1, -1]).tolist()},
        {"category_name": None},
    ]
    image = {"file_path": "a.png", "height": 8, "width": 10}
    plain = {
        "images": [
            image | {"id": 1, "K": np.diag([9.0, 9, 1]).tolist()},
            image | {"id": 2, "K": -1},
        ],
        "annotations": [good | change for change in changes],
    }
    (tmp_path / "omni.json").write_text(json.dumps(plain))
    found, left_out = read_all(Omni3dImages(), tmp_path / "omni.json")
    (only,) = found
    assert isinstance(only, LabelledImage)
    assert [each.box3d is not None for each in only.objects] == [True] + 7 * [False]
    first = only.objects[0]
    assert first.box3d is not None
    assert first.box2d is not None
    assert first.box3d.size.tolist() == [2.0, 0.7, 0.8]
    assert first.box2d.tolist() == [1, 2, 5, 6]
    assert (first.visibility, first.truncation) == (None, 0.25)
    assert left_out == {
        ("3D boxes", "not valid (valid3D)"): 1,
        ("3D boxes", "unknown (-1)"): 1,
        ("3D boxes", "without volume"): 1,
        ("3D boxes", "behind the camera"): 2,
        ("3D boxes", "their axes are not orthogonal and right-handed"): 2,
        ("objects", "without the name of a category"): 1,
        ("images", "without intrinsics K"): 1,
    }
