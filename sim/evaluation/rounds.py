"""Rounds of a sequential comparison: tasks whose verdict is open get more seeds."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from stringline.datasets.contract.argument_checks import COUNT
from stringline.sim.evaluation.comparison import Comparison
from stringline.sim.evaluation.stored_evaluations import condition_name
from stringline.sim.evaluation.suites import Suite, SuiteEntry

logger = logging.getLogger(__name__)

Seeds = Mapping[str, Sequence[int]]


def entry_seeds(suite: Suite) -> Seeds:
    """Returns the seeds of a suite's entries in ascending order, by the task's name.

    Raises:
        ValueError: Two entries are the same task under the same options.
    """
    seeds = {_name(entry): sorted(entry.seeds) for entry in suite.entries}
    if len(seeds) < len(suite.entries):
        raise ValueError(
            f"The suite {suite.name} has entries of the same task with the same options, which a "
            f"sequential comparison cannot tell apart."
        )
    return seeds


def with_entry_seeds(suite: Suite, seeds: Seeds) -> Suite:
    """Returns a suite with other seeds, by the task's name."""
    entries = (replace(entry, seeds=tuple(seeds[_name(entry)])) for entry in suite.entries)
    return replace(suite, entries=tuple(entries))


def _name(entry: SuiteEntry) -> str:
    return condition_name(entry.task, entry.settings().options)


def until_decided(
    available: Seeds, round_seeds: int, compare: Callable[[Seeds], Comparison]
) -> Comparison:
    """Compares policies on more and more seeds, until each task is decided or has no more seeds.

    A task gets seeds for all policies until each pair of them has a verdict. So the rounds depend
    on the outcomes alone: a continued comparison repeats the decisions of an interrupted one.

    Args:
        available: All seeds of each task in ascending order, by the task's name in comparisons.
        round_seeds: Number of seeds that an undecided task gets in each round.
        compare: Evaluates all policies on the given seeds of each task, and returns the sequential
            comparison.

    Raises:
        ValueError: `round_seeds` is out of range.
    """
    COUNT.check(round_seeds=round_seeds)
    taken = {name: seeds[:round_seeds] for name, seeds in available.items()}
    while True:
        comparison = compare(taken)
        more = {
            name: available[name][: len(seeds) + round_seeds]
            for name, seeds in taken.items()
            if name in comparison.undecided and len(seeds) < len(available[name])
        }
        if not more:
            return comparison
        logger.info("%d of %d tasks are undecided and get more starts.", len(more), len(taken))
        taken |= more
