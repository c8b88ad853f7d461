"""Outcomes of the entries of a suite: means over tasks, and changes under variations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from stringline.sim.evaluation.results import EpisodeResult, Summary
from stringline.sim.evaluation.suites import SuiteEntry
from stringline.sim.statistics.intervals import Interval
from stringline.sim.statistics.macro import MacroMean, points
from stringline.sim.statistics.paired import Pairs, difference_interval


@dataclass(frozen=True)
class EntryOutcome:
    """The outcome of an entry: one result per seed, or the reason of its failure."""

    entry: SuiteEntry
    results: Sequence[EpisodeResult] = ()
    failure: str = ""

    @property
    def summary(self) -> Summary | None:
        """Statistics of the results, if any."""
        return Summary.of(self.results) if self.results else None

    def to_dict(self) -> dict[str, Any]:
        """Returns the outcome as plain JSON."""
        entry = self.entry
        summary = self.summary
        return {
            "name": entry.name,
            "task": entry.task,
            "variation": entry.variation,
            "options": dict(entry.options),
            **entry.changes,
            "seeds": list(entry.seeds),
            **({"failure": self.failure} if summary is None else {"summary": summary.to_dict()}),
        }


@dataclass(frozen=True)
class Change:
    """How a variation changes the success of one checkpoint, on the starts of both entries.

    Attributes:
        pairs: Outcomes of the plain task and of the variation on the same seeds.
    """

    entry: str
    task: str
    variation: str
    pairs: Pairs

    @property
    def interval(self) -> Interval:
        """95 % interval of the paired difference, variation less plain task."""
        return difference_interval(self.pairs)


@dataclass(frozen=True)
class SuiteStatistics:
    """Statistics over the entries of a suite.

    Attributes:
        mean: Mean success of the plain tasks; None with fewer than two of them.
        changes: Of each variation whose plain task was evaluated on common seeds.
        mean_changes: Mean change over the tasks, by variation, if there are two tasks.
    """

    mean: MacroMean | None
    changes: tuple[Change, ...]
    mean_changes: dict[str, MacroMean]

    @classmethod
    def of(cls, outcomes: Sequence[EntryOutcome]) -> Self:
        """Compares the entries that have results."""
        done = [outcome for outcome in outcomes if outcome.results]
        plain = {each.entry.task: each for each in done if not each.entry.variation}
        rates = [each.summary.rate for each in plain.values() if each.summary]
        found = [
            _change(plain[each.entry.task], each)
            for each in done
            if each.entry.variation and each.entry.task in plain
        ]
        changes = tuple(change for change in found if change.pairs.count)
        return cls(
            MacroMean.of_rates(rates) if len(rates) > 1 else None,
            changes,
            {
                name: MacroMean.of_differences(pairs)
                for name in dict.fromkeys(change.variation for change in changes)
                if len(pairs := [c.pairs for c in changes if c.variation == name]) > 1
            },
        )

    def texts(self) -> dict[str, str]:
        """Returns the statistics as text by name."""
        found = {} if self.mean is None else {f"mean of {self.mean.tasks} tasks": str(self.mean)}
        found |= {
            f"{each.entry} less {each.task}": (
                f"{points(each.pairs.difference, each.interval)} on {each.pairs.count} starts"
            )
            for each in self.changes
        }
        return found | {
            f"mean of {name} less plain": f"{points(mean.value, mean.interval)}, {mean.tasks} tasks"
            for name, mean in self.mean_changes.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Returns the statistics as plain JSON."""
        return {
            "mean": None if self.mean is None else self.mean.to_dict(),
            "changes": {
                each.entry: {
                    "seeds": each.pairs.count,
                    "difference": each.pairs.difference,
                    "low": each.interval.low,
                    "high": each.interval.high,
                }
                for each in self.changes
            },
            "mean_changes": {name: mean.to_dict() for name, mean in self.mean_changes.items()},
        }


def _change(plain: EntryOutcome, varied: EntryOutcome) -> Change:
    before = {result.seed: result.success for result in plain.results}
    after = {result.seed: result.success for result in varied.results}
    seeds = sorted(before.keys() & after.keys())
    pairs = Pairs.of([before[seed] for seed in seeds], [after[seed] for seed in seeds])
    return Change(varied.entry.name, varied.entry.task, varied.entry.variation, pairs)
