"""The table of looks in each world, in docs/lab."""

from collections.abc import Sequence

from evidence_page import Line, each, header, notes
from evidence_worlds import UNSHIFTED, rows, worlds_of

from stringline.sim.statistics.intervals import Rate

REFERENCE = "lifting"
LIFTED = 2  # The stage of kuka_pick in which the object is held above the table.
# Approximate success on the real robot in STRING's figures, percent. Figure 6 has 2D and 3D, and
# one value for all light.
FIGURE_5 = {"2d": 65, "normals": 42, "normals_lifting": 53, "lifting": 74, "string_lifting": 74}
LIGHT, DISTRACTORS, HEIGHT = (10, 25), (57, 74), (10, 50)
FIGURE_6 = {
    "dim_light": LIGHT,
    "side_light": LIGHT,
    "coloured_light": LIGHT,
    "distractors": DISTRACTORS,
    "lowered_table": HEIGHT,
    "raised_table": HEIGHT,
}
COLUMNS = (
    "world",
    "look",
    "success of each training",
    "recipe",
    "lifted",
    "in distribution less this, each training",
    f"{REFERENCE} less this: policies of the same training seed, p (McNemar, Holm)",
    f"{REFERENCE} less this: recipes, posterior (Holm)",
    "STRING, real robot",
)


def tables(lines: Sequence[Line]) -> str:
    """Returns a table for each task, its version, and scale.

    Lines of other families of cells are ignored.
    """
    groups: dict[tuple[str, int, str], list[Line]] = {}
    for line in (line for line in lines if "look" in line):
        version = int(str(line.get("version", 1)))  # The first lines tell none.
        groups.setdefault((str(line["task"]), version, str(line["scale"])), []).append(line)
    return "\n".join(
        table(f"{task}-v{version}, {scale}: looks and shifts", group)
        for (task, version, scale), group in sorted(groups.items())
    )


def table(title: str, lines: Sequence[Line]) -> str:
    """Returns the table of one task and scale: training world first, best look first."""
    worlds = worlds_of(lines, "look", "shift")
    once = notes(runs for looks in worlds.values() for runs in looks.values())
    found = [f"### {title}", "", *once, *header(COLUMNS)]
    for row in rows(worlds, REFERENCE):
        shown = [line for line in lines if line["shift"] == row.world]
        cells = (
            row.world.replace("_", " ") or "in distribution",
            row.choice,
            row.success,
            row.recipe,
            lifted(shown, row.choice),
            row.drop,
            row.policies,
            row.recipes,
            published(row.world, row.choice),
        )
        found.append(f"| {' | '.join(cells)} |")
    return "\n".join(found) + "\n"


def lifted(lines: Sequence[Line], look: str) -> str:
    """Returns the share of episodes of each training that reached the stage `LIFTED`."""
    stages = {int(str(line["seed"])): str(line["stages"]) for line in lines if line["look"] == look}

    def reached(text: str) -> str:
        return str(Rate(sum(int(stage) >= LIFTED for stage in text), len(text)))

    return each(stages, reached)


def published(world: str, look: str) -> str:
    """Returns the paper's success of a look in a world, or a dash if it is unknown."""
    flat, lifting = FIGURE_6.get(world, (None, None))
    figures = (
        FIGURE_5
        if world == UNSHIFTED
        else {"2d": flat, "lifting": lifting, "string_lifting": lifting}
    )
    share = figures.get(look)
    return "-" if share is None else f"{share} %"
