"""One line of a comparison of policies: two of them on one task, or on all tasks."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

from stringline.sim.statistics.intervals import Interval
from stringline.sim.statistics.macro import MacroMean, points
from stringline.sim.statistics.paired import Pairs, difference_interval
from stringline.sim.statistics.power import MOST_SEEDS, seeds_needed
from stringline.sim.statistics.sequential import anytime_interval

LEVEL = 0.05
POWER = 0.8
ALL_TASKS = "all tasks"


@dataclass(frozen=True)
class Row:
    """Two policies on one task, or on all tasks together.

    Attributes:
        task: Name and options of the task.
        pairs: Outcomes on the same seeds.
        p: p value of McNemar's exact test, of the stratified one for all tasks, or of the
            sequential test.
        corrected: p value after Holm's correction for the family of rows.
        family: Number of rows of the family.
        sequential: Whether p and the interval hold however often they are examined.
        tasks: Of the row of all tasks, the pairs of each task, which count equally; else empty.
        stages: Pairs of having reached each stage below success, by name.
    """

    task: str
    first: str
    second: str
    pairs: Pairs
    p: float
    corrected: float
    family: int
    sequential: bool = False
    tasks: tuple[Pairs, ...] = ()
    stages: Mapping[str, Pairs] = field(default_factory=dict)

    @property
    def difference(self) -> float:
        """Rate of the second less that of the first policy; of all tasks, the mean over tasks."""
        if self.tasks:
            return MacroMean.of_differences(self.tasks).value
        return self.pairs.difference

    @property
    def rates(self) -> tuple[float, float]:
        """Success rates of both policies; of all tasks, the means over tasks."""
        parts = self.tasks or (self.pairs,)
        return fmean(p.first.value for p in parts), fmean(p.second.value for p in parts)

    @cached_property
    def interval(self) -> Interval:
        """95 % interval of the difference, second less first, without correction for the family."""
        if self.tasks:
            return MacroMean.of_differences(self.tasks).interval
        return self.interval_of(self.pairs)

    def interval_of(self, pairs: Pairs) -> Interval:
        """Returns the 95 % interval of the difference of outcomes, by the method of this row."""
        return (anytime_interval if self.sequential else difference_interval)(pairs)

    @property
    def better(self) -> str | None:
        """The better policy, if the corrected test rejects equality."""
        if self.corrected > LEVEL or self.difference == 0:
            return None
        return self.second if self.difference > 0 else self.first

    @cached_property
    def needed(self) -> int | None:
        """Number of seeds for a verdict with 80 % power at the observed rates; None if unknown.

        The level is 5 % divided by the number of rows of the family, Holm's hardest case. The
        sequential test needs no such number, and tasks with different numbers of seeds have none.
        """
        if self.sequential or self._unequal:
            return None
        return seeds_needed(self.pairs, POWER, LEVEL / self.family)

    @property
    def _unequal(self) -> bool:
        """Whether tasks have different numbers of seeds."""
        return len({pairs.count for pairs in self.tasks}) > 1

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.better:
            return f"{self.better} is better"
        if self.pairs.only_first + self.pairs.only_second == 0:
            return "they never differ"
        if self.difference == 0:
            return "no sign of a difference"
        return self._undecided

    @property
    def _undecided(self) -> str:
        """The words for policies that differ on some seeds, without a verdict."""
        if self.sequential:
            return "undecided; a larger seeds= continues"
        if self._unequal:
            return "no evidence"
        if self.needed is None:
            return f"no evidence; over {MOST_SEEDS} seeds would be needed"
        more = max(self.needed - self.pairs.count, 1)
        return f"no evidence; about {float(f'{more:.2g}'):.0f} more seeds for a verdict"

    def to_dict(self) -> dict[str, Any]:
        """Returns the row as plain JSON."""
        pairs = self.pairs
        return {
            "task": self.task,
            "first": self.first,
            "second": self.second,
            "seeds": pairs.count,
            "both": pairs.both,
            "only_first": pairs.only_first,
            "only_second": pairs.only_second,
            "neither": pairs.neither,
            "rate_first": pairs.first.to_dict(),
            "rate_second": pairs.second.to_dict(),
            "difference": self.difference,
            "low": self.interval.low,
            "high": self.interval.high,
            "stages": {name: asdict(reached) for name, reached in self.stages.items()},
            "p": self.p,
            "p_corrected": self.corrected,
            "compared": self.family,
            "seeds_needed": self.needed,
            "better": self.better,
            "verdict": self.verdict,
            "test": "sequential" if self.sequential else "mcnemar" + "_stratified" * self._unequal,
        }


def difference_text(row: Row) -> str:
    """Returns a difference in percentage points with its interval: `+16 [+4, +29]`."""
    return points(row.difference, row.interval)
