"""The commands that run an evaluation again, or one of its episodes."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_WORDS = ("null", "true", "false", "on", "off", "yes", "no", "nan", "inf", "infinity")


@dataclass(frozen=True)
class Replay:
    """How to run single episodes of an evaluation.

    Attributes:
        checkpoint: As its user named it.
        task: Its settings: name, time_limit_s, frame_hz, options.
        execute_steps: Control periods between two plans; None: whole chunks.
        output: Folder of the evaluation; replays get folders within.
        execution: Overrides that say how plans are executed; none for a receding horizon without
            delay.
    """

    checkpoint: str
    task: Mapping[str, Any]
    execute_steps: int | None
    output: Path
    execution: Mapping[str, object] = field(default_factory=dict)

    def command(self, seed: int) -> str:
        """Returns a line for a shell that runs one episode again, in a folder of its own."""
        return self._line(1, seed, self.output / "replays" / str(seed))

    def whole(self, seeds: int, first_seed: int) -> str:
        """Returns a line for a shell that runs or continues all of it, in the same folder."""
        return self._line(seeds, first_seed, self.output)

    def _line(self, seeds: int, first_seed: int, output: Path) -> str:
        """Names every setting that the outcome depends on, whatever their defaults become."""
        options = {f"++task.options.{name}": value for name, value in self.task["options"].items()}
        values = {
            "checkpoint": self.checkpoint,
            "task": self.task["name"],
            "task.time_limit_s": self.task["time_limit_s"],
            "task.frame_hz": self.task["frame_hz"],
            **options,
            "execute_steps": self.execute_steps,
            **self.execution,
            "seeds": seeds,
            "first_seed": first_seed,
            "output": str(output),
        }
        return eval_line(values)


def eval_line(settings: Mapping[str, object]) -> str:
    """Returns a command line of `stringline-eval` for a shell, with those settings in their order."""
    return shlex.join(
        ["stringline-eval", *(f"{key}={hydra_value(value)}" for key, value in settings.items())]
    )


def hydra_value(value: object) -> str:
    """Returns a value as it is written on a command line of Hydra, in quotes where it would be read as something else."""
    if not isinstance(value, str):
        return "null" if value is None else str(value)
    if (
        re.fullmatch(r"(\.{0,2}/|[A-Za-z_])[\w./:-]*", value, re.ASCII)
        and value.lower() not in _WORDS
    ):
        return value
    # Hydra takes a backslash for itself only before a quote, so one at the end is doubled.
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)
    at_the_end = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{escaped[len(escaped) - at_the_end :]}'"
