"""The tables of `ChoiceCell` in docs/lab."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evidence_cells import experts_of
from evidence_looks_page import FIGURE_6
from evidence_page import Line, header, notes
from evidence_tasks_page import STARTS
from evidence_worlds import rows, worlds_of


@dataclass(frozen=True)
class Table:
    """Words of the tables of a family, and the choice that the others are compared with."""

    title: str
    choice: str
    reference: str
    unshifted: str


FAMILIES = {
    "places": Table("places and actions", "places", "grippers", "in distribution"),
    "appearance": Table(
        "appearance of demonstrations", "demonstrations, encoder", "plain", "plain looks"
    ),
}


def tables(lines: Sequence[Line]) -> str:
    """Returns a table for each family, task, scale and start; lines of other cells are ignored."""
    groups: dict[tuple[str, str, str, str], list[Line]] = {}
    for line in (line for line in lines if "family" in line):
        end = experts_of(str(line["choice"]))
        key = (str(line["family"]), str(line["task"]), str(line["scale"]), end)
        groups.setdefault(key, []).append(line)
    found = []
    for (family, task, scale, end), group in sorted(groups.items()):
        words = FAMILIES[family]
        words = replace(words, reference=f"{words.reference}{end}")
        found.append(table(f"{task}, {scale}: {words.title}{STARTS[end]}", words, group))
    return "\n".join(found)


def table(title: str, words: Table, lines: Sequence[Line]) -> str:
    """Returns the table of one task and scale: the world without a shift first, the best first."""
    worlds = worlds_of(lines, "choice", "world")
    columns = (
        "world",
        words.choice,
        "success of each training",
        "recipe",
        f"{words.unshifted} less this, each training",
        f"{words.reference} less this: policies of the same training seed, p (McNemar, Holm)",
        f"{words.reference} less this: recipes, posterior (Holm)",
        "STRING, real robot: 2D, 3D",
    )
    once = notes(runs for choices in worlds.values() for runs in choices.values())
    found = [f"### {title}", "", *once, *header(columns)]
    for row in rows(worlds, words.reference):
        cells = (
            row.world.replace("_", " ") or words.unshifted,
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
