"""Writes docs/tasks.md and docs/tasks.png from the tasks and from measurements of their experts.

    M="python benchmarks/experts.py --seeds 100"
    $M --json docs/experts.json
    $M --first-seed 1000 --json docs/experts_unseen.json
    $M --only gym_aloha_transfer_cube ... --time-limit 8 --json docs/experts_third_party.json
    $M --only kuka_pick ... --table-height -0.1 --json docs/experts_low_table.json
    $M --only kuka_pick ... --table-height 0.1 --json docs/experts_high_table.json
    $M --only kuka_pick ... --distractors 1 --json docs/experts_distractors.json
    M="python benchmarks/experts.py --seeds 20 --start-spread 1"  # With --strict on ALOHA.
    $M --json docs/experts_varied_starts.json
    $M --lost-grasps 1 --json docs/experts_lost_grasps.json
    $M --plain --json docs/experts_plain.json
    python docs/write_tasks.py

In the first six files the arms start at home.

The text of a task is the docstring of its class. The image shows its start and its end as the
expert leaves it (seed 0).
"""

import argparse
import inspect
import json
from pathlib import Path
from textwrap import fill

import numpy as np
from dm_control.mujoco.engine import MovableCamera
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from stringline.sim.collection.demonstration import record_episode
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.statistics.intervals import Rate
from stringline.sim.tasks.task_registry import TASKS, make_task
from stringline.sim.worlds.gym_aloha import TASK_MODELS

FOLDER = Path(__file__).parent
SEEN, UNSEEN, THIRD_PARTY = "experts.json", "experts_unseen.json", "experts_third_party.json"
LOW, HIGH, DISTRACTORS = (
    "experts_low_table.json",
    "experts_high_table.json",
    "experts_distractors.json",
)
VARIED, LOST = "experts_varied_starts.json", "experts_lost_grasps.json"
PLAIN = "experts_plain.json"
# Columns of the tables of a cell: their titles and files. A column without a measurement is left
# out.
COLUMNS_OF = {
    "aloha": {"seeds 0 to 99": SEEN, "1000 to 1099": UNSEEN},
    "kuka": {
        "seeds 0 to 99": SEEN,
        "low table": LOW,
        "high table": HIGH,
        "distractors": DISTRACTORS,
    },
}
VARIED_COLUMNS = {"varied start": VARIED, "lost grasp": LOST, "plain": PLAIN}
MISSING = "-"
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

The first twelve tasks are those of the ALOHA experiments of STRING (Schenck et al., 2025, table 5),
eight of which were never published. Object models were made for Stringline. Both arms stand at one
table, which four RGB-D cameras observe (overhead, both wrists, table level); an action is 14 joint
targets, 50 times per second.

