"""Writes docs/tasks.md and docs/tasks.png from the tasks themselves and from what `benchmarks/experts.py` measured.

    python benchmarks/experts.py --seeds 100 --json docs/experts.json python benchmarks/experts.py
    --seeds 100 --first-seed 1000 --json docs/experts_unseen.json python benchmarks/experts.py
    --seeds 100 --only gym_aloha_transfer_cube --time-limit 8 --json docs/experts_peers.json python
    benchmarks/experts.py --seeds 100 --only kuka_pick ... --table-height -0.1 --json
    docs/experts_low_table.json python benchmarks/experts.py --seeds 100 --only kuka_pick ...
    --table-height 0.1 --json docs/experts_high_table.json python benchmarks/experts.py --seeds 100
    --only kuka_pick ... --distractors 1 --json docs/experts_distractors.json python
    docs/write_tasks.py

A task's text is the docstring of its class. The image shows it at the start and when its expert has
done it (seed 0).
"""

import argparse
import inspect
import json
from pathlib import Path

import numpy as np
from dm_control.mujoco.engine import MovableCamera
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from stringline.sim.collection.demonstration import record_episode
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.expert import make_expert
from stringline.sim.statistics.intervals import Rate
from stringline.sim.tasks.task_catalogue import TASKS
from stringline.sim.worlds.gym_aloha import KINDS

FOLDER = Path(__file__).parent
SEEN, UNSEEN, OF_PEERS = "experts.json", "experts_unseen.json", "experts_peers.json"
LOW, HIGH, DISTRACTORS = (
    "experts_low_table.json",
    "experts_high_table.json",
    "experts_distractors.json",
)
MISSING = "not measured yet"
SIZE, COLUMNS = 240, 3
FILES = {"aloha": "tasks.png", "kuka": "tasks_kuka.png"}
LIMIT_S = 120.0
# Where images are taken from, by the name of the body: what is in their middle, distance, azimuth
# and elevation in degrees.
VIEWS = {
    "aloha": ((0.0, 0.03, 0.05), 0.95, 90.0, -52.0),
    "iiwa14": ((0.45, 0.0, 0.18), 1.35, 140.0, -28.0),
    "iiwa14_bimanual": ((0.0, 0.0, 0.2), 1.7, 90.0, -28.0),
}
INTRODUCTION = """\
# Tasks

The twelve tasks of the ALOHA experiments of STRING (Schenck et al., 2025, table 5). Eight of them were never published; all
are built here of our own parts, with the sizes and ranges that each one names. In every task both arms stand at the same table,
four RGB-D cameras look on (overhead, both wrists, table level), an action is 14 joint targets, and there are 50 of them per
second.

Success is judged by geometry and never by contact alone: things inside their goal, let go, and at rest for half a second. All
tasks take the option `table_height` (metres); the goal moves with it.

    stringline-collect task={example} output=runs/{example} episodes=50

The experts see true poses and work in closed loop. Their success below is on the seeds 0 to 99, and on 1000 to 1099, which
nothing was tuned on, each with its Wilson 95 % interval. It says what a policy can learn from, and that the task can be done.
How the numbers were made stands in `docs/write_tasks.py`, which writes this page.

![Every task at its start and when it is done](tasks.png)

| task | instruction | expert, seeds 0 to 99 | expert, seeds 1000 to 1099 | length |
|---|---|---|---|---|
"""
KUKA = """\
## The KUKA cell

A KUKA LBR iiwa 14 with a parallel gripper that opens 110 mm, at a table that can stand 10 cm lower or higher, seen by an
overhead and a wrist RGB-D camera; or two of them, which face each other across a table, with an overhead camera and one at each
wrist. An action is 8 joint targets for each arm. Depth has the faults of a stereo camera unless `depth_noise` is 0
(`docs/shifts.md`). What is picked and placed is of one of 24 forms, drawn for each episode. Policies are trained as for ALOHA,
with the cameras of the cell: `policy.memory.cameras=[overhead,wrist]`.

    stringline-collect task=kuka_pick output=runs/kuka_pick episodes=50

![Every task of the KUKA cell at its start and when it is done](tasks_kuka.png)

| task | instruction | expert, seeds 0 to 99 | table 10 cm lower | table 10 cm higher | with distractors | length |
|---|---|---|---|---|---|---|
"""
PEERS = """\
## Worlds of others

Tasks that we did not write run under the same commands, with their own physics, starts and rules of success: `docs/peers.md`.

| task | instruction | stages | expert, seeds 0 to 99 |
|---|---|---|---|
{rows}
| `aloha_sim_hand_over_banana`, `aloha_sim_bowl_on_rack`, ... | DeepMind's aloha_sim says it | start, success | - |

A task of your own needs no entry here: `docs/my-robot.md`.
"""


