"""The campaign: cells of one question each, with a fixed recipe, run one by one.

    python benchmarks/evidence.py                           # runs the next missing cell
    python benchmarks/evidence.py --list                    # lists all cells with their state
    python benchmarks/evidence.py --cell hand_over_banana/cayley_values/metric/0/small
    python benchmarks/evidence.py --under kuka_pick-v2 --all   # runs all missing cells of a prefix
    python benchmarks/evidence.py --campaign aloha12        # runs all cells of twelve tasks
    python benchmarks/evidence.py --write                   # writes the pages, runs nothing

There are six families of cells. One compares encodings and kinds of policies on ALOHA's tasks
(`evidence_cells.py`): a task, an encoding, coordinates, a training seed, a scale and a kind of
policy, which is diffusion unless the name ends with another, such as
hand_over_banana/cayley_values/metric/0/small/flow. The other compares inputs of depth on a task of
KUKA's arm (`evidence_looks.py`): a look, a training seed, a scale and a shift, such as
kuka_pick-v2/lifting/0/small/raised_table (with varied starts; without -v2 with starts at home);
without a shift it is measured in distribution. The worlds of one look share its checkpoint. The
third trains one policy with instructions for all twelve tasks of ALOHA (`evidence_tasks.py`): an
encoding, a training seed and a scale, such as aloha12/cayley_values/0/small. The fourth compares
the appearance of demonstrations and pre-trained image encoders (`evidence_appearance.py`): a task,
a recipe, a training seed, a scale and a world, such as
appearance/hand_over_banana/randomised/0/small/held_out; without a world it is measured in plain
looks. The fifth compares places and actions on tasks of ALOHA (`evidence_places.py`), such as
places/bowl_on_rack/grippers/0/small/raised_table. The sixth judges encodings on perception
(`evidence_perception.py`): a task, a choice, a training seed and a scale, such as
perception/detect3d/rgbd_cayley_relative/0/small.

A cell of policies runs three public commands: stringline-collect (once per task and scale),
stringline-train, and stringline-eval on seeds without demonstrations; a cell of perception runs
stringline-scenes or stringline-data (once per task) and stringline-perceive. It writes to
runs/evidence/<cell> the checkpoint (at most 16 MiB, for twelve tasks 30), the videos and the
report, and appends one line to docs/lab/results.jsonl: recipe, outcomes, seconds, machine and
versions; then it rewrites the tables of docs/lab and the values of docs/results.md. A stopped cell
continues. `small` takes about a quarter of an hour on two idle CPU cores, for twelve tasks some
hours; `medium` has more demonstrations or steps; `large` is meant for a GPU.
"""

import difflib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import evidence_choices_page
import evidence_looks_page
import evidence_page
import evidence_perception_page
import evidence_summary
import evidence_tasks_page
from evidence_appearance import TASKS, appearance_cells
from evidence_cells import cells, colour_cells, first_cells, third_party_cells
from evidence_looks import look_cells
from evidence_perception import perception_cells
from evidence_places import places_cells
from evidence_recipe import ROOT, Question
from evidence_tasks import CAMPAIGN, tasks_cells
from measurement import FOLDER, parser_of

from stringline.sim.report.report import package_versions, system_info

SUMMARY, LAB = ROOT / "docs" / "results.md", ROOT / "docs" / "lab"
RESULTS = LAB / "results.jsonl"
# The beginnings of the names of cells whose tables a page of the lab has; the last page has all
# other cells.
PAGES: dict[str, tuple[str, ...]] = {
    "gym-aloha.md": ("gym_aloha_",),
    "depth-inputs.md": ("kuka_pick/",),
    "gripper-frames.md": ("kuka_pick-v2/", "places/"),
    "twelve-tasks.md": (f"{CAMPAIGN}/",),
    "appearance.md": ("appearance/",),
    "perception.md": ("perception/",),
    "encodings.md": ("",),
}
TABLES = (
    evidence_page.tables,
    evidence_looks_page.tables,
    evidence_tasks_page.tables,
    evidence_choices_page.tables,
    evidence_perception_page.tables,
)
COMMANDS = {
    "collect": "stringline.sim.collect",
    "scenes": "stringline.sim.generate",
    "perceive": "stringline.encoders.perceive",
    "data": "stringline.datasets.data",
    "train": "stringline.sim.train",
    "eval": "stringline.sim.evaluate",
}


def questions() -> list[Question]:
    """Returns all cells, the most informative first; at the end the measured ones of version 1."""
    found = known()
    former = [cell for seed in range(3) for cell in look_cells("small", seed, version=1)]
    small = [
        *first_cells(),
        *look_cells("small"),
        *cells("small"),
        *look_cells("small", 1),
        *look_cells("small", 2),
        *(cell for seed in range(3) for cell in look_cells("medium", seed)),
        *(cell for seed in range(3) for cell in look_cells("medium_missed", seed)),
        *colour_cells(),
        *places_cells(),
        *(cell for task in TASKS for cell in appearance_cells(task)),
        *perception_cells(),
    ]
    return list(
        dict.fromkeys(
            [
                *small,
                *third_party_cells("small"),
                *third_party_cells("longer"),
                *third_party_cells("large"),
                *cells("large"),
                *look_cells("large"),
                *tasks_cells("small"),
                *tasks_cells("medium"),
                *tasks_cells("large"),
                *(cell for cell in former if cell.name in found),
            ]
        )
    )


