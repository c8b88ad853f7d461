"""Captions: each states what its image shows."""

import numpy as np
import pytest
from tests.sim.scenes.drawn_rooms import views

from stringline.datasets.images.labelled_image import LabelledObject
from stringline.sim.scenes.labels import SeenObject, caption_holds, write_captions


def seen(name: str, colour: str, x: float, number: int, support: int | None = None) -> SeenObject:
    label = LabelledObject(name=name, box2d=np.array([x, 0, x + 1, 1.0]), visibility=1.0)
    return SeenObject(label, 100, colour, "", number, support)


ROW = (
    seen("mug", "red", 0, 0, 2),
    seen("bowl", "blue", 2, 1, 2),
    seen("table", "wooden", 4, 2),
    seen("mug", "green", 6, 3),
)


@pytest.mark.parametrize(
    ("caption", "holds"),
    [
        ("a red mug left of a blue bowl", True),
        ("a blue bowl left of a red mug", False),
        ("a bowl left of a mug", True),
        ("a green mug left of a bowl", False),
        ("a mug right of a table", True),
        ("a red mug on a wooden table", True),
        ("a green mug on a table", False),
        ("a bowl between a red mug and a table", True),
        ("a bowl between a table and a green mug", False),
        ("a cluttered table showing a red mug, a green mug and a bowl", True),
        ("a cluttered table showing a red bowl", False),
        ("a cluttered table", True),
    ],
)
def test_the_checker_reads_captions(caption: str, holds: bool) -> None:
    assert caption_holds(caption, "cluttered_table", ROW) == holds


def test_a_sentence_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="The caption is 'a mug near a bowl'; allowed: names of"):
        caption_holds("a mug near a bowl", "trays", ROW)


@pytest.mark.slow
def test_captions_hold_and_use_several_relations() -> None:
    texts = []
    for number, (kind, _, labelled) in enumerate(views()):
        captions = write_captions(kind, labelled.seen, 6, np.random.default_rng(number))
        texts += captions
        for caption in captions:
            assert caption_holds(caption, kind, labelled.seen), caption
    for words in (" left of ", " behind ", " on ", " between "):
        assert any(words in text for text in texts)


@pytest.mark.slow
def test_what_is_said_to_be_behind_is_farther_and_on_is_above() -> None:
    checked = 0
    for kind, room, labelled in views():
        for a in labelled.seen:
            for b in labelled.seen:
                if a.label.box3d is None or b.label.box3d is None or a is b:
                    continue
                longest = [max(one.phrases(), key=len) for one in (a, b)]
                named = [[each in one.phrases() for one in labelled.seen] for each in longest]
                if sum(map(sum, named)) > 2:
                    continue  # Another one is called the same.
                first, second = (f"a {each}" for each in longest)
                if caption_holds(f"{first} behind {second}", kind, labelled.seen):
                    assert a.label.box3d.centre[2] > b.label.box3d.centre[2]
                    checked += 1
                if caption_holds(f"{first} on {second}", kind, labelled.seen):
                    low, high = room.placed[a.number], room.placed[b.number]
                    assert low.position[2] + low.asset.low[2] > high.position[2]
                    checked += 1
    assert checked > 20


def test_an_image_without_clear_objects_names_the_room() -> None:
    assert write_captions("trays", (), 3, np.random.default_rng(0)) == ("a table with trays",)
