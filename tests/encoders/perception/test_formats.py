"""Each format of labelled images is converted, trained on for two steps and measured."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.datasets.images.labelled_items import labelled_image, random_pixels, write_png
from tests.datasets.images.small_image_sets import emoji_entry, write_clip
from tests.encoders.test_perceive import perceive

from stringline import ImageStore, ImageWriter, write_coco, write_omni3d
from stringline.datasets.data import main

SIDE = 32
CLASSES = ("apple", "pear")


def rooms(root: Path) -> ImageStore:
    """Returns a store of eight images with two objects each."""
    with ImageWriter(root / "rooms") as writer:
        for number in range(8):
            image = labelled_image(SIDE, SIDE, room=f"room {number}")
            writer.add(replace(image, rgb=random_pixels(number, SIDE, SIDE)))
    return ImageStore(root / "rooms")


def folder(root: Path) -> tuple[str, ...]:
    for number in range(8):
        pixels = random_pixels(number, SIDE, SIDE)
        write_png(root / "set" / CLASSES[number % 2] / f"{number}.png", pixels)
    return ()


def clip_art(root: Path) -> tuple[str, ...]:
    folder(root)
    for file in (root / "set").rglob("*.png"):
        drawn = root / "svg" / file.relative_to(root / "set").with_suffix(".svg")
        drawn.parent.mkdir(parents=True, exist_ok=True)
        drawn.write_text(
            '<svg xmlns:cc="http://creativecommons.org/ns#" '
            'xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><cc:Work>'
            f"<dc:title>a {file.stem}</dc:title></cc:Work></metadata></svg>"
        )
    return (f"image_format.svg={root / 'svg'}",)


def cifar(root: Path) -> tuple[str, ...]:
    (root / "set").mkdir()
    (root / "set" / "fine_label_names.txt").write_text("\n".join(CLASSES) + "\n")
    for part in ("train", "test"):
        records = [
            bytes([0, number % 2]) + random_pixels(number, 32, 32).transpose(2, 0, 1).tobytes()
            for number in range(4)
        ]
        (root / "set" / f"{part}.bin").write_bytes(b"".join(records))
    return ()


def coco(root: Path) -> tuple[str, ...]:
    write_coco(rooms(root), root / "written")
    (root / "written" / "instances.json").rename(root / "set")
    return (f"image_format.images={root / 'written'}",)


def omni3d(root: Path) -> tuple[str, ...]:
    write_omni3d(rooms(root), root / "written")
    (root / "written" / "omni3d.json").rename(root / "set")
    return (f"image_format.images={root / 'written'}",)


def ucf101(root: Path) -> tuple[str, ...]:
    for name in ("Archery", "Bowling"):
        for group in range(1, 5):
            write_clip(root / "set" / name / f"v_{name}_g{group:02}_c01.avi", 6, SIDE, SIDE)
    return ("image_format.frames=4",)


def emoji(root: Path) -> tuple[str, ...]:
    entries = [emoji_entry("1F34E", "RED APPLE"), emoji_entry("1F350", "PEAR")]
    for style in ("google", "twitter"):
        package = root / "set" / f"emoji-datasource-{style}"
        for number, entry in enumerate(entries):
            file = package / "img" / style / "64" / f"{str(entry['unified']).lower()}.png"
            write_png(file, random_pixels(number, SIDE, SIDE))
        (package / "emoji.json").write_text(json.dumps(entries))
    return ()


def rgbd(root: Path) -> tuple[str, ...]:
    for name in CLASSES:
        for sequence in range(4):
            room = root / "set" / name / f"sequence_{sequence}"
            write_png(room / "rgb" / "0.png", random_pixels(sequence, SIDE, SIDE))
            depth = np.full((SIDE, SIDE), 1500, np.uint16)
            (room / "depth").mkdir()
            Image.fromarray(depth).save(room / "depth" / "0.png")
            (room / "intrinsics.txt").write_text("32 0 16\n0 32 16\n0 0 1\n")
    return ("image_format.depth_unit_m=0.001",)


FORMATS: dict[Callable[[Path], tuple[str, ...]], tuple[str, ...]] = {
    folder: ("task=classify", "split=image"),
    rgbd: ("task=classify", "split=room", "coordinates=metric", "depth=channel"),
    clip_art: ("task=retrieve", "split=image"),
    cifar: ("task=classify", "split=source", "held_out=[test]"),
    coco: ("task=detect2d", "split=image"),
    omni3d: ("task=detect3d", "split=image"),
    ucf101: ("task=video", "split=source", "held_out=[g01]"),
    emoji: ("task=classify", "split=source", "held_out=[twitter]"),
}
MEASURES = {
    "task=classify": "top1",
    "task=retrieve": "i2t_recall_at_1",
    "task=detect2d": "mean_iou",
    "task=detect3d": "mean_iou",
    "task=video": "top1",
}


@pytest.mark.slow
@pytest.mark.parametrize("write", FORMATS, ids=lambda write: write.__name__)
def test_a_network_is_trained_and_measured_on_each_format(
    write: Callable[[Path], tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = write(tmp_path)
    store = tmp_path / "store"
    converted = ("images", f"image_format={write.__name__}", f"path={tmp_path / 'set'}", *options)
    monkeypatch.setattr("sys.argv", ["stringline-data", *converted, f"store={store}"])
    main()
    chosen = FORMATS[write]
    done = perceive(
        *chosen,
        "image_size=32",
        "head.image_encoder.dim=16",
        "head.image_encoder.depth=1",
        "head.image_encoder.heads=2",
        "trainer.steps=2",
        "trainer.batch_size=2",
        "logger=null",
        f"images={store}",
        f"output={tmp_path / 'run'}",
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert 0 <= results["measures"][MEASURES[chosen[0]]] <= 1
    assert results["images"]["test"] >= 1
    weights = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    losses = [json.loads(line).get("loss") for line in weights]
    assert sum(loss is not None and np.isfinite(loss) for loss in losses) == 2
