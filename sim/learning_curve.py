"""How a checkpoint's training went, where its history lies beside it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HISTORY = "history.jsonl"


@dataclass(frozen=True)
class LearningCurve:
    """What a training wrote down.

    Attributes:
        losses: (step, loss).
        probes: (step, value by name).
    """

    losses: tuple[tuple[int, float], ...] = ()
    probes: tuple[tuple[int, Mapping[str, float]], ...] = ()


def learning_curve(checkpoint: Path) -> LearningCurve:
    """Reads the history of a checkpoint, without changing it; an empty one where there is none.

    Args:
        checkpoint: Its folder. The training leaves the history in that folder's parent.
    """
    file = checkpoint.resolve().parent / HISTORY
    losses: list[tuple[int, float]] = []
    probes: list[tuple[int, Mapping[str, float]]] = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            break  # A crash, or a training that still writes, cut it short.
        if "loss" in row:
            losses.append((row["step"], row["loss"]))
        if row.get("probe"):
            probes.append((row["step"], row["probe"]))
    return LearningCurve(tuple(losses), tuple(probes))
