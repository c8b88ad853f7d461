"""The table of looks in each world, in docs/results.md."""

from collections.abc import Sequence

from evidence_page import Line, by_name, difference, paired, rate

from stringline.sim.statistics.intervals import Rate
from stringline.sim.statistics.paired import Pairs, holm, mcnemar

REFERENCE = "lifting"
IN_DISTRIBUTION = ""
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
# Worlds whose measurements do not count, by the version of the task.
VOID: dict[int, frozenset[str]] = {1: frozenset({"raised_table", "lowered_table"})}
VOID_NOTE = (
    "Rows of other table heights are void: in version 1 all demonstrations start from one pose, so "
    "the\nheight of the gripper above the table tells the phase of the motion, and another height "
    "measures this\nconfusion."
)
COLUMNS = (
    "world",
    "look",
    "runs",
    "success",
    "lifted",
    "in distribution less this, same seeds",
    f"{REFERENCE} less this, same seeds",
    "p (McNemar, Holm)",
    "STRING, real robot",
)
# Outcomes, a digit for each seed of evaluation, by look and by seed of training.
Looks = dict[str, dict[int, str]]


def tables(lines: Sequence[Line]) -> str:
    """Returns a table for each task, its version, and scale.

    Lines of other families of cells are ignored.
    """
    groups: dict[tuple[str, int, str], list[Line]] = {}
    for line in (line for line in lines if "look" in line):
        version = int(str(line.get("version", 1)))  # The first lines tell none.
        groups.setdefault((str(line["task"]), version, str(line["scale"])), []).append(line)
    return "\n".join(
        table(
            f"{task}-v{version}, {scale}: looks and shifts", group, VOID.get(version, frozenset())
        )
        for (task, version, scale), group in sorted(groups.items())
    )


def table(title: str, lines: Sequence[Line], void: frozenset[str] = frozenset()) -> str:
    """Returns the table of one task and scale: training world first, best look first.

    Rows of the worlds in `void` are marked.
    """
    worlds: dict[str, list[Line]] = {IN_DISTRIBUTION: []}
    for line in lines:
        worlds.setdefault(str(line["shift"]), []).append(line)
    outcomes = {
        world: by_name(group, lambda line: str(line["look"])) for world, group in worlds.items()
    }
    verdicts = compared(outcomes)
    notes = [VOID_NOTE, ""] if void & worlds.keys() else []
    rows = [f"### {title}", "", *notes, f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for world, looks in outcomes.items():
        for look in sorted(looks, key=lambda look: -rate(looks[look]).value):
            plain = {} if world == IN_DISTRIBUTION else outcomes[IN_DISTRIBUTION].get(look, {})
            cells = (
                f"{world.replace('_', ' ') or 'in distribution'}{' (void)' * (world in void)}",
                look,
                str(len(looks[look])),
                str(rate(looks[look])),
                str(lifted(worlds[world], look)),
                difference_text(paired(looks[look], plain)),
                *verdicts[world, look],
                published(world, look),
            )
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def compared(outcomes: dict[str, Looks]) -> dict[tuple[str, str], tuple[str, str]]:
    """Returns differences from the reference look with corrected p, by world and look."""
    pairs = {
        (world, look): paired(runs, {} if look == REFERENCE else looks.get(REFERENCE, {}))
        for world, looks in outcomes.items()
        for look, runs in looks.items()
    }
    known = [which for which in pairs if pairs[which].count]
    corrected = dict(zip(known, holm([mcnemar(pairs[which]) for which in known]), strict=True))
    return {
        which: (
            difference_text(pairs[which]),
            f"{corrected[which]:.2g}" if which in corrected else "-",
        )
        for which in pairs
    }


def difference_text(pairs: Pairs) -> str:
    """Returns the difference of pairs, or a dash without pairs."""
    return difference(pairs) if pairs.count else "-"


def lifted(lines: Sequence[Line], look: str) -> Rate:
    """Returns the rate of episodes of a look in a world that reached the stage `LIFTED`."""
    stages = "".join(str(line["stages"]) for line in lines if line["look"] == look)
    return Rate(sum(int(stage) >= LIFTED for stage in stages), len(stages))


def published(world: str, look: str) -> str:
    """Returns the paper's success of a look in a world, or a dash if it is unknown."""
    flat, lifting = FIGURE_6.get(world, (None, None))
    figures = (
        FIGURE_5
        if world == IN_DISTRIBUTION
        else {"2d": flat, "lifting": lifting, "string_lifting": lifting}
    )
    share = figures.get(look)
    return "-" if share is None else f"{share} %"
