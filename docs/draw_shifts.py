"""Draws docs/shifts.png: the start of one task, plain and under each shift.

    python docs/draw_shifts.py [--task hand_over_banana] [--seed 3] [--to docs/shifts.png]

Each entry shows the overhead camera at half strength and at full strength, and the camera at the
table's level (where there is none, that of a wrist) at full strength. Depth is drawn in bands of 10
cm, from dark to bright in each; red is where there is none.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from stringline.datasets.contract.contract import Array
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.shifts.shift import NAMES
from stringline.sim.tasks.task_registry import TASKS, make_task

FOLDER = Path(__file__).parent
SIZE, COLUMNS, MARGIN, BETWEEN, ABOVE = 192, 2, 10, 3, 18
DEPTH = "depth_noise"


def main() -> None:
    """Writes the image."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", default="hand_over_banana", choices=list(TASKS))
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--to", type=Path, default=FOLDER / "shifts.png")
    given = parser.parse_args()
    world = TaskEnvironment(make_task(given.task), image_size=SIZE)
    try:
        sheet(entries(world, given.seed)).save(given.to, optimize=True)
    finally:
        world.close()


def entries(world: TaskEnvironment, seed: int) -> list[tuple[str, list[NDArray[np.uint8]]]]:
    """Returns what to show, with its name."""
    names = [camera.name for camera in world.contract.cameras]
    other = "table" if "table" in names else next(name for name in names if "wrist" in name)
    views = ((0.5, "overhead"), (1.0, "overhead"), (1.0, other))
    low, high = world.task.cell.table_heights
    found = []
    for title, options in {
        "plain": {},
        f"table_height {low} m": {"table_height": low},
        f"table_height {high} m": {"table_height": high},
        **{name: {name: 1.0} for name in NAMES if name != DEPTH},
    }.items():
        images = [
            look(world, seed, options, strength)[f"rgb/{camera}"] for strength, camera in views
        ]
        found.append((title, [np.asarray(image, np.uint8) for image in images]))
    for title, strength in (("true depth", 0.0), (DEPTH, 1.0)):
        shares = (0.5 * strength, strength, strength)
        seen = [look(world, seed, {DEPTH: share}) for share in shares]
        found.append(
            (title, [grey(seen[at][f"depth/{camera}"]) for at, (_, camera) in enumerate(views)])
        )
    return found


def look(
    world: TaskEnvironment, seed: int, options: Mapping[str, float], share: float = 1.0
) -> dict[str, Array]:
    """Returns what the cameras see at the start, with a share of the options."""
    world.begin(seed, {name: share * value for name, value in options.items()})
    return dict(world.observe())


def grey(depth: Array) -> NDArray[np.uint8]:
    """Returns depth (H, W) in millimetres as colours (H, W, 3) in bands of 10 cm."""
    colours = np.repeat((depth % 100 * 2.55)[..., None], 3, axis=-1).astype(np.uint8)
    colours[depth == 0] = (200, 40, 40)
    return colours


def sheet(found: list[tuple[str, list[NDArray[np.uint8]]]]) -> Image.Image:
    """Returns the contact sheet."""
    width = 3 * SIZE + 2 * BETWEEN + 2 * MARGIN
    height = SIZE + ABOVE + MARGIN
    result = Image.new("RGB", (COLUMNS * width, -(-len(found) // COLUMNS) * height), "white")
    draw = ImageDraw.Draw(result)
    for index, (title, images) in enumerate(found):
        x, y = index % COLUMNS * width + MARGIN, index // COLUMNS * height
        draw.text((x, y + 3), title.replace("_", " "), fill="black")
        for column, image in enumerate(images):
            result.paste(Image.fromarray(image), (x + column * (SIZE + BETWEEN), y + ABOVE))
    return result


if __name__ == "__main__":
    main()
