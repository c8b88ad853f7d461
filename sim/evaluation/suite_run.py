"""Evaluation of a suite, entry by entry, and its outcomes; a failed entry does not stop the others.

The outcomes are means over tasks, and changes under variations.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from stringline.datasets.files.atomic import FULL_DISK, write_file
from stringline.sim.evaluation.checkpoint_evaluation import CheckpointEvaluation
from stringline.sim.evaluation.results import (
    RESULTS,
    EpisodeResult,
    OtherEvaluationError,
    Summary,
    difference,
    read_results,
)
from stringline.sim.evaluation.suites import Suite, SuiteEntry
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


logger = logging.getLogger(__name__)


def run_suite(
    suite: Suite, evaluation: CheckpointEvaluation, output: Path, settings: Mapping[str, Any]
) -> list[EntryOutcome]:
    """Runs the episodes of a suite that have no result yet; returns an outcome per entry.

    The output has a folder for each entry, and `summary.json`, which is written after each entry
    and begins with the settings, plain JSON.

    Raises:
        OtherEvaluationError: The folder holds results of another evaluation; no episode was run.
        NoSpaceError: The disk is full; finished results are stored.
    """
    _check_folders(suite, evaluation, output)
    outcomes: list[EntryOutcome] = []
    for number, entry in enumerate(suite.entries, 1):
        logger.info(
            "%s (%d of %d), %d seeds", entry.name, number, len(suite.entries), len(entry.seeds)
        )
        outcomes.append(_run_entry(entry, evaluation, output / entry.name))
        output.mkdir(parents=True, exist_ok=True)
        summary = {
            "settings": dict(settings),
            "suite": suite.name,
            "entries": [outcome.to_dict() for outcome in outcomes],
            "statistics": SuiteStatistics.of(outcomes).to_dict(),
        }
        write_file(output / "summary.json", json.dumps(summary, indent=1).encode())
    return outcomes


def _run_entry(entry: SuiteEntry, evaluation: CheckpointEvaluation, folder: Path) -> EntryOutcome:
    try:
        return EntryOutcome(entry, evaluation.run(entry.settings(), entry.seeds, folder))
    except OtherEvaluationError:
        raise
    except Exception as error:  # An error of one task must not stop the others.
        if isinstance(error, OSError) and error.errno in FULL_DISK:
            raise
        logger.debug("Traceback of the error:", exc_info=True)
        reason = " ".join(str(error).split()) or type(error).__name__
        if not isinstance(error, (ValueError, RuntimeError)):
            reason = f"{type(error).__name__}: {reason}"
        logger.error("%s FAILED: %s", entry.name, reason)
        return EntryOutcome(entry, failure=reason)


def _check_folders(suite: Suite, evaluation: CheckpointEvaluation, output: Path) -> None:
    """Raises an error for a folder with results of another evaluation."""
    if (output / RESULTS).exists():
        raise OtherEvaluationError(
            f"{output} holds the evaluation of a single task. Choose another folder: output=..."
        )
    for entry in suite.entries:
        file = output / entry.name / RESULTS
        there = read_results(file)[0] if file.exists() else {}
        here = evaluation.about(entry.settings())
        known = {key: value for key, value in there.items() if key in here}
        if known and known != here:
            raise OtherEvaluationError(
                f"{file} holds results of another evaluation ({difference(known, here)}). Choose "
                f"another folder: output=..."
            )
