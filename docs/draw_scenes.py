"""Draws docs/scenes.jpg: images of each kind of room with their boxes and captions, and motions.

python docs/draw_scenes.py [--seed 0] [--to docs/scenes.jpg]
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from stringline.datasets.images.labelled_image import LabelledImage
from stringline.sim.scenes.motion_clips import MotionClips, MotionSettings
from stringline.sim.scenes.scene_images import Optics, SceneImages, SceneSettings

FOLDER = Path(__file__).parent
SIDE = 130
OPTICS = Optics(size=(SIDE, SIDE), aspect=(1.0, 1.0))
EDGES = [(0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (1, 3), (4, 6), (5, 7), (0, 4), (1, 5), (2, 6)]
EDGES.append((3, 7))
LEAST_PX = 150
QUALITY = 80


def main() -> None:
    """Writes the image."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", type=Path, default=FOLDER / "scenes.jpg")
    given = parser.parse_args()
    rooms = SceneImages(SceneSettings(seed=given.seed, images_per_room=2, optics=OPTICS))
    columns = [
        [part for image in rooms.room(n) for part in (image.rgb, boxed(image))] for n in range(4)
    ]
    rooms.close()
    clips = MotionClips(MotionSettings(seed=given.seed, frames=4, optics=OPTICS))
    motion = np.concatenate(list(clips.room(3)[0].rgb), axis=1)
    clips.close()
    top = np.concatenate([np.concatenate(column) for column in columns], axis=1)
    Image.fromarray(np.concatenate([top, motion])).save(given.to, quality=QUALITY)


def boxed(image: LabelledImage) -> NDArray[np.uint8]:
    """Returns an image with the edges of the boxes of its larger objects."""
    assert image.segments is not None
    assert image.intrinsics is not None
    sheet = Image.fromarray(image.rgb)
    draw = ImageDraw.Draw(sheet)
    pixels = np.bincount(image.segments.ravel(), minlength=len(image.objects) + 1)
    for number, one in enumerate(image.objects):
        if pixels[number + 1] < LEAST_PX or one.box3d is None:
            continue
        corners = one.box3d.corners()
        if corners[:, 2].min() < 0.1:
            continue
        places = corners @ image.intrinsics.T / corners[:, 2:]
        for start, end in EDGES:
            line = [tuple(places[start, :2]), tuple(places[end, :2])]
            draw.line(line, fill=(90, 255, 90))
    return np.asarray(sheet, np.uint8)


if __name__ == "__main__":
    main()
