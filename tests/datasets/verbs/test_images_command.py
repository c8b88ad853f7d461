"""`stringline-data images` and `stringline-data annotations`."""

from pathlib import Path

import numpy as np
import pytest
from tests.datasets.conftest import DataCommand
from tests.datasets.images.labelled_items import random_pixels, write_png
from tests.datasets.images.small_image_sets import write_example_sets
from tests.datasets.images.test_annotations import coco_file
from tests.docs.pages import ROOT, blocks, commands

from stringline.datasets.images.image_store import ImageStore

Words = tuple[str, ...]
PAGES = ("images", "perception", "lab/perception")
EXAMPLES = [
    (page, command.words[1:])
    for page in PAGES
    for block in blocks(ROOT / "docs" / f"{page}.md")
    if block.language == "indented"
    for command in commands(block)
    if command.words[:2] == ("stringline-data", "images")
]


def test_a_data_set_becomes_a_store_and_json_again(
    tmp_path: Path, data_command: DataCommand
) -> None:
    (tmp_path / "data").mkdir()
    file = coco_file(tmp_path / "data")
    store = tmp_path / "store"
    options = ("image_format=coco", "image_size=[4,5]")
    _, out, error = data_command("images", f"path={file}", f"store={store}", *options)
    assert f"{store}: 2 images.\nLeft out of the data:\n" in out
    words = " ".join(out.split())
    assert "objects 3: without a box, or of no area (the first: annotation 3)" in words
    assert "reading: 100%" in error
    first = ImageStore(store).image(0)
    assert first.rgb.shape == (4, 5, 3)
    mean = random_pixels(1).reshape(4, 2, 5, 2, 3).mean((1, 3))
    np.testing.assert_allclose(first.rgb, mean, atol=0.51)
    (dog,) = first.objects
    assert dog.box2d is not None
    assert dog.box2d.tolist() == [0.5, 1, 2, 3]
    data_command("annotations", f"store={store}", f"path={tmp_path / 'out'}")
    assert (tmp_path / "out" / "instances.json").is_file()


@pytest.mark.slow
def test_errors_are_one_line(tmp_path: Path, data_command: DataCommand) -> None:
    write_png(tmp_path / "data" / "a.png", random_pixels(1))
    into = (f"path={tmp_path / 'data'}", f"store={tmp_path / 'store'}")

    def message(*arguments: str) -> str:
        status, _, error = data_command(*arguments)
        assert status == 2
        return error

    assert "depth_unit_m is missing" in message("images", "image_format=rgbd", *into)
    assert "1: smaller than 100x100" in message("images", "image_size=100", *into)
    assert not (tmp_path / "store").exists()
    assert data_command("images", *into)[0] == 0
    assert "exists already; choose another path" in message("images", *into)
    assert "no episodes that set_aside" in message("verify", into[1], "set_aside=true")
    assert "All 1 images in" in data_command("verify", into[1])[1]
    array = tmp_path / "store" / "rgb.8x10" / "c" / "0" / "0" / "0" / "0"
    array.write_bytes(bytes(240))
    assert "is damaged: rgb/8x10 have changed" in message("verify", into[1])
    out = f"path={tmp_path / 'out'}"
    assert "kind 'omni'. Did you mean 'omni3d'" in message("annotations", into[1], out, "kind=omni")


@pytest.mark.slow
@pytest.mark.parametrize("words", [words for _, words in EXAMPLES])
def test_the_examples_of_the_pages_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data_command: DataCommand, words: Words
) -> None:
    write_example_sets(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert data_command(*words)[0] == 0
    given = dict(word.split("=", 1) for word in words[1:])
    assert len(ImageStore(tmp_path / given["store"])) > 0


def test_each_page_has_examples() -> None:
    assert {page for page, _ in EXAMPLES} == {*PAGES}
