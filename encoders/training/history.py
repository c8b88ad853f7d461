"""What a run did, step by step, in a file of one JSON object per line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self


class History:
    """Losses and probes of a run; appended to as the run goes, cut back when it continues from an earlier step."""

    def __init__(self, file: Path, rows: list[dict[str, Any]]) -> None:
        """Use `open`."""
        self.file = file
        self.rows = rows
        self._handle = file.open("a", buffering=1)

    @classmethod
    def open(cls, file: Path) -> Self:
        """Opens a history, with the rows that it already has; a last line that a crash cut short is dropped."""
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
        self, *, step: int, seconds: float | None = None, loss: float | None = None, probe: Mapping[str, float] | None = None
    ) -> None:
        """Appends one row; what is None is left out."""
        row = {"step": step, "seconds": seconds, "loss": loss, "probe": dict(probe) if probe else None}
        row = {key: value for key, value in row.items() if value is not None}
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
        """Returns how long the run has trained so far."""
        return max((float(row["seconds"]) for row in self.rows if "seconds" in row), default=0.0)

    def losses(self) -> list[tuple[int, float]]:
        """Returns (step, loss) of every step."""
        return [(row["step"], row["loss"]) for row in self.rows if "loss" in row]

    def probes(self) -> list[tuple[int, dict[str, float]]]:
        """Returns (step, probe) of every probe."""
        return [(row["step"], row["probe"]) for row in self.rows if "probe" in row]

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
