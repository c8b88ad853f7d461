"""Small data sets of labelled images and clips in the layouts of their publishers."""

import json
from pathlib import Path

import numpy as np
from PIL import Image
from tests.datasets.images.labelled_items import labelled_image, random_pixels, write_png

from stringline import ImageStore, ImageWriter, write_coco, write_omni3d
from stringline.datasets.formats.video import write_video


def write_clip(path: Path, frames: int, height: int = 48, width: int = 64) -> None:
    """Writes a video whose frames become brighter, as UCF101's: MPEG-4 in AVI."""
    path.parent.mkdir(parents=True, exist_ok=True)
    grey = (np.full((height, width, 3), 255 * n // frames, np.uint8) for n in range(frames))
    write_video(path, grey, fps=25, codec="mpeg4", pixel_format="yuv420p", options={"g": "5"})


def write_room(room: Path, *, depth: np.ndarray) -> None:
    """Writes a frame with intrinsics and a pose."""
    write_png(room / "rgb" / "0001.png", random_pixels(1))
    write_png(room / "depth" / "0001.png", depth)
    (room / "intrinsics.txt").write_text("30 0 5 0\n0 31 4 0\n0 0 1 0\n0 0 0 1\n")
    (room / "pose").mkdir()
    np.savetxt(room / "pose" / "0001.txt", np.eye(4))


def emoji_entry(unified: str, name: str, category: str = "Food & Drink") -> dict[str, object]:
    """Returns an entry of `emoji.json`."""
    return {
        "unified": unified,
        "name": name,
        "short_name": name.lower(),
        "category": category,
        "subcategory": "food-fruit",
    }


def write_emoji(folder: Path, side: int = 10) -> None:
    """Writes three packages with an apple, a heart, a waving hand, a flag and a melon."""
    hand = emoji_entry("1F44B", "WAVING HAND SIGN", "People & Body")
    hand["skin_variations"] = {"1F3FB": {"unified": "1F44B-1F3FB"}, "1F3FC": {}}
    entries = [
        emoji_entry("1F34E", "RED APPLE"),
        emoji_entry("2764-FE0F", "HEAVY BLACK HEART", "Smileys & Emotion"),
        hand,
        emoji_entry("1F1E9-1F1EA", "Germany Flag", "Flags"),
        emoji_entry("1F348", "MELON"),
    ]
    for style in ("google", "twitter"):
        package = folder / f"emoji-datasource-{style}"
        for name in ("1f34e", "2764-fe0f", "1f44b", "1f44b-1f3fb", "1f1e9-1f1ea"):
            pixels = random_pixels(len(name), side, side)
            write_png(package / "img" / style / "64" / f"{name}.png", pixels)
        (package / "emoji.json").write_text(json.dumps(entries))
    melon = folder / "emoji-datasource-google/img/google/64/1f348.png"
    write_png(melon, random_pixels(3, side, side))
    assets = folder / "@lobehub" / "fluent-emoji-3d" / "assets"
    assets.mkdir(parents=True)
    for name in ("1f34e", "2764", "1f44b", "1f44b-1f3fc", "1f1e9-1f1ea", "1f348"):
        Image.fromarray(random_pixels(7, side, side)).save(assets / f"{name}.webp", lossless=True)


def write_example_sets(root: Path) -> None:
    """Writes the data sets that the examples of `stringline-data images` name, and a store."""
    with ImageWriter(root / "runs" / "rooms") as writer:
        writer.add(labelled_image(96, 128))
    rooms = ImageStore(root / "runs" / "rooms")
    write_coco(rooms, root / "val2017")
    (root / "annotations").mkdir()
    (root / "val2017/instances.json").rename(root / "annotations/instances_val2017.json")
    write_omni3d(rooms, root / "datasets")
    (root / "datasets/omni3d.json").rename(root / "SUNRGBD_train.json")
    write_png(root / "photographs/cat/1.png", random_pixels(1, 96, 96))
    (root / "cifar-100-binary").mkdir()
    (root / "cifar-100-binary/fine_label_names.txt").write_text("apple\nbaby\n")
    record = bytes([0, 1]) + random_pixels(0, 32, 32).transpose(2, 0, 1).tobytes()
    for name in ("train.bin", "test.bin"):
        (root / "cifar-100-binary" / name).write_bytes(record)
    write_clip(root / "UCF-101/Archery/v_Archery_g01_c01.avi", 40, 60, 80)
    (root / "trainlist01.txt").write_text("Archery/v_Archery_g01_c01.avi 1\n")
    write_emoji(root / "node_modules", 64)
    write_png(root / "usr/share/openclipart/png/animals/cat.png", random_pixels(1))
    (root / "usr/share/openclipart/svg").mkdir()
    write_room(root / "frames/office", depth=np.full((8, 10), 900, np.uint16))
