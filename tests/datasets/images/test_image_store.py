"""Stores of labelled images and clips: round trips, errors, and interrupted writers.

Splits of labelled images: nothing in common, and known choices.
"""

import os
import pickle
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from tests.datasets.images.labelled_items import labelled_clip, labelled_image

from stringline import Box3d, EpisodeStore, ImageStore, ImageWriter, LabelledImage, LabelledObject
from stringline.datasets.images.image_store import split


def assert_equal(one: object, other: object) -> None:
    """Compares dataclasses field by field, arrays by value and type."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert isinstance(other, np.ndarray)
        np.testing.assert_array_equal(one, other, strict=True)
    elif isinstance(one, tuple) and isinstance(other, tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_equal(left, right)
    elif hasattr(one, "__dataclass_fields__"):
        for field in fields(one):  # type: ignore[arg-type]
            assert_equal(getattr(one, field.name), getattr(other, field.name))
    else:
        assert one == other


@pytest.fixture
def images() -> list[LabelledImage]:
    """Images of three shapes, with everything, with pixels only, and without objects."""
    return [
        labelled_image(),
        LabelledImage(rgb=np.zeros((5, 7, 3), np.uint8)),
        labelled_image(100, 90, label=None, captions=(), clean_depth=None),
        labelled_image(objects=(), segments=None, room="room-2"),
    ]


def test_images_read_as_they_were_added(tmp_path: Path, images: list[LabelledImage]) -> None:
    with ImageWriter(tmp_path / "store") as writer:
        assert [writer.add(image) for image in images] == [0, 1, 2, 3]
    store = ImageStore(tmp_path / "store")
    assert len(store) == 4
    for number, image in enumerate(images):
        assert_equal(store[number], image)
    assert_equal(store[-1], images[3])
    assert store.labels() == ["office", None, None, "office"]
    assert store.rooms() == ["room-1", "", "room-1", "room-2"]
    assert store.sources() == ["living", "", "living", "living"]
    assert store.assets() == [{"chair-3"}, set(), {"chair-3"}, set()]
    assert store.names() == [{"chair", "table"}, set(), {"chair", "table"}, set()]
    with pytest.raises(IndexError, match="no number 4; allowed: 0 to 3"):
        store[4]


def test_clips_read_as_they_were_added(tmp_path: Path) -> None:
    clips = [labelled_clip(), labelled_clip(6, reverse_label=None)]
    with ImageWriter(tmp_path / "store") as writer:
        for clip in clips:
            writer.add_clip(clip)
        with pytest.raises(ValueError, match="store of clips; images need another one"):
            writer.add(labelled_image())
    store = ImageStore(tmp_path / "store")
    for number, clip in enumerate(clips):
        assert_equal(store[number], clip)
    with pytest.raises(ValueError, match="is a store of clips; allowed: images"):
        store.image(0)


def test_zarr_reads_the_arrays(tmp_path: Path, images: list[LabelledImage]) -> None:
    with ImageWriter(tmp_path / "store") as writer:
        for image in images:
            writer.add(image)
    group = zarr.open_group(tmp_path / "store", mode="r")
    np.testing.assert_array_equal(np.asarray(group["rgb.24x32"])[1], images[3].rgb)
    assert np.asarray(group["object.box2d"]).shape == (4, 4)


def test_a_store_can_be_sent_to_another_process(tmp_path: Path) -> None:
    with ImageWriter(tmp_path / "store") as writer:
        writer.add(labelled_image(200, 200))
    store = ImageStore(tmp_path / "store")
    data = pickle.dumps(store)
    assert len(data) < 1000
    assert_equal(pickle.loads(data)[0], store[0])


def test_many_shapes_need_few_open_files(tmp_path: Path) -> None:
    shapes = [(60, width) for width in range(100, 440)]
    with ImageWriter(tmp_path / "store") as writer:
        for height, width in shapes:
            writer.add(LabelledImage(rgb=np.full((height, width, 3), width % 256, np.uint8)))
    store = ImageStore(tmp_path / "store")
    assert all((store.image(i).rgb == w % 256).all() for i, (_, w) in enumerate(shapes))
    files = [path.resolve() for path in Path("/proc/self/fd").iterdir()]
    held = [path for path in files if path.is_relative_to(store.path) and "rgb." in str(path)]
    assert 0 < len(held) <= 256


def test_a_failed_block_leaves_nothing(tmp_path: Path) -> None:
    def fails() -> None:
        with ImageWriter(tmp_path / "store") as writer:
            writer.add(labelled_image())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails()
    with pytest.raises(ValueError, match="No image was added"), ImageWriter(tmp_path / "store"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_dead_writer_leaves_no_store_and_the_next_one_removes_its_files(tmp_path: Path) -> None:
    if not (child := os.fork()):
        dead = ImageWriter(tmp_path / "store")
        dead.__enter__().add(labelled_image())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert [path.name for path in tmp_path.iterdir()] == [".store.new"]
    with pytest.raises(ValueError, match="There is no store of images"):
        ImageStore(tmp_path / "store")
    with ImageWriter(tmp_path / "store") as writer:
        writer.add(labelled_image())
        with (
            pytest.raises(ValueError, match="Another process writes"),
            ImageWriter(tmp_path / "store"),
        ):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    with pytest.raises(ValueError, match="exists already"), ImageWriter(tmp_path / "store"):
        pass


def test_damage_is_named(tmp_path: Path) -> None:
    with ImageWriter(tmp_path / "store") as writer:
        writer.add(labelled_image(100, 100))
    file = tmp_path / "store" / "rgb.100x100" / "c" / "0" / "0" / "0" / "0"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"Store store: rgb/100x100 has 29999 bytes instead"):
        ImageStore(tmp_path / "store")[0]
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert ImageStore(tmp_path / "store").damaged() == ["rgb/100x100"]
    file.write_bytes(whole)
    assert ImageStore(tmp_path / "store").damaged() == []
    text = (tmp_path / "store" / "zarr.json").read_text()
    (tmp_path / "store" / "zarr.json").write_text(text.replace("100x100", "100x101"))
    with pytest.raises(ValueError, match="checksum of its zarr.json does not match"):
        ImageStore(tmp_path / "store")


BEHIND = LabelledObject(name="x", box3d=Box3d(np.array([0, 0, -0.5]), np.eye(3), np.ones(3)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rgb": np.zeros((4, 4), np.uint8)}, r"rgb is uint8 \(4, 4\); allowed: uint8 \(H, W, 3\)"),
        ({"rgb": np.zeros((4, 4, 3))}, "rgb is float64"),
        ({"depth": np.zeros((24, 32))}, r"depth is float64 \(24, 32\); allowed: uint16 \(24, 32\)"),
        ({"depth": np.zeros((24, 31), np.uint16)}, r"depth is uint16 \(24, 31\)"),
        ({"segments": np.full((24, 32), 3, np.uint16)}, "segments reach 3; allowed: 0 to 2"),
        ({"intrinsics": np.eye(4)}, r"intrinsics is float64 \(4, 4\)"),
        ({"intrinsics": -np.eye(3)}, "focal lengths above 0"),
        ({"T_world_camera": np.eye(4) * 2}, "not a rigid transform"),
        ({"label": 3}, "label is 3; allowed: a text, not empty, or None"),
        ({"label": " "}, "label is ' '"),
        ({"room": None}, "room is None; allowed: a text"),
        ({"captions": "a chair"}, "captions are 'a chair'; allowed: a tuple of texts"),
        ({"captions": ("",)}, "captions are"),
        ({"objects": (BEHIND,)}, "the centre of its box lies 0.5 m behind the camera"),
        ({"objects": (LabelledObject(name=""),)}, "Object 0 is .*with a name"),
        (
            {"objects": (LabelledObject(name="x", box2d=np.array([3, 3, 3, 5])),)},
            r"Object 0 \(x\): box2d is \[3, 3, 3, 5\]; allowed: x0, y0, x1, y1 with x0 below x1",
        ),
        (
            {"objects": (LabelledObject(name="x", visibility=-1.0),)},
            r"visibility must be .*got -1\.0",
        ),
    ],
)
def test_an_image_is_checked(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    changes = {"segments": None} | changes
    with ImageWriter(tmp_path / "store") as writer:
        with pytest.raises(ValueError, match=message):
            writer.add(labelled_image(**changes))  # type: ignore[arg-type]
        writer.add(labelled_image())


def test_a_clip_is_checked(tmp_path: Path) -> None:
    with ImageWriter(tmp_path / "store") as writer:
        clip = labelled_clip()
        with pytest.raises(ValueError, match=r"rgb is uint8 .*allowed: uint8 \(F, H, W, 3\)"):
            writer.add_clip(replace(clip, rgb=clip.rgb[0]))
        with pytest.raises(ValueError, match=r"T_world_camera is .*allowed: \(4, 4, 4\)"):
            writer.add_clip(replace(clip, T_world_camera=np.eye(4)))
        writer.add_clip(clip)


def test_a_store_of_images_is_no_store_of_episodes(tmp_path: Path) -> None:
    with ImageWriter(tmp_path / "images") as writer:
        writer.add(labelled_image())
    with pytest.raises(ValueError, match="images is a store of images, not of episodes"):
        EpisodeStore.open(tmp_path / "images")


def make_store(path: Path, *, rooms: int = 10, prefix: str = "room-") -> ImageStore:
    """Two images of each room: of style a and b, with an asset of the room and a shared one."""
    with ImageWriter(path) as writer:
        for room in range(rooms):
            for style in "ab":
                objects = (
                    LabelledObject(name=f"name-{room}", asset=f"asset-{room}"),
                    LabelledObject(name="shared"),
                )
                image = labelled_image(
                    8, 8, objects=objects, segments=None, label=None, source=style
                )
                where = f"{prefix}{room}" if prefix else ""
                writer.add(replace(image, room=where))
    return ImageStore(path)


def test_rooms_are_on_one_side(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    found = split(store, by="room", held_out=0.3, seed=1)
    rooms = store.rooms()
    assert {rooms[i] for i in found.test} == set(found.held_out)
    assert len(found.held_out) == 3
    assert not {rooms[i] for i in found.train} & set(found.held_out)
    assert sorted(found.train + found.test) == list(range(20))
    assert found.skipped == 0


def test_the_seed_decides_and_new_rooms_do_not_move_old_ones(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    larger = make_store(tmp_path / "larger", rooms=40)
    chosen = [split(store, held_out=0.5, seed=seed).held_out for seed in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]
    of_old = [f"room-{number}" for number in range(10)]
    kept = set(split(larger, held_out=0.5, seed=0).held_out) & set(of_old)
    assert len(kept & set(chosen[0])) == min(len(kept), 5)


@pytest.mark.parametrize("by", ["asset", "name"])
def test_images_with_held_out_objects_are_tested(tmp_path: Path, by: str) -> None:
    store = make_store(tmp_path / "store")
    found = split(store, by=by, held_out=[f"{by}-3", f"{by}-4"])  # type: ignore[arg-type]
    assert found.test == (6, 7, 8, 9)
    assert len(found.train) == 16


def test_images_that_share_a_room_with_the_test_part_are_skipped(tmp_path: Path) -> None:
    with ImageWriter(tmp_path / "store") as writer:
        for asset, room in (("a", "1"), ("b", "1"), ("b", "2")):
            objects = (LabelledObject(name="chair", asset=asset),)
            writer.add(labelled_image(objects=objects, segments=None, room=room))
    found = split(ImageStore(tmp_path / "store"), by="asset", held_out=["a"])
    assert (found.train, found.test, found.skipped) == ((2,), (0,), 1)


def test_styles_without_rooms_are_split_by_source(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", prefix="")
    found = split(store, by="source", held_out=["b"])
    assert found.test == tuple(range(1, 20, 2))
    assert found.skipped == 0


def test_names_that_yaml_reads_as_numbers_are_chosen(tmp_path: Path) -> None:
    with ImageWriter(tmp_path / "store") as writer:
        for number in range(4):
            writer.add(labelled_image(room=str(number % 2), segments=None, objects=()))
    found = split(ImageStore(tmp_path / "store"), by="room", held_out=[1])
    assert (found.test, found.held_out) == ((1, 3), ("1",))


def test_errors(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    with pytest.raises(ValueError, match="There is no way to split 'rooms'. Did you mean 'room'"):
        split(store, by="rooms")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="views of .* rooms in both parts; split by room"):
        split(store, by="image", held_out=["0", "3"])
    with pytest.raises(
        ValueError, match=r"held_out must be a number above 0 and below 1 \(got 1.0\)"
    ):
        split(store, held_out=1.0)
    with pytest.raises(ValueError, match="There is no asset 'asset-33'. Did you mean 'asset-3'"):
        split(store, by="asset", held_out=["asset-33"])
    with pytest.raises(ValueError, match="held_out is 'a'; allowed: a share, or a list of names"):
        split(store, by="source", held_out="a")
    with pytest.raises(ValueError, match="leaves 0 images for training and 20"):
        split(store, by="source", held_out=["a", "b"])
    bare = make_store(tmp_path / "bare", prefix="")
    with pytest.raises(ValueError, match="20 of 20 images of .* name no room"):
        split(bare, by="room")