def known() -> dict[str, dict[str, object]]:
    """Returns the lines of measured cells by name."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {entry["name"]: entry for entry in map(json.loads, lines)}


def answer(cell: Question) -> dict[str, object]:
    """Runs the missing parts of a cell and returns its line."""
    took: dict[str, float] = {}
    for verb, given in cell.commands():
        print(f"\n$ stringline-{verb} {' '.join(given)}", flush=True)
        start = time.monotonic()
        code = status_of(
            [sys.executable, "-c", f"from {COMMANDS[verb]} import main; main()", *given]
        )
        if code:
            raise SystemExit(code)
        took[verb] = round(took.get(verb, 0.0) + time.monotonic() - start, 1)
    size = sum(file.stat().st_size for file in cell.checkpoint.rglob("*") if file.is_file())
    if size > cell.largest_checkpoint:
        raise SystemExit(
            f"The checkpoint of {cell.name} has {size} bytes; allowed: {cell.largest_checkpoint}."
        )
    return {
        "name": cell.name,
        **cell.about(),
        "recipe": cell.recipe,
        **cell.outcomes(),
        "seconds": took,
        "checkpoint_bytes": size,
        "machine": system_info(),
        "versions": package_versions(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def status_of(command: Sequence[str]) -> int:
    """Runs a command and returns its exit status.

    Raises:
        KeyboardInterrupt: After Ctrl-C, when the command has saved its state and ended.
    """
    # Not subprocess.run, which kills the command a quarter of a second after Ctrl-C.
    with subprocess.Popen(command, env=environment()) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            raise


def environment() -> dict[str, str]:
    """Returns the environment of the commands, with the modules of this script."""
    path = os.pathsep.join(entry for entry in sys.path if entry and Path(entry).resolve() != FOLDER)
    return os.environ | {"PYTHONPATH": path}


def chosen(
    name: str | None, everything: Sequence[Question], found: dict[str, dict[str, object]]
) -> Question | None:
    """Returns the cell with a name, or the next missing one."""
    by_name = {cell.name: cell for cell in everything}
    if name is None:
        return next((cell for cell in everything if cell.name not in found), None)
    if name not in by_name:
        nearest = " or ".join(map(repr, difflib.get_close_matches(name, by_name)))
        raise ValueError(
            f"There is no cell {name!r}.{f' Did you mean {nearest}?' if nearest else ''} --list "
            f"shows all."
        )
    return by_name[name]


def below(beginning: str) -> list[Question]:
    """Returns the cells whose names have a prefix."""
    everything = [cell for cell in questions() if cell.name.startswith(beginning)]
    if not everything:
        raise ValueError(f"There is no cell below {beginning!r}. --list shows all.")
    return everything


def write(lines: Sequence[dict[str, object]]) -> None:
    """Rewrites the tables of the lab, and the values of the summary."""
    left = list(lines)
    for page, beginnings in PAGES.items():
        own = [line for line in left if str(line["name"]).startswith(beginnings)]
        left = [line for line in left if line not in own]
        tables = [tables(own) for tables in TABLES]
        evidence_page.write_page(LAB / page, "\n".join(table for table in tables if table))
    by_name = {str(line["name"]): line for line in lines}
    SUMMARY.write_text(evidence_summary.filled(SUMMARY.read_text(), by_name))


def run(cell: Question) -> dict[str, object]:
    """Runs a cell, appends its line to the results, and returns it."""
    line = answer(cell)
    with RESULTS.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return line


def main() -> None:
    """Runs or lists cells, or writes the tables."""
    parser = parser_of(__doc__, results=False)
    parser.add_argument("--cell", help="a cell, instead of the next missing one")
    parser.add_argument(
        "--under", default="", metavar="BEGINNING", help="only cells whose names have this prefix"
    )
    parser.add_argument("--campaign", choices=[CAMPAIGN], help="the same as --under NAME/ --all")
    parser.add_argument("--all", action="store_true", help="run all missing cells")
    parser.add_argument("--list", action="store_true", help="show all cells")
    parser.add_argument("--write", action="store_true", help="write the pages, run nothing")
    given = parser.parse_args()
    if given.campaign:
        given.under, given.all = f"{given.campaign}/", not given.list
    found = known()
    try:
        everything = below(given.under)
        cell = None if given.write or given.list else chosen(given.cell, everything, found)
    except ValueError as error:
        parser.error(str(error))
    if given.list:
        print(
            "\n".join(
                f"{'done   ' if cell.name in found else 'missing'} {cell.name}"
                for cell in everything
            )
        )
        return
    if cell is not None and cell.name in found:
        parser.error(f"{cell.name} is in {RESULTS} already; delete its line to measure it again.")
    while cell is not None:
        found[cell.name] = run(cell)
        write(list(found.values()))
        cell = chosen(None, everything, found) if given.all else None
    write(list(found.values()))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("\nStopped. The same command continues the cell.") from None
