"""The parts of a checkpoint that initialise a new run, as settings name them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

CHECKPOINT = "initialise_from"


@dataclass(frozen=True)
class InitialParts:
    """A checkpoint and the parts of it that initialise a new run.

    Attributes:
        checkpoint: Its folder or name.
        include: Parts to load, such as `observation_encoder`; empty: the default of the run.
        exclude: Parts that keep their initial weights, such as `denoiser.read_action`, or
            `mismatched`: all parts that do not fit.
    """

    checkpoint: str | Path
    include: Sequence[str] = ()
    exclude: Sequence[str] | str = ()

    @classmethod
    def of(cls, settings: Mapping[str, Any], *further: str) -> Self | None:
        """Reads the settings `initialise_from`, `include`, `exclude` and further ones.

        Raises:
            ValueError: Parts are named without a checkpoint.
        """
        checkpoint = settings[CHECKPOINT]
        chosen = {name: settings[name] for name in ("include", "exclude", *further)}
        if checkpoint is None:
            if given := [name for name, value in chosen.items() if value]:
                raise ValueError(f"{given[0]} needs a checkpoint; add {CHECKPOINT}=CHECKPOINT.")
            return None
        if isinstance(chosen["include"], str):
            chosen["include"] = [chosen["include"]]
        return cls(checkpoint, **chosen)

    def described(self, digest: str) -> dict[str, Any]:
        """Returns the settings that decide the initial weights, as plain data."""
        return {
            "checkpoint": digest,
            "include": list(self.include),
            "exclude": self.exclude if isinstance(self.exclude, str) else list(self.exclude),
        }
