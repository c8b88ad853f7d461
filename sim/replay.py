"""The command that runs one episode of an evaluation again."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WORDS = ("null", "true", "false", "on", "off", "yes", "no", "nan", "inf", "infinity")


@dataclass(frozen=True)
class Replay:
    """How to run single episodes of an evaluation.

    Attributes:
        checkpoint: As its user named it.
        task: Its settings: name, time_limit_s, frame_hz, options.
        execute_steps: Control periods between two plans.
        output: Folder of the evaluation; replays get folders within.
    """

    checkpoint: str
    task: Mapping[str, Any]
    execute_steps: int
    output: Path

    def command(self, seed: int) -> str:
        """Returns a line for a shell; it names every setting that the outcome depends on, whatever their defaults become."""
        options = {f"++task.options.{name}": value for name, value in self.task["options"].items()}
        values = {
            "checkpoint": self.checkpoint,
            "task": self.task["name"],
            "task.time_limit_s": self.task["time_limit_s"],
            "task.frame_hz": self.task["frame_hz"],
            **options,
            "execute_steps": self.execute_steps,
            "seeds": 1,
            "first_seed": seed,
            "output": str(self.output / "replays" / str(seed)),
        }
        return shlex.join(["stringline-eval", *(f"{key}={hydra_value(value)}" for key, value in values.items())])


def hydra_value(value: object) -> str:
    """Returns a value as it is written on a command line of Hydra, in quotes where it would be read as something else."""
    if not isinstance(value, str):
        return "null" if value is None else str(value)
    if re.fullmatch(r"(\.{0,2}/|[A-Za-z_])[\w./:-]*", value, re.ASCII) and value.lower() not in _WORDS:
        return value
    # Hydra takes a backslash for itself only before a quote, so one at the end is doubled.
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)
    at_the_end = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{escaped[len(escaped) - at_the_end :]}'"
