"""Draws docs/looks.jpg: the start of every task in all looks.

    python docs/draw_looks.py [--seed 3] [--to docs/looks.jpg]

Each entry shows the overhead camera in `plain`, `textured`, two draws of `randomised`, and
`held_out`.
"""

import argparse
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.tasks.task_registry import TASKS, make_task

FOLDER = Path(__file__).parent
SIZE, COLUMNS, MARGIN, BETWEEN, ABOVE = 160, 2, 8, 2, 16
SHOWN = (("plain", 0), ("textured", 0), ("randomised", 0), ("randomised", 1), ("held_out", 0))
QUALITY = 82


def main() -> None:
    """Writes the image."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--to", type=Path, default=FOLDER / "looks.jpg")
    given = parser.parse_args()
    # Other seeds for other tasks, because the looks of a seed are the same in all of them.
    found = {task: images(task, given.seed + 2 * place) for place, task in enumerate(TASKS)}
    sheet(found).save(given.to, quality=QUALITY)


def images(task: str, seed: int) -> list[NDArray[np.uint8]]:
    """Returns the images of a task in the shown looks."""
    with closing(TaskEnvironment(make_task(task), cameras=["overhead"], image_size=SIZE)) as world:
        found = []
        for looks, further in SHOWN:
            world.begin(seed + further, {"looks": looks})
            found.append(np.asarray(world.observe()["rgb/overhead"], np.uint8).copy())
        return found


def sheet(found: dict[str, list[NDArray[np.uint8]]]) -> Image.Image:
    """Returns the contact sheet."""
    width = len(SHOWN) * (SIZE + BETWEEN) + 2 * MARGIN
    height = SIZE + ABOVE + MARGIN
    result = Image.new("RGB", (COLUMNS * width, -(-len(found) // COLUMNS) * height), "white")
    draw = ImageDraw.Draw(result)
    for index, (task, images_of_task) in enumerate(found.items()):
        x, y = index % COLUMNS * width + MARGIN, index // COLUMNS * height
        for column, image in enumerate(images_of_task):
            left = x + column * (SIZE + BETWEEN)
            title = SHOWN[column][0] if column else task
            draw.text((left, y + 2), title.replace("_", " "), fill="black")
            result.paste(Image.fromarray(image), (left, y + ABOVE))
    return result


if __name__ == "__main__":
    main()
