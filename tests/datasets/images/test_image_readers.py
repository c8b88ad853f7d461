"""Readers of images with labels and captions, on small folders in the true layouts."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.datasets.images.labelled_items import random_pixels, read_all, write_png
from tests.datasets.images.small_image_sets import write_emoji, write_room

from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.images.classification import (
    CifarImages,
    ClipArtImages,
    EmojiImages,
    ImageFolder,
)
from stringline.datasets.images.coco import RgbdImages
from stringline.datasets.images.labelled_image import LabelledImage


def images(found: Sequence[object]) -> list[LabelledImage]:
    """Returns the items, which must be images."""
    chosen = [each for each in found if isinstance(each, LabelledImage)]
    assert len(chosen) == len(found)
    return chosen


def test_image_folder(tmp_path: Path) -> None:
    write_png(tmp_path / "cat" / "deep" / "1.png", random_pixels(1))
    write_png(tmp_path / "dog" / "2.PNG", random_pixels(2, 5, 5))
    write_png(tmp_path / "3.png", np.full((4, 4), 7, np.uint8))
    (tmp_path / "dog" / "notes.txt").write_text("x")
    whole = (tmp_path / "cat" / "deep" / "1.png").read_bytes()
    (tmp_path / "cat" / "4.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "cat" / "5.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0")
    found, left_out = read_all(ImageFolder(), tmp_path)
    assert [each.label for each in found] == [None, "cat", "dog"]
    np.testing.assert_array_equal(found[1].rgb, random_pixels(1))
    assert (found[0].rgb == 7).all()
    assert found[0].rgb.shape == (4, 4, 3)
    reason = "truncated or damaged: the file does not decode"
    assert left_out == {("images", reason): 2}


def test_transparent_pixels_show_white(tmp_path: Path) -> None:
    pixels = np.zeros((2, 2, 4), np.uint8)
    pixels[0, 0] = (10, 20, 30, 255)
    write_png(tmp_path / "a.png", pixels)
    (only,) = read_all(ImageFolder(), tmp_path)[0]
    assert only.rgb[0, 0].tolist() == [10, 20, 30]
    assert (only.rgb[1] == 255).all()


def test_a_data_set_without_readable_images_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="There is no data set at"):
        read_all(ImageFolder(), tmp_path / "none")
    with pytest.raises(ValueError, match="has no images of this format"):
        read_all(ImageFolder(), tmp_path)
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(ValueError, match="None of the 1 images .* can be read"):
        read_all(ImageFolder(), tmp_path)


@pytest.mark.parametrize("labels", [1, 2])
def test_cifar(tmp_path: Path, labels: int) -> None:
    pixels = random_pixels(0, 32, 32)
    planes = pixels.transpose(2, 0, 1).tobytes()
    record = bytes([9] * (labels - 1) + [1]) + planes
    wrong = bytes([0] * (labels - 1) + [200]) + planes
    train, test = (
        ("data_batch_1.bin", "test_batch.bin")
        if labels == 1
        else (
            "train.bin",
            "test.bin",
        )
    )
    names = "batches.meta.txt" if labels == 1 else "fine_label_names.txt"
    (tmp_path / names).write_text("airplane\nautomobile\n\n")
    (tmp_path / train).write_bytes(record + wrong + record + record[:100])
    (tmp_path / test).write_bytes(record)
    found, left_out = read_all(CifarImages(), tmp_path)
    assert [(each.label, each.source) for each in found] == [
        ("automobile", "train"),
        ("automobile", "train"),
        ("automobile", "test"),
    ]
    np.testing.assert_array_equal(found[2].rgb, pixels)
    assert left_out["images", "truncated: the file ends within them"] == 1
    assert left_out["images", "their label is not among the 2 classes"] == 1
    assert left_out["files", "missing"] == (4 if labels == 1 else 0)


def test_cifar_without_names_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data_batch_1").write_bytes(b"pickled")
    with pytest.raises(ForeignDataError, match="has neither batches.meta.txt nor fine_label"):
        read_all(CifarImages(), tmp_path)


@pytest.fixture
def node_modules(tmp_path: Path) -> Path:
    """Three packages with an apple, a heart with a selector, a waving hand, a flag, a melon."""
    write_emoji(tmp_path)
    return tmp_path


def test_emoji_have_the_same_names_in_three_styles(node_modules: Path) -> None:
    found, left_out = read_all(EmojiImages(), node_modules)
    by_style = {
        style: [each.label for each in found if each.source == style]
        for style in ("google", "twitter", "fluent")
    }
    three = ["red apple", "heavy black heart", "waving hand sign"]
    assert by_style == {"google": [*three, "melon"], "twitter": three, "fluent": [*three, "melon"]}
    assert images(found)[0].captions == ("red apple",)
    np.testing.assert_array_equal(found[-1].rgb, random_pixels(7, 10, 10))
    assert left_out == {
        ("emoji", "with skin tones"): 2,
        ("emoji", "flags (flags=false)"): 1,
        ("images", "there is none in the style twitter"): 1,
    }


def test_emoji_options(node_modules: Path) -> None:
    reader = EmojiImages(label="category", flags=True, in_all_styles=True)
    found, left_out = read_all(reader, node_modules)
    assert [each.label for each in found] == 3 * [
        "Food & Drink",
        "Smileys & Emotion",
        "People & Body",
        "Flags",
    ]
    assert left_out["images", "there is none in the style twitter"] == 3
    with pytest.raises(ValueError, match="no label of emoji 'names'. Did you mean 'name'"):
        EmojiImages(label="names")  # type: ignore[arg-type]
    with pytest.raises(ForeignDataError, match="has none of the packages emoji-datasource-google"):
        read_all(EmojiImages(), node_modules / "@lobehub")
    (node_modules / "emoji-datasource-google" / "emoji.json").write_text('[{"unified": "1F34E"}]')
    with pytest.raises(ForeignDataError, match=r"does not describe emoji: KeyError\('name'\)"):
        read_all(EmojiImages(), node_modules)


SVG = """<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg"><metadata>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
 xmlns:cc="http://web.resource.org/cc/" xmlns:dc="http://purl.org/dc/elements/1.1/">
