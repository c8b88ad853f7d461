"""The tables of appearances in each world, in docs/results.md."""

from collections.abc import Sequence

from evidence_looks_page import FIGURE_6
from evidence_page import Line, header, notes
from evidence_worlds import rows, worlds_of

REFERENCE = "plain"
COLUMNS = (
    "world",
    "demonstrations, encoder",
    "success of each training",
    "recipe",
    "plain looks less this, each training",
    f"{REFERENCE} less this: policies of the same training seed, p (McNemar, Holm)",
    f"{REFERENCE} less this: recipes, p (Holm)",
    "STRING, real robot: 2D, 3D",
)


def tables(lines: Sequence[Line]) -> str:
    """Returns a table for each task and scale; lines of other families of cells are ignored."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in (line for line in lines if "appearance" in line):
        groups.setdefault((str(line["task"]), str(line["scale"])), []).append(line)
    return "\n".join(
        table(f"{task}, {scale}: appearance of demonstrations", group)
        for (task, scale), group in sorted(groups.items())
    )


def table(title: str, lines: Sequence[Line]) -> str:
    """Returns the table of one task and scale: plain looks first, best recipe first."""
    worlds = worlds_of(lines, "appearance", "world")
    once = notes(runs for choices in worlds.values() for runs in choices.values())
    found = [f"### {title}", "", *once, *header(COLUMNS)]
    for row in rows(worlds, REFERENCE):
        cells = (
            row.world.replace("_", " ") or "plain looks",
            row.choice,
            row.success,
            row.recipe,
            row.drop,
            row.policies,
            row.recipes,
            published(row.world),
        )
        found.append(f"| {' | '.join(cells)} |")
    return "\n".join(found) + "\n"


def published(world: str) -> str:
    """Returns the paper's success in a world, or a dash if it is unknown."""
    found = FIGURE_6.get(world)
    return "-" if found is None else ", ".join(f"{share} %" for share in found)
