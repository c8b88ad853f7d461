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

The first twelve tasks are those of the ALOHA experiments of STRING (Schenck et al., 2025, table 5).
Eight of them were never published. All tasks use object models that were made for Stringline, and
the description of each task contains the sizes and ranges. In every task, both arms stand at the
same table and four RGB-D cameras observe it (overhead, both wrists, table level). An action
consists of 14 joint targets, 50 times per second.

Success is a predicate of geometry, never of contact alone: the objects are inside their goal,
released and at rest for half a second. All tasks have the option `table_height` (metres); the goal
moves with the table.

Two options choose the rule of a task. With `start_spread=1`, the default of the KUKA tasks, each
arm starts at a random pose around home, reachable and at least 2 cm from everything else; the seed
draws it, and objects stay where they are otherwise. With `start_spread=0`, the default of the ALOHA
tasks, the arms start at home; numbers between scale the distances. `strict=true`, of all tasks that
end with a release, counts no dropped objects and no hand-over through the air.
The experts of the recesses and insertions (`fmb_1`, `fmb_2`, `single_insertion`,
`double_insertion`) move from a varied start to home first.
Results, stores and checkpoints contain both: [simulation](simulation.md#versions). With
`lost_grasps=0.2`, the gripper opens once during a grasp in a fifth of the demonstrations, in spite
of its command, and the expert grasps again. With `missed_grasps=0.4`, an arm is displaced by 1 to
4.5 cm and rotated by up to 26 degrees in two fifths of the demonstrations while it approaches an
object, and the expert backs off and approaches again. Both disturb the execution only: the recorded
actions are the commands of the expert.
The experts draw their grasps, the places where they meet or release, and their pace for each
episode. With `varied=false` they act in one way at one pace: from a varied start they go home
first, of the grasps in reach they take the one that turns the gripper least from home, and numbers
are in the middle of their ranges. Of grasps that need the same turn they take the one in front
(dishes), in the middle of the object (KUKA), or at the rear wall (mug), so neighbouring starts have
neighbouring grasps. The choice changes only where the nearer arm or object changes, where the
mug's handle points to the rear, and where the gripper would have to turn by more than a quarter.
That of `hand_over_banana` still draws where the grippers meet, within 3 cm.

    stringline-collect task={example} output=runs/{example} episodes=50
    stringline-collect task={example} output=runs/varied +task.options.start_spread=1
    stringline-collect task={example} output=runs/plain +task.options.start_spread=1 varied=false
    stringline-demo task={example} minutes=30 output=runs/{example}_demo

The experts read the true poses and run in closed loop. The tables contain their success rates with
Wilson 95 % intervals, on the seeds 0 to 99 and on the seeds 1000 to 1099, which were not used for
tuning. The rates show that the tasks are feasible, and measure the quality of demonstrations. The
columns "varied start", "lost grasp" and "plain" are with `start_spread=1`, on ALOHA also with
`strict=true`, on the seeds 0 to 19, the second with a lost grasp in every episode, the third with
`varied=false`; all others start at home.
`docs/write_tasks.py` lists the commands of the measurements and writes this page.

![Every task at its start and at its end](tasks.png)

| task | instruction | expert, seeds 0 to 99 | expert, seeds 1000 to 1099 | varied start | \
lost grasp | plain | length |
|---|---|---|---|---|---|---|---|
"""
KUKA = """\
## The KUKA workcell

The arms are one KUKA LBR iiwa 14, or two that face each other across a table. Each arm has a
parallel gripper that opens 110 mm. The table can be up to 10 cm lower or higher. The RGB-D cameras
are an overhead camera and one camera at each wrist. An action consists of 8 joint targets for each
arm. Depth has the noise of a stereo camera unless `depth_noise` is 0 (`docs/shifts.md`). The object
to pick or place has one of 24 forms, drawn for each episode. Policies are trained as for ALOHA.

    stringline-collect task=kuka_pick output=runs/kuka_pick episodes=50

![Every task of the KUKA workcell at its start and at its end](tasks_kuka.png)

| task | instruction | expert, seeds 0 to 99 | low table | high table | distractors | \
varied start | lost grasp | plain | length |
|---|---|---|---|---|---|---|---|---|---|
"""
THIRD_PARTY_TEXT = """\
## Third-party environments

Tasks of other projects run with the same commands. Their physics, initial states and success
criteria are those of the projects: `docs/third-party.md`.

| task | instruction | stages | expert, seeds 0 to 99 |
|---|---|---|---|
{rows}
| `aloha_sim_hand_over_banana`, ... | from DeepMind's aloha_sim | start, success | - |

Your own tasks work without an entry in this table: `docs/my-robot.md`.
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
    seen = measured(SEEN)
    second = [measured(name) for name in (VARIED, LOST, PLAIN)]
    shifted = [measured(name) for name in (LOW, HIGH, DISTRACTORS)]
    rows = [row(name, seen, measured(UNSEEN), *second) for name in names("aloha")]
    kuka = [row(name, seen, *shifted, *second) for name in names("kuka")]
    parts = [
        INTRODUCTION.format(example=names("aloha")[0]) + "\n".join(rows) + "\n",
        *map(section, names("aloha")),
    ]
    parts += [KUKA + "\n".join(kuka) + "\n", *map(section, names("kuka")), third_party()]
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
    task = make_task(name)
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
    task = make_task(name)
    text = (
        inspect.cleandoc(type(task).__doc__ or "").split("\n\nArgs:")[0].split("\n\nAttributes:")[0]
    )
    start = f"Varied start of each arm, around home: {task.starts_within()}."
    stages = f"Stages: {', '.join(task.stages)}."
    return "\n".join([f"## {name}", "", text, "", fill(start, 100), "", stages, ""])


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
