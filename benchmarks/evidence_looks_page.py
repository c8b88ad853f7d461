"""The table of looks in each world, in docs/results.md."""

from collections.abc import Sequence

from evidence_page import (
    Line,
    Runs,
    by_name,
    difference,
    each,
    header,
    notes,
    pairs_of,
    policy_differences,
    rate,
    recipe,
    recipe_differences,
    success,
)

from stringline.sim.statistics.intervals import Rate

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
    "success of each training",
    "recipe",
    "lifted",
    "in distribution less this, each training",
    f"{REFERENCE} less this: policies of the same training seed, p (McNemar, Holm)",
    f"{REFERENCE} less this: recipes, p (Holm)",
    "STRING, real robot",
)
Looks = dict[str, Runs]


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
    against = {
        (world, look): (looks.get(REFERENCE, {}), runs)
        for world, looks in outcomes.items()
        for look, runs in looks.items()
        if look != REFERENCE
    }
    policies, recipes = policy_differences(against), recipe_differences(against)
    once = notes(runs for looks in outcomes.values() for runs in looks.values())
    voided = [VOID_NOTE, ""] if void & worlds.keys() else []
    rows = [f"### {title}", "", *voided, *once, *header(COLUMNS)]
    for world, looks in outcomes.items():
        for look in sorted(looks, key=lambda look: -success(looks[look])):
            plain = {} if world == IN_DISTRIBUTION else outcomes[IN_DISTRIBUTION].get(look, {})
            cells = (
                f"{world.replace('_', ' ') or 'in distribution'}{' (void)' * (world in void)}",
                look,
                each(looks[look], lambda text: str(rate(text))),
                recipe(looks[look]),
                lifted(worlds[world], look),
                drops(looks[look], plain),
                policies.get((world, look), "-"),
                recipes.get((world, look), "-"),
                published(world, look),
            )
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def drops(runs: Runs, plain: Runs) -> str:
    """Returns how much of its success in distribution each training loses, paired by starts."""
    common = sorted(runs.keys() & plain.keys())
    return "; ".join(difference(pairs_of(runs[seed], plain[seed])) for seed in common) or "-"


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
        if world == IN_DISTRIBUTION
        else {"2d": flat, "lifting": lifting, "string_lifting": lifting}
    )
    share = figures.get(look)
    return "-" if share is None else f"{share} %"