def main() -> None:
    """Writes the page and the images, or the page alone."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text-only", action="store_true", help="leave the images as they are")
    parser.add_argument(
        "--images", nargs="+", choices=FILES, default=list(FILES), help="which of them to draw"
    )
    given = parser.parse_args()
    (FOLDER / "tasks.md").write_text(page())
    if not given.text_only:
        for cell in given.images:
            sheet([images(name) for name in names(cell)]).save(FOLDER / FILES[cell], optimize=True)


def page() -> str:
    """Returns the page."""
    seen, unseen = (measured(name) for name in (SEEN, UNSEEN))
    rows = [row(name, seen, unseen) for name in names("aloha")]
    kuka = [
        row(name, seen, measured(LOW), measured(HIGH), measured(DISTRACTORS))
        for name in names("kuka")
    ]
    parts = [
        INTRODUCTION.format(example=names("aloha")[0]) + "\n".join(rows) + "\n",
        *map(section, names("aloha")),
    ]
    parts += [KUKA + "\n".join(kuka) + "\n", *map(section, names("kuka")), peers()]
    return "\n".join(parts)


def names(cell: str) -> list[str]:
    """Returns the tasks of a cell."""
    return [name for name in TASKS if name.startswith("kuka_") == (cell == "kuka")]


def measured(file: str) -> dict[str, dict[str, object]]:
    """Returns what was measured, by task; nothing where there is no such file yet."""
    path = FOLDER / file
    entries = json.loads(path.read_text()) if path.exists() else []
    return {entry["name"].removeprefix("experts/"): entry for entry in entries}


def row(
    name: str, seen: dict[str, dict[str, object]], *others: dict[str, dict[str, object]]
) -> str:
    """Returns a task's line in the table."""
    task = TASKS[name](50.0)
    lengths = next((found[name] for found in (seen, *others) if name in found), None)
    length = (
        f"{lengths['seconds']:.1f} s ± {lengths['length_variation']:.0%}".replace("%", " %")
        if lengths
        else MISSING
    )
    rates = " | ".join(rate(found.get(name)) for found in (seen, *others))
    return f"| [{name}](#{name}) | {task.instruction} | {rates} | {length} |"


def rate(entry: dict[str, object] | None) -> str:
    """Returns the successes of an entry, or that there is none."""
    if entry is None:
        return MISSING
    counts = entry["rate"]
    assert isinstance(counts, dict)
    return str(Rate(counts["successes"], counts["trials"]))


def section(name: str) -> str:
    """Returns what is said about a task."""
    task = TASKS[name](50.0)
    text = (
        inspect.cleandoc(type(task).__doc__ or "").split("\n\nArgs:")[0].split("\n\nAttributes:")[0]
    )
    return f"## {name}\n\n{text}\n\nStages: {', '.join(task.stages)}.\n"


def peers() -> str:
    """Returns what is said about the tasks of others."""
    found = measured(OF_PEERS)
    rows = [
        (
            f"| `{name}` | {kind.instruction} | {', '.join(kind.stages)} | "
            f"{rate(found[name]) if name in found else '-'} |"
        )
        for name, kind in KINDS.items()
    ]
    return PEERS.format(rows="\n".join(rows))


def images(name: str) -> tuple[str, NDArray[np.uint8], NDArray[np.uint8]]:
    """Returns a task's name with its start and its end as the expert leaves it."""
    world = TaskEnvironment(TASKS[name](50.0), cameras=(), time_limit_s=LIMIT_S)
    try:
        world.begin(0)
        start = image(world)
        record_episode(world, make_expert(name), 0)
        return name, start, image(world)
    finally:
        world.close()


def image(world: TaskEnvironment) -> NDArray[np.uint8]:
    """Draws the table from the front, twice as large as needed and averaged."""
    camera = MovableCamera(world.physics, 2 * SIZE, 2 * SIZE)
    camera.set_pose(*VIEWS[world.embodiment.name])
    drawn = camera.render().reshape(SIZE, 2, SIZE, 2, 3).mean(axis=(1, 3))
    return np.asarray(drawn, dtype=np.uint8)


def sheet(
    rows: list[tuple[str, NDArray[np.uint8], NDArray[np.uint8]]], *, names: bool = True
) -> Image.Image:
    """Returns the contact sheet: per task its start, its end, and its name above."""
    margin, between, above = 10, 3, 18
    width, height = 2 * SIZE + between + 2 * margin, SIZE + above + margin
    result = Image.new("RGB", (COLUMNS * width, -(-len(rows) // COLUMNS) * height), "white")
    draw = ImageDraw.Draw(result)
    for index, (name, start, end) in enumerate(rows):
        x, y = index % COLUMNS * width + margin, index // COLUMNS * height
        if names:
            draw.text((x, y + 3), name.replace("_", " "), fill="black")
        result.paste(Image.fromarray(start), (x, y + above))
        result.paste(Image.fromarray(end), (x + SIZE + between, y + above))
    return result


if __name__ == "__main__":
    main()
