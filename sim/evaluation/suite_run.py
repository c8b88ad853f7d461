"""Evaluation of a suite, entry by entry; a failed entry does not stop the others."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stringline.datasets.files.atomic import FULL_DISK, write_file
from stringline.sim.evaluation.checkpoint_evaluation import CheckpointEvaluation
from stringline.sim.evaluation.entry_outcomes import EntryOutcome, SuiteStatistics
from stringline.sim.evaluation.results import (
    RESULTS,
    OtherEvaluationError,
    difference,
    read_results,
)
from stringline.sim.evaluation.suites import Suite, SuiteEntry

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
