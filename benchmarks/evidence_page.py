"""The tables of the campaign in docs/lab."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from stringline.sim.statistics.intervals import Interval, Rate
from stringline.sim.statistics.paired import Pairs, difference_interval, holm, mcnemar, points
from stringline.sim.statistics.trainings import recipe_difference, recipe_rate

BEGIN, END = "<!-- evidence: written by benchmarks/evidence.py -->", "<!-- end of evidence -->"
REFERENCE, FIRST_POLICY = "cayley_values", "diffusion"
ONCE = (
    "Where a choice was trained once, its interval and differences hold for this very policy: one "
    "training\nsays nothing about a recipe."
)
Line = dict[str, object]
Key = TypeVar("Key", bound=Hashable)
# Outcomes, a digit for each seed of evaluation, by the seed of the training.
Runs = dict[int, str]


def write_page(path: Path, text: str) -> None:
    """Replaces the text between the two marks of a page."""
    page = path.read_text()
    if BEGIN not in page or END not in page:
        raise ValueError(
            f"{path} lacks the lines {BEGIN!r} and {END!r}, which enclose the evidence."
        )
    before, rest = page.split(BEGIN, 1)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.split(END, 1)[1]}")


def tables(lines: Sequence[Line]) -> str:
    """Returns tables of encodings per task, coordinates and scale, and tables of policies.

    Lines of other families of cells are ignored.
    """
    groups: dict[tuple[str, str, str], list[Line]] = {}
    for line in (line for line in lines if "coordinates" in line):
        groups.setdefault(
            (str(line["task"]), str(line["coordinates"]), str(line["scale"])), []
        ).append(line)
    return "\n".join(
        found
        for (task, coordinates, scale), group in sorted(groups.items())
        for found in tables_of(f"{task}, {coordinates} coordinates, {scale}", group)
    )


def tables_of(title: str, lines: Sequence[Line]) -> Iterator[str]:
    """Yields the tables of one task: encodings, and policies with the reference encoding."""
    if encodings := [line for line in lines if policy_of(line) == FIRST_POLICY]:
        yield table(
            title, "encoding", by_name(encodings, lambda line: str(line["encoding"])), REFERENCE
        )
    policies = by_name([line for line in lines if line["encoding"] == REFERENCE], policy_of)
    if policies.keys() - {FIRST_POLICY}:
        yield table(
            f"{title}: kinds of policies, all with {REFERENCE}", "policy", policies, FIRST_POLICY
        )


def policy_of(line: Line) -> str:
    """Returns the kind of policy; older lines, without a choice, are of the first one."""
    return str(line.get("policy", FIRST_POLICY))


def by_name(lines: Sequence[Line], name: Callable[[Line], str]) -> dict[str, Runs]:
    """Returns outcomes by compared choice and by training seed."""
    found: dict[str, Runs] = {}
    for line in lines:
        found.setdefault(name(line), {})[int(str(line["seed"]))] = str(line["success"])
    return found


def table(title: str, compared: str, outcomes: dict[str, Runs], reference: str) -> str:
    """Returns one table: the trainings of each choice one by one, and those of the reference."""
    first = outcomes.get(reference, {})
    others = {name: runs for name, runs in outcomes.items() if name != reference}
    policies = policy_differences({name: (first, runs) for name, runs in others.items()})
    recipes = recipe_differences({name: (first, runs) for name, runs in others.items()})
    head = (
        compared,
        "success of each training",
        "recipe",
        f"{reference} less this: policies of the same training seed, p (McNemar, Holm)",
        f"{reference} less this: recipes, posterior (Holm)",
    )
    rows = [f"### {title}", "", *notes(outcomes.values()), *header(head)]
    for name in sorted(outcomes, key=lambda name: -success(outcomes[name])):
        runs = outcomes[name]
        cells = (each(runs, lambda text: str(rate(text))), recipe(runs))
        differences = (policies.get(name, "-"), recipes.get(name, "-"))
        rows.append(f"| {' | '.join((name, *cells, *differences))} |")
    return "\n".join(rows) + "\n"


def notes(outcomes: Iterable[Runs]) -> list[str]:
    """Returns what tables say where choices were trained once."""
    return [ONCE, ""] if any(len(runs) == 1 for runs in outcomes) else []


def header(columns: Sequence[str]) -> list[str]:
    """Returns the first two lines of a table."""
    return [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]


def rate(text: str) -> Rate:
    """Returns the success of one training; a digit for each seed of evaluation."""
    return Rate(text.count("1"), len(text))


def success(runs: Runs) -> float:
    """Returns the mean success of all trainings."""
    return fmean(rate(text).value for text in runs.values())


def each(runs: Runs, show: Callable[[str], str]) -> str:
    """Returns the text of each training in the order of their seeds."""
    return "; ".join(show(runs[seed]) for seed in sorted(runs))


def recipe(runs: Runs) -> str:
    """Returns the mean of several trainings with its interval over trainings and starts."""
    if len(runs) < 2:
        return "-"
    found = recipe_rate([table_of_outcomes(runs)])
    low, high = found.interval
    return f"{100 * found.value:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


def table_of_outcomes(runs: Runs) -> NDArray[np.int64]:
    """Returns outcomes (trainings, starts), 0 or 1."""
    return np.array([[int(digit) for digit in runs[seed]] for seed in sorted(runs)])


def policy_differences(compared: Mapping[Key, tuple[Runs, Runs]]) -> dict[Key, str]:
    """Returns paired differences of policies of the same training seed, first less second.

    They hold for these policies. p is corrected for all of them.
    """
    pairs = {
        (key, seed): pairs_of(second[seed], first[seed])
        for key, (first, second) in compared.items()
        for seed in sorted(first.keys() & second.keys())
    }
    corrected = dict(zip(pairs, holm([mcnemar(found) for found in pairs.values()]), strict=True))
    texts: dict[Key, list[str]] = {}
    for (key, seed), found in pairs.items():
        text = f"{difference(found)}, p {corrected[key, seed]:.2g}"
        texts.setdefault(key, []).append(text)
    return {key: "; ".join(found) for key, found in texts.items()}


def recipe_differences(compared: Mapping[Key, tuple[Runs, Runs]]) -> dict[Key, str]:
    """Returns differences of recipes with at least two trainings each, first less second.

    Their posterior probabilities are corrected for all of them.
    """
    found = {
        key: recipe_difference([table_of_outcomes(second)], [table_of_outcomes(first)])
        for key, (first, second) in compared.items()
        if min(len(first), len(second)) > 1
    }
    corrected = holm([estimate.posterior or 0.0 for estimate in found.values()])
    return {
        key: f"{points_of(estimate.value, estimate.interval)}, posterior {p:.2g}"
        for (key, estimate), p in zip(found.items(), corrected, strict=True)
    }


def pairs_of(first: str, second: str) -> Pairs:
    """Returns the pairs of outcomes of two policies on the same seeds."""
    return Pairs.of([digit == "1" for digit in first], [digit == "1" for digit in second])


def difference(pairs: Pairs) -> str:
    """Returns percentage points with their interval, such as `+26 points [+14, +38]`."""
    return points_of(pairs.difference, difference_interval(pairs))


def points_of(value: float, interval: Interval) -> str:
    """Returns a difference in percentage points with its interval."""
    return points(value, interval).replace(" ", " points ", 1)
