"""Splits of labelled images: nothing in common, and known choices."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.datasets.images.labelled_items import labelled_image

from stringline import ImageStore, ImageWriter, LabelledObject
from stringline.datasets.images.splits import split


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
