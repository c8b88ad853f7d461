"""How a checkpoint's training went, where its history lies beside it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stringline.sim.statistics.intervals import Rate

HISTORY = "history.jsonl"


@dataclass(frozen=True)
class LearningCurve:
    """What a training wrote down.

    Attributes:
        losses: (step, loss).
        probes: (step, value by name).
        validations: (step, loss) of the averaged weights on episodes that were held out.
        successes: (step, success in simulation) while it went on.
    """

    losses: tuple[tuple[int, float], ...] = ()
    probes: tuple[tuple[int, Mapping[str, float]], ...] = ()
    validations: tuple[tuple[int, float], ...] = ()
    successes: tuple[tuple[int, Rate], ...] = ()


def learning_curve(checkpoint: Path) -> LearningCurve:
    """Reads the history of a checkpoint, without changing it; an empty one where there is none.

    Args:
        checkpoint: Its folder. The training leaves the history in that folder's parent.
    """
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
            return  # A crash, or a training that still writes, cut it short.
