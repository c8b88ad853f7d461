"""Running a suite: one entry after the other; an entry that fails is named and does not stop the others."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CellOutcome:
    """What became of an entry.

    Attributes:
        cell: The entry.
        results: One per seed; none where it failed.
        failure: Why it could not be evaluated, or nothing.
    """

    cell: SuiteEntry
    results: Sequence[EpisodeResult] = ()
    failure: str = ""

    @property
    def summary(self) -> Summary | None:
        """The results in a few numbers, where there are some."""
        return Summary.of(self.results) if self.results else None

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON."""
        cell = self.cell
        summary = self.summary
        known = {
            "name": cell.name,
            "task": cell.task,
            "variation": cell.variation,
            "options": dict(cell.options),
        }
        found = {"failure": self.failure} if summary is None else {"summary": summary.to_dict()}
        return {**known, **cell.changes, "seeds": list(cell.seeds), **found}


def run_suite(
    suite: Suite, evaluation: CheckpointEvaluation, output: Path, settings: Mapping[str, Any]
) -> list[CellOutcome]:
    """Runs what is not yet done of a suite.

    Args:
        suite: What to run.
        evaluation: The checkpoint that is measured.
        output: A folder for each entry comes here, and `summary.json`, which is written after each
            entry.
        settings: What the user asked for, plain JSON, for that file.

    Returns:
        One outcome per entry, in their order.

    Raises:
        OtherEvaluationError: The folder holds results of another checkpoint or other settings;
            nothing has been run then.
        NoSpaceError: The disk is full; what was finished is kept.
    """
    _check_folders(suite, evaluation, output)
    outcomes: list[CellOutcome] = []
    for number, cell in enumerate(suite.cells, 1):
        logger.info("%s (%d of %d), %d seeds", cell.name, number, len(suite.cells), len(cell.seeds))
        outcomes.append(_run_cell(cell, evaluation, output / cell.name))
        output.mkdir(parents=True, exist_ok=True)
        summary = {
            "settings": dict(settings),
            "suite": suite.name,
            "cells": [outcome.to_dict() for outcome in outcomes],
        }
        write_file(output / "summary.json", json.dumps(summary, indent=1).encode())
    return outcomes


def _run_cell(cell: SuiteEntry, evaluation: CheckpointEvaluation, folder: Path) -> CellOutcome:
    try:
        return CellOutcome(cell, evaluation.run(cell.settings(), cell.seeds, folder))
    except OtherEvaluationError:
        raise
    except (
        Exception
    ) as error:  # Whatever is wrong with one task, the others are still worth knowing.
        if isinstance(error, OSError) and error.errno in FULL_DISK:
            raise
        logger.debug("The trace of the error:", exc_info=True)
        reason = " ".join(str(error).split()) or type(error).__name__
        reason = (
            reason
            if isinstance(error, (ValueError, RuntimeError))
            else f"{type(error).__name__}: {reason}"
        )
        logger.error("%s FAILED: %s", cell.name, reason)
        return CellOutcome(cell, failure=reason)


def _check_folders(suite: Suite, evaluation: CheckpointEvaluation, output: Path) -> None:
    """Refuses a folder of another evaluation before hours are spent on the entries that come before."""
    if (output / RESULTS).exists():
        raise OtherEvaluationError(
            f"{output} holds the evaluation of a single task. Choose another folder: output=..."
        )
    for cell in suite.cells:
        file = output / cell.name / RESULTS
        there = read_results(file)[0] if file.exists() else {}
        try:
            here = evaluation.about(cell.settings())
        except ValueError:
            continue  # An unknown task; it is complained about in its turn.
        known = {key: value for key, value in there.items() if key in here}
        if known and known != here:
            raise OtherEvaluationError(
                f"{file} holds results of another evaluation ({difference(known, here)}). Choose "
                f"another folder: output=..."
            )