Success is geometric, never contact alone: objects inside their goal, released, at rest for half a
second. `table_height` (metres) moves the table with the goal. `start_spread` chooses the start of
the arms (0: home, the default of ALOHA; 1, that of KUKA: a random reachable pose around it, at
least 2 cm from everything else), and `strict=true` counts no drops
([rules](simulation.md#versions)).

    stringline-collect task={example} output=runs/{example} episodes=50
    stringline-collect task={example} output=runs/varied +task.options.start_spread=1
    stringline-collect task={example} output=runs/plain +task.options.start_spread=1 varied=false
    stringline-demo task={example} minutes=30 output=runs/{example}_demo

| option of collections | effect |
|---|---|
| `varied=false` | the expert acts in one way at one pace: of the grasps in reach that which turns \
the gripper least from home, numbers in the middle of their ranges; from a varied start it goes \
home first, as experts of recesses and insertions always do. Otherwise grasps, meeting places and \
pace are drawn |
| `lost_grasps=0.2` | in a fifth of the episodes the gripper opens once during a grasp, and the \
expert grasps again |
| `missed_grasps=0.4` | in two fifths an arm is displaced by 1 to 4.5 cm and up to 26 degrees near \
an object, and the expert approaches again |
| `human_like=true` | the expert moves as a person by teleoperation: it trembles by 3 mm at 4 to \
10 Hz, goes beyond its targets and comes back, pauses between motions, narrows the gripper in \
flight, and grasps a second time in place after a quarter of the closings |

The grasps disturb the execution only: recorded actions are the commands of the expert. With \
`human_like=true` the recorded actions are those of the hand.

Experts read the true poses and run in closed loop. Their rates have Wilson 95 % intervals, on seeds
0 to 99 from home and on 1000 to 1099, which were not used for tuning. "Varied start", "lost grasp"
(in every episode) and "plain" (`varied=false`) are with `start_spread=1`, on ALOHA also with
`strict=true`, on seeds 0 to 19; `-` and a missing column are not measured.
`docs/write_tasks.py` lists the commands and writes this page.

![Every task at its start and at its end](tasks.png)

"""
KUKA = """\
## The KUKA workcell

One KUKA LBR iiwa 14, or two that face each other across a table, with grippers that open 110 mm, an
overhead camera and one at each wrist. The table can be up to 10 cm lower or higher. An action is 8
joint targets for each arm. Depth has the noise of a stereo camera unless `depth_noise` is 0
([shifts](shifts.md)). The object to pick or place has one of 24 forms, drawn for each episode.

![Every task of the KUKA workcell at its start and at its end](tasks_kuka.png)

"""
THIRD_PARTY_TEXT = """\
## Third-party environments

Tasks of other projects run with the same commands. Their physics, initial states and success
criteria are [those of the projects](third-party.md).

| task | instruction | stages | expert, seeds 0 to 99 |
|---|---|---|---|
{rows}
| `aloha_sim_hand_over_banana`, ... | from DeepMind's aloha_sim | start, success | - |

Your own tasks: [my-robot.md](my-robot.md).
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
    parts = [INTRODUCTION.format(example=names("aloha")[0]) + table("aloha")]
    parts += [*map(section, names("aloha")), KUKA + table("kuka")]
    parts += [*map(section, names("kuka")), third_party()]
    return "\n".join(parts)


def table(cell: str) -> str:
    """Returns the table of the tasks of a cell, and the ranges in which their arms start."""
    columns = {
        title: found
        for title, file in (COLUMNS_OF[cell] | VARIED_COLUMNS).items()
        if (found := measured(file)).keys() & {*names(cell)}
    }
    titles = ["task", "instruction", *columns, "length"]
    starts = dict.fromkeys(str(make_task(name).starts_within()) for name in names(cell))
    lines = [
        f"| {' | '.join(titles)} |",
        "|---" * len(titles) + "|",
        *(row(name, *columns.values()) for name in names(cell)),
        "",
        *(fill(f"Varied start of each arm, around home: {one}.", 100) for one in starts),
        "",
    ]
    return "\n".join(lines)


def names(cell: str) -> list[str]:
    """Returns the tasks of a cell."""
    return [name for name in TASKS if name.startswith("kuka_") == (cell == "kuka")]


def measured(file: str) -> dict[str, dict[str, object]]:
    """Returns what was measured, by task; nothing where there is no such file yet."""
    path = FOLDER / file
    entries = json.loads(path.read_text()) if path.exists() else []
    return {entry["name"].removeprefix("experts/"): entry for entry in entries}


def row(name: str, *columns: dict[str, dict[str, object]]) -> str:
    """Returns a task's line in the table."""
    task = make_task(name)
    lengths = next((found[name] for found in columns if name in found), None)
    length = (
        f"{lengths['seconds']:.1f} s ± {lengths['length_variation']:.0%}".replace("%", " %")
        if lengths
        else MISSING
    )
    rates = " | ".join(rate(found.get(name)) for found in columns)
    return f"| [{name}](#{name}) | {task.instruction} | {rates} | {length} |"


def rate(entry: dict[str, object] | None) -> str:
    """Returns the successes of an entry, or `-` where there is none."""
    if entry is None:
        return MISSING
    counts = entry["rate"]
    assert isinstance(counts, dict)
    return str(Rate(counts["successes"], counts["trials"]))


def section(name: str) -> str:
    """Returns what is said about a task."""
    task = make_task(name)
    text = (
        inspect.cleandoc(type(task).__doc__ or "").split("\n\nArgs:")[0].split("\n\nAttributes:")[0]
    )
    return "\n".join([f"## {name}", "", text, "", f"Stages: {', '.join(task.stages)}.", ""])


def third_party() -> str:
    """Returns what is said about the tasks of others."""
    found = measured(THIRD_PARTY)
    rows = [
        (
            f"| `{name}` | {kind.instruction} | {', '.join(kind.stages)} | "
            f"{rate(found[name]) if name in found else '-'} |"
        )
        for name, kind in TASK_MODELS.items()
    ]
    return THIRD_PARTY_TEXT.format(rows="\n".join(rows))


def images(name: str) -> tuple[str, NDArray[np.uint8], NDArray[np.uint8]]:
    """Returns a task's name with its start and its end as the expert leaves it."""
    world = TaskEnvironment(make_task(name), cameras=(), time_limit_s=LIMIT_S)
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
