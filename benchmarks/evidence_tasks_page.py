"""The table of one policy for twelve tasks, in docs/lab."""

from collections.abc import Mapping, Sequence

from evidence_cells import experts_of
from evidence_page import (
    Line,
    Runs,
    each,
    header,
    notes,
    points_of,
    rate,
    table_of_outcomes,
)

from stringline.sim.statistics.paired import MacroMean, holm
from stringline.sim.statistics.trainings import Outcomes, recipe_difference, recipe_rate

REFERENCE = "cayley_values"
# Table 5 of STRING (arXiv 2502.02562): success of ViT, RoPE and STRING, percent.
TABLE_5 = {
    "bowl_on_rack": (90, 80, 100),
    "double_insertion": (20, 50, 60),
    "fmb_1": (20, 20, 20),
    "fmb_2": (10, 10, 10),
    "fruit_bowl": (30, 30, 30),
    "glass_on_rack": (60, 60, 60),
    "hand_over_banana": (100, 100, 100),
    "hand_over_pen": (100, 100, 100),
    "mug_on_plate": (70, 90, 80),
    "plate_on_rack": (60, 70, 50),
    "single_insertion": (40, 60, 60),
    "storage_bin": (0, 0, 0),
}
MULTI_TASK = (37, 42, 46)
# Ends of titles by those of the names of encodings.
STARTS = {"": "", "_plain": ", plain experts from the home pose", "_home": ", from the home pose"}
Encodings = dict[str, dict[str, Runs]]
"""Outcomes of each task by training seed, by encoding."""


def tables(lines: Sequence[Line]) -> str:
    """Returns a table for each campaign, scale and kind of demonstrations.

    Evaluations start where the demonstrations do, so different kinds are not compared. Lines of
    other families are ignored.
    """
    groups: dict[tuple[str, str, str], list[Line]] = {}
    for line in (line for line in lines if "campaign" in line):
        key = (str(line["campaign"]), str(line["scale"]), experts_of(str(line["encoding"])))
        groups.setdefault(key, []).append(line)
    return "\n".join(
        table(f"{campaign}, {scale}: one policy for all tasks{STARTS[end]}", group, end)
        for (campaign, scale, end), group in sorted(groups.items())
    )


def table(title: str, lines: Sequence[Line], end: str = "") -> str:
    """Returns the table of a scale: a row per task, a column per encoding, and the means.

    `end` is that of the names of all encodings, see `evidence_cells.EXPERTS`.
    """
    reference = f"{REFERENCE}{end}"
    encodings = outcomes_of(lines, reference)
    columns = ["task", *encodings, "STRING's table 5: ViT, RoPE, STRING"]
    once = notes(next(iter(runs.values())) for runs in encodings.values())
    rows = [f"### {title}", "", *once, *header(columns)]
    for task in next(iter(encodings.values())):
        shown = [each(runs[task], lambda text: str(rate(text))) for runs in encodings.values()]
        rows.append(row(task, shown, published(TABLE_5.get(task))))
    means = [each_mean(runs) for runs in encodings.values()]
    rows.append(row("mean over tasks", means, published(MULTI_TASK)))
    rows.append(row("mean, recipe", [recipe(runs) for runs in encodings.values()], "-"))
    compared = differences(encodings, reference)
    rows.append(
        row(
            f"{reference} less this, recipes, posterior (Holm)",
            [compared[one] for one in encodings],
            "-",
        )
    )
    stages = [failures(lines, encoding) for encoding in encodings]
    rows.append(row("furthest stage of failures", stages, "-"))
    return "\n".join(rows) + "\n"


def row(name: str, cells: Sequence[str], last: str) -> str:
    """Returns a row of the table."""
    return f"| {' | '.join((name, *cells, last))} |"


def outcomes_of(lines: Sequence[Line], reference: str) -> Encodings:
    """Returns the outcomes of all lines, the reference first."""
    ordered = sorted(lines, key=lambda line: line["encoding"] != reference)
    found: Encodings = {}
    for line in ordered:
        runs = found.setdefault(str(line["encoding"]), {})
        for task, outcome in tasks_of(line).items():
            runs.setdefault(task, {})[int(str(line["seed"]))] = outcome["success"]
    return found


def tasks_of(line: Line) -> Mapping[str, Mapping[str, str]]:
    """Returns success and furthest stage of each task."""
    found = line["tasks"]
    assert isinstance(found, dict)
    return found


def each_mean(tasks: Mapping[str, Runs]) -> str:
    """Returns the mean over the tasks of each training with its interval over starts."""
    seeds = sorted(next(iter(tasks.values())))
    return "; ".join(
        percent(MacroMean.of_rates([rate(runs[seed]) for runs in tasks.values()])) for seed in seeds
    )


def percent(mean: MacroMean) -> str:
    """Returns a mean in percent with its interval."""
    low, high = mean.interval
    return f"{100 * mean.value:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


def recipe(tasks: Mapping[str, Runs]) -> str:
    """Returns the mean of several trainings with its interval over trainings and starts."""
    if trainings(tasks) < 2:
        return "-"
    found = recipe_rate(arrays(tasks))
    low, high = found.interval
    return f"{100 * found.value:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


def differences(encodings: Encodings, reference: str) -> dict[str, str]:
    """Returns the difference of the reference less each encoding, over trainings and starts."""
    first = encodings.get(reference, {})
    found = {
        name: recipe_difference(arrays(tasks), arrays(first))
        for name, tasks in encodings.items()
        if name != reference and min(trainings(tasks), trainings(first)) > 1
    }
    corrected = holm([estimate.posterior or 0.0 for estimate in found.values()])
    texts = {
        name: f"{points_of(estimate.value, estimate.interval)}, posterior {p:.2g}"
        for (name, estimate), p in zip(found.items(), corrected, strict=True)
    }
    return {name: texts.get(name, "-") for name in encodings}


def failures(lines: Sequence[Line], encoding: str) -> str:
    """Returns how many failed episodes of each task ended at each stage, all trainings together."""
    counts: dict[str, dict[str, int]] = {}
    for line in (line for line in lines if line["encoding"] == encoding):
        for task, outcome in tasks_of(line).items():
            found = counts.setdefault(task, {})
            for success, stage in zip(outcome["success"], outcome["stages"], strict=True):
                if success == "0":
                    found[stage] = found.get(stage, 0) + 1
    return "; ".join(
        f"{task} {', '.join(f'{stage}: {found[stage]}' for stage in sorted(found))}"
        for task, found in counts.items()
        if found
    )


def trainings(tasks: Mapping[str, Runs]) -> int:
    """Returns the number of trainings."""
    return min((len(runs) for runs in tasks.values()), default=0)


def arrays(tasks: Mapping[str, Runs]) -> Outcomes:
    """Returns the outcomes (trainings, starts) of each task."""
    return [table_of_outcomes(runs) for runs in tasks.values()]


def published(rates: tuple[int, int, int] | None) -> str:
    """Returns the rates of the paper's table."""
    return "-" if rates is None else ", ".join(f"{rate} %" for rate in rates)
