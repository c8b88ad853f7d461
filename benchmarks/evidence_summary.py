"""The values of docs/results.md, each behind a comment that names its cells.

    <!-- cells: hand_over_banana/cayley_values/metric/0/small -->       success of a training
    <!-- cells: kuka_pick-v2/grippers/*/medium -->                      mean over trainings
    <!-- cells: perception/classify/cayley/*#top1 -->                   a measure of each training
    <!-- less: kuka_pick-v2/grippers/0/medium kuka_pick-v2/lifting/0/medium -->   a difference

A value ends where its cell of the table does.
"""

import difflib
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

from evidence_page import (
    Line,
    Runs,
    difference,
    pairs_of,
    points_of,
    rate,
    recipe,
    table_of_outcomes,
)
from evidence_tasks_page import percent, tasks_of

from stringline.sim.statistics.intervals import Rate
from stringline.sim.statistics.paired import MacroMean
from stringline.sim.statistics.trainings import recipe_difference

VALUE = re.compile(r"(<!-- (cells|less): ([^>]+?) -->)[^|\n]*")


def filled(page: str, lines: Mapping[str, Line]) -> str:
    """Returns a page with the values of its comments.

    Raises:
        ValueError: A comment names a cell without a measurement.
    """

    def value(found: re.Match[str]) -> str:
        comment, kind, names = found.groups()
        if kind == "cells":
            return f"{comment}{measured(names, lines)} "
        first, second = names.split()
        return f"{comment}{less(first, second, lines)} "

    return VALUE.sub(value, page)


def measured(name: str, lines: Mapping[str, Line]) -> str:
    """Returns the success of the cells of a pattern, or a measure of each training behind `#`."""
    pattern, _, measure = name.partition("#")
    found = lines_of(pattern, lines)
    if measure:
        return "; ".join(f"{value_of(line, measure):.3f}" for line in found)
    if len(found) > 1:
        return f"{recipe(runs_of(found))}, {len(found)} trainings"
    if "tasks" not in found[0]:
        return str(rate(str(found[0]["success"])))
    rates = [rate(str(outcome["success"])) for outcome in tasks_of(found[0]).values()]
    total = Rate(sum(each.successes for each in rates), sum(each.trials for each in rates))
    return f"{total.successes}/{total.trials} = {percent(MacroMean.of_rates(rates))}"


def less(first: str, second: str, lines: Mapping[str, Line]) -> str:
    """Returns the difference of success, over trainings where both have several, with its interval.

    Single trainings are paired by their starts.
    """
    runs = [runs_of(lines_of(pattern, lines)) for pattern in (first, second)]
    if min(map(len, runs)) > 1:
        # recipe_difference is the second less the first.
        found = recipe_difference([table_of_outcomes(runs[1])], [table_of_outcomes(runs[0])])
        return points_of(found.value, found.interval)
    [minuend, subtrahend] = [next(iter(each.values())) for each in runs]
    return difference(pairs_of(subtrahend, minuend))


def lines_of(pattern: str, lines: Mapping[str, Line]) -> list[Line]:
    """Returns the lines of the cells whose names match a pattern, in the order of their seeds."""
    found = [line for name, line in lines.items() if fnmatchcase(name, pattern)]
    found = [line for line in found if str(line["name"]).count("/") == pattern.count("/")]
    if not found:
        nearest = " or ".join(map(repr, difflib.get_close_matches(pattern, lines)))
        raise ValueError(
            f"No cell {pattern!r} was measured.{f' Did you mean {nearest}?' if nearest else ''}"
        )
    return sorted(found, key=lambda line: int(str(line["seed"])))


def runs_of(lines: list[Line]) -> Runs:
    """Returns outcomes by training seed."""
    return {int(str(line["seed"])): str(line["success"]) for line in lines}


def value_of(line: Line, measure: str) -> float:
    """Returns a measure of perception."""
    measures = line["measures"]
    assert isinstance(measures, dict)
    return float(measures[measure])
