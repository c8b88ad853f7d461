"""The learning curve of a checkpoint, from the history of its run."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stringline.sim.statistics.intervals import Rate

HISTORY = "history.jsonl"


@dataclass(frozen=True)
class LearningCurve:
    """The metrics of a training run.

    Attributes:
        losses: (step, loss).
        probes: (step, metrics by name).
        validations: (step, loss) of the averaged weights on held-out episodes.
        successes: (step, success rate in simulation).
    """

    losses: tuple[tuple[int, float], ...] = ()
    probes: tuple[tuple[int, Mapping[str, float]], ...] = ()
    validations: tuple[tuple[int, float], ...] = ()
    successes: tuple[tuple[int, Rate], ...] = ()


def learning_curve(checkpoint: Path) -> LearningCurve:
    """Reads the history in the parent folder of a checkpoint; empty if it does not exist."""
    rows = list(_rows(checkpoint.resolve().parent / HISTORY))
    rates = [
        (row["step"], row["evaluation"]) for row in rows if "successes" in row.get("evaluation", ())
    ]
    return LearningCurve(
        tuple((row["step"], row["loss"]) for row in rows if "loss" in row),
        tuple((row["step"], row["probe"]) for row in rows if row.get("probe")),
        tuple((row["step"], row["validation"]) for row in rows if "validation" in row),
        tuple((step, Rate(int(found["successes"]), int(found["trials"]))) for step, found in rates),
    )


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return  # The last line may be incomplete during training or after a crash.
