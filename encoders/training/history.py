"""The history of a run: metrics of each step in a file of one JSON object per line."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self


class History:
    """The losses and metrics of a run; appended as it runs, truncated when it continues."""

    def __init__(self, file: Path, rows: list[dict[str, Any]]) -> None:
        """Starts with these rows; `open` reads those of the file."""
        self.file = file
        self.rows = rows
        self._handle = file.open("a", buffering=1)

    @classmethod
    def open(cls, file: Path) -> Self:
        """Opens a history with its existing rows; drops a last line that a crash cut short."""
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = []
        for line in file.read_text().splitlines() if file.exists() else []:
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
        history = cls(file, rows)
        history._rewrite(rows)
        return history

    def add(
        self,
        *,
        step: int,
        seconds: float | None = None,
        loss: float | None = None,
        gradient_norm: float | None = None,
        probe: Mapping[str, float] | None = None,
        validation: float | None = None,
        evaluation: Mapping[str, float] | None = None,
        speed: Mapping[str, float] | None = None,
    ) -> None:
        """Appends the row of a step (from 0); None and empty values are left out.

        `seconds` is the training time so far, the gradient norm is that before clipping. Probe,
        validation and evaluation are of the averaged weights after the step; models are compared by
        `success` in the evaluation. Only `seconds` and `speed` depend on the machine.
        """
        given: dict[str, Any] = {
            "step": step,
            "seconds": seconds,
            "loss": loss,
            "gradient_norm": gradient_norm,
            "probe": dict(probe or {}),
            "validation": validation,
            "evaluation": dict(evaluation or {}),
            "speed": dict(speed or {}),
        }
        row = {key: value for key, value in given.items() if value is not None and value != {}}
        self.rows.append(row)
        self._handle.write(json.dumps(row) + "\n")

    def truncate(self, steps: int) -> None:
        """Keeps the rows of the first `steps` steps."""
        self._rewrite([row for row in self.rows if row["step"] < steps])

    def recent_loss(self, count: int = 50) -> float:
        """Returns the mean of the last losses."""
        losses = [row["loss"] for row in self.rows[-count:] if "loss" in row]
        return float(sum(losses) / max(1, len(losses)))

    def seconds(self) -> float:
        """Returns the training time so far."""
        return max((float(row["seconds"]) for row in self.rows if "seconds" in row), default=0.0)

    def losses(self) -> list[tuple[int, float]]:
        """Returns (step, loss) of every step."""
        return [(row["step"], row["loss"]) for row in self.rows if "loss" in row]

    def probes(self) -> list[tuple[int, dict[str, float]]]:
        """Returns (step, metrics) of every probe."""
        return [(row["step"], row["probe"]) for row in self.rows if "probe" in row]

    def validations(self) -> list[tuple[int, float]]:
        """Returns (step, loss) of every validation."""
        return [(row["step"], row["validation"]) for row in self.rows if "validation" in row]

    def evaluations(self) -> list[tuple[int, dict[str, float]]]:
        """Returns (step, metrics) of every evaluation."""
        return [(row["step"], row["evaluation"]) for row in self.rows if "evaluation" in row]

    def best_step(self) -> int | None:
        """Returns the step with the best model; None: no measurements.

        Models are compared by success, if it was measured, otherwise by validation loss. Among
        models of equal success the validation loss decides, then the earlier step.
        """
        losses = {step: loss for step, loss in self.validations() if math.isfinite(loss)}
        scores = [
            (step, (-figures["success"], losses.get(step, math.inf)))
            for step, figures in self.evaluations()
        ]
        scores = scores or [(step, (0.0, loss)) for step, loss in losses.items()]
        return min(scores, key=lambda entry: entry[1])[0] if scores else None

    def close(self) -> None:
        """Closes the file."""
        self._handle.close()

    def _rewrite(self, rows: list[dict[str, Any]]) -> None:
        self._handle.close()
        fresh = self.file.with_suffix(".new")
        fresh.write_text("".join(json.dumps(row) + "\n" for row in rows))
        fresh.replace(self.file)
        self.rows = rows
        self._handle = self.file.open("a", buffering=1)
