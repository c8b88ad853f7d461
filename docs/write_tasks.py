"""Writes docs/tasks.md, its images, and the tables of docs/lab/experts.md.

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
import re
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
from stringline.sim.tasks.dish_tasks import DishTask
from stringline.sim.tasks.hand_over_tasks import HandOverTask
from stringline.sim.tasks.insertion_tasks import InsertionTask
from stringline.sim.tasks.task_registry import TASKS, make_task
from stringline.sim.worlds.gym_aloha import TASK_MODELS

FOLDER = Path(__file__).parent
EXPERTS = FOLDER / "lab" / "experts.md"
BEGIN, END = "<!-- experts: begin -->", "<!-- experts: end -->"
BASES = (DishTask, HandOverTask, InsertionTask)  # Named by the docstrings of their tasks.
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

The first twelve tasks are those of the ALOHA experiments of STRING (Schenck et al., 2025, table 5).
Both arms stand at one table, which four RGB-D cameras observe (overhead, both wrists, table level);
an action is 14 joint targets, 50 times per second.

    stringline-collect task={example} output=runs/{example} episodes=50
    stringline-collect task={example} output=runs/plain task.options.start_spread=1 varied=false
    stringline-demo task={example} minutes=30 output=runs/{example}_demo

**Success** is geometric, never contact alone: objects inside their goal, touched by no arm, at rest
for half a second. `strict=true` also counts no drops ([rules](simulation.md#versions)).

**Start.** `start_spread` chooses the start of the arms: 0 is home, the default of ALOHA; 1, the
default of KUKA, a random reachable pose around it, at least 2 cm from everything else.
`table_height` (metres) moves the table with the goal. U(a, b) is a uniform range. Sizes of the
objects are in the docstrings of the tasks (`sim/tasks`).

**Experts** read the true poses and run in closed loop. They succeed on 98 to 100 % of the starts
([measurements](lab/experts.md)). "length" is the mean duration of their episodes and its variation.

| option of collections | effect |
|---|---|
| `varied=false` | the expert acts in one way at one pace; from a varied start it goes home first. \
Otherwise grasps, meeting places and pace are drawn |
| `lost_grasps=0.2` | in a fifth of the episodes the gripper opens once during a grasp, and the \
expert grasps again |
| `missed_grasps=0.4` | in two fifths an arm is displaced by 1 to 4.5 cm and up to 26 degrees near \
an object, and the expert approaches again |
| `human_like=true` | the expert moves as a person by teleoperation: tremor of 3 mm at 4 to 10 Hz, \
overshoot, pauses, a gripper that narrows in flight, a second grasp after a quarter of closings |

Lost and missed grasps are not in the recorded actions, which are the commands of the expert. With
`human_like=true` they are those of the hand.

![Every task at its start and at its end](tasks.png)

"""
RULES = """\
## Common rules

"""
KUKA = """\
## The KUKA workcell

One KUKA LBR iiwa 14, or two that face each other across a table, with grippers that open 110 mm, an
overhead camera and one at each wrist. The table can be up to 10 cm lower or higher. An action is 8
joint targets for each arm. Depth has the noise of a stereo camera unless `depth_noise` is 0
([shifts](shifts.md)).

![Every task of the KUKA workcell at its start and at its end](tasks_kuka.png)

"""
EXPERTS_TEXT = """\
Wilson 95 % intervals, on seeds 0 to 99 from home and on 1000 to 1099, which were not used for
tuning. "Varied start", "lost grasp" (in every episode) and "plain" (`varied=false`) are with
`start_spread=1`, on ALOHA also with `strict=true`, on seeds 0 to 19; `-` and a missing column are
not measured. `docs/write_tasks.py` lists the commands and writes these tables.
"""
THIRD_PARTY_TEXT = """\
## Third-party environments

[Tasks of other projects](third-party.md) run with the same commands. Their physics, initial states
and success criteria are those of the projects.

| task | instruction | stages |
|---|---|---|
{rows}

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
    EXPERTS.write_text(with_tables(EXPERTS.read_text()))
    if not given.text_only:
        for cell in given.images:
            sheet([images(name) for name in names(cell)]).save(FOLDER / FILES[cell], optimize=True)


def page() -> str:
    """Returns the page."""
    parts = [INTRODUCTION.format(example=names("aloha")[0]) + table("aloha")]
    parts += [RULES + "\n\n".join(map(rule, BASES)) + "\n", *map(section, names("aloha"))]
    parts += [KUKA + table("kuka"), *map(section, names("kuka")), third_party()]
    return "\n".join(parts)


def with_tables(text: str) -> str:
    """Returns the page of the experts with the present tables between its marks."""
    before, _, rest = text.partition(BEGIN)
    tables = "\n".join((EXPERTS_TEXT, *map(rates, COLUMNS_OF), other_rates()))
    return f"{before}{BEGIN}\n{tables}{END}{rest.partition(END)[2]}"


def table(cell: str) -> str:
    """Returns the table of the tasks of a cell, and the ranges in which their arms start."""
    starts = dict.fromkeys(str(make_task(name).starts_within()) for name in names(cell))
    lines = [
        "| task | instruction | length |",
        "|---|---|---|",
        *map(row, names(cell)),
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


def row(name: str) -> str:
    """Returns a task's line in the table of tasks."""
    found = measured(SEEN).get(name)
    length = (
        f"{found['seconds']:.1f} s ± {found['length_variation']:.0%}".replace("%", " %")
        if found
        else MISSING
    )
    return f"| [{name}](#{name}) | {make_task(name).instruction} | {length} |"


def rates(cell: str) -> str:
    """Returns the table of the rates of the experts of a cell."""
    columns = {
        title: found
        for title, file in (COLUMNS_OF[cell] | VARIED_COLUMNS).items()
        if (found := measured(file)).keys() & {*names(cell)}
    }
    lines = [
        f"| task | {' | '.join(columns)} |",
        "|---" * (1 + len(columns)) + "|",
        *(
            f"| `{name}` | {' | '.join(rate(found.get(name)) for found in columns.values())} |"
            for name in names(cell)
        ),
        "",
    ]
    return "\n".join(lines)


def other_rates() -> str:
    """Returns the table of the rates of the experts of third-party tasks."""
    found = measured(THIRD_PARTY)
    rows = [f"| `{name}` | {rate(found.get(name))} |" for name in TASK_MODELS]
    return "\n".join(("| third-party task | seeds 0 to 99 |", "|---|---|", *rows, ""))


def rate(entry: dict[str, object] | None) -> str:
    """Returns the successes of an entry, or `-` where there is none."""
    if entry is None:
        return MISSING
    counts = entry["rate"]
    assert isinstance(counts, dict)
    return str(Rate(counts["successes"], counts["trials"]))


def rule(base: type) -> str:
    """Returns the rule that tasks of a base class share, the first paragraphs of its docstring."""
    first, second, *_ = inspect.cleandoc(base.__doc__ or "").split("\n\n")
    text = second if first.startswith("The base class") else f"{first} {second}"
    return fill(f"`{base.__name__}`: {' '.join(text.split())}", 100)


def section(name: str) -> str:
    """Returns what is said about a task."""
    task = make_task(name)
    described = inspect.cleandoc(type(task).__doc__ or "")
    text = re.split(r"\n\n(?:Args|Attributes|Sizes)\b", described)[0]
    return "\n".join([f"## {name}", "", f"{text} Stages: {', '.join(task.stages)}.", ""])


def third_party() -> str:
    """Returns what is said about the tasks of others."""
    rows = [
        f"| `{name}` | {kind.instruction} | {', '.join(kind.stages)} |"
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