<cc:Work rdf:about="">
<dc:creator><cc:Agent><dc:title>Its Author</dc:title></cc:Agent></dc:creator>
<dc:title>sleeping
 cat</dc:title>
<dc:subject><rdf:Bag><rdf:li>animal</rdf:li><rdf:li>cat</rdf:li><rdf:li></rdf:li></rdf:Bag>
</dc:subject></cc:Work></rdf:RDF></metadata></svg>
"""


def test_clip_art(tmp_path: Path) -> None:
    for name in ("animals/cat", "animals/farm/cow", "tools/saw", "tools/axe"):
        write_png(tmp_path / "png" / f"{name}.png", random_pixels(1))
    svg = tmp_path / "svg"
    (svg / "animals" / "farm").mkdir(parents=True)
    (svg / "tools").mkdir()
    (svg / "animals" / "cat.svg").write_text(SVG)
    (svg / "animals" / "farm" / "cow.svg").write_text("<svg><cut off")
    (svg / "tools" / "saw.svg").write_text("<svg/>")
    found, left_out = read_all(ClipArtImages(svg=str(svg)), tmp_path / "png")
    assert [each.label for each in found] == ["animals", "animals", "tools", "tools"]
    assert images(found)[0].captions == ("sleeping cat", "animal, cat")
    assert all(each.captions == () for each in images(found)[1:])
    assert left_out == {
        ("captions", "the SVG file is damaged"): 1,
        ("captions", "the SVG file is missing"): 1,
        ("captions", "the SVG file has neither title nor keywords"): 1,
    }
    assert not read_all(ClipArtImages(), tmp_path / "png")[1]


def test_entities_of_svg_files_do_not_grow(tmp_path: Path) -> None:
    write_png(tmp_path / "png" / "a" / "bomb.png", random_pixels(1))
    (tmp_path / "svg" / "a").mkdir(parents=True)
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    text = f'<!DOCTYPE svg [<!ENTITY e0 "xxxxxxxxxx">{entities}]><svg>&e9;</svg>'
    (tmp_path / "svg" / "a" / "bomb.svg").write_text(text)
    left_out = read_all(ClipArtImages(svg=str(tmp_path / "svg")), tmp_path / "png")[1]
    assert left_out == {("captions", "the SVG file is damaged"): 1}


def test_rgbd_folders(tmp_path: Path) -> None:
    counts = np.full((8, 10), 5000, np.uint16)
    counts[0, :2] = (0, 65535)
    write_room(tmp_path / "office", depth=counts)
    write_room(tmp_path / "attic", depth=counts[:4])
    (tmp_path / "office" / "intrinsics.json").write_text(
        json.dumps({"fx": 40, "fy": 41, "cx": 5, "cy": 4})
    )
    write_png(tmp_path / "office" / "rgb" / "0002.png", random_pixels(2))
    write_png(tmp_path / "office" / "rgb" / "0003.png", random_pixels(2))
    write_png(tmp_path / "office" / "depth" / "0003.png", np.full((8, 10), 9, np.uint8))
    found, left_out = read_all(RgbdImages(depth_unit_m=0.0002), tmp_path)
    (only,) = images(found)
    assert only.room == "office"
    assert only.depth is not None
    assert only.depth[1, 1] == 1000
    assert only.depth[0, :2].tolist() == [0, 13107]
    np.testing.assert_array_equal(only.intrinsics, [[40, 0, 5], [0, 41, 4], [0, 0, 1]])
    np.testing.assert_array_equal(only.T_world_camera, np.eye(4))
    assert left_out == {
        ("images", "without a depth image"): 1,
        ("images", "depth and colours differ in size"): 1,
        ("depth", "its images do not have one channel of 16 bits"): 1,
    }
    (far,) = images(read_all(RgbdImages(depth_unit_m=0.01), tmp_path)[0])
    assert far.depth is not None
    assert far.depth[0, 1] == 0  # 655 m is beyond 16 bits of mm.
    for unit, text in ((1.0, "1"), (1e-9, "1e-09")):
        with pytest.raises(
            ValueError,
            match=rf"None of the 3 images .*\n.*\n.*none of it is between 0.5 mm and 65.535 m with "
            rf"depth_unit_m={text} ",
        ):
            read_all(RgbdImages(depth_unit_m=unit), tmp_path)


def test_rgbd_errors(tmp_path: Path) -> None:
    with pytest.raises(ForeignDataError, match="depth_unit_m is missing: images of 16 bits do not"):
        RgbdImages()
    with pytest.raises(ValueError, match=r"depth_unit_m must be a number above 0 \(got -1\)"):
        RgbdImages(depth_unit_m=-1)
    reader = RgbdImages(depth_unit_m=0.001)
    with pytest.raises(ForeignDataError, match="has no folder rgb"):
        read_all(reader, tmp_path)
    write_room(tmp_path, depth=np.ones((8, 10), np.uint16))
    (tmp_path / "intrinsics.txt").write_text("1 2 x")
    with pytest.raises(ForeignDataError, match="matrix of 3x3 or 4x4 finite numbers"):
        read_all(reader, tmp_path)
    (tmp_path / "intrinsics.json").write_text('{"fx": 1}')
    with pytest.raises(ForeignDataError, match="has no numbers fx, fy, cx and cy"):
        read_all(reader, tmp_path)
