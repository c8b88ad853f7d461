"""The directory of a training run: its fingerprint and its checkpoints."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from torch import nn

from stringline.datasets.files.atomic import write_file
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.checkpoints.load import save_policy

FILE = "run.yaml"
# Settings of the trainer that older versions did not know, with what they did.
ADDED = {"accumulate": 1, "compile": "auto"}


def leads() -> bool:
    """Says whether this is the first process of a run, or its only one."""
    return os.environ.get("RANK", "0") == "0"


def processes() -> int:
    """Returns how many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def claim(directory: Path, settings: Mapping[str, Any]) -> None:
    """Writes what is run into its directory; a directory that continues must have been claimed for the same.

    Args:
        directory: Of the run.
        settings: All that decides its course: with any of it changed, its state and its statistics
            would not belong together.

    Raises:
        ValueError: The directory holds another run, and which settings differ; or its file is
            broken.
    """
    file = directory / FILE
    plain = _plain(settings)
    if not file.exists():
        if leads():
            directory.mkdir(parents=True, exist_ok=True)
            write_file(file, yaml.safe_dump(plain, sort_keys=False).encode())
        return
    old = yaml.safe_load(file.read_text())
    if not isinstance(old, dict):
        raise ValueError(
            f"{file} is broken; choose another output, or remove {directory} to start again."
        )
    if isinstance(old.get("trainer"), dict) and isinstance(plain.get("trainer"), dict):
        known = {**ADDED, **old["trainer"]}
        if (
            known.get("precision") == "auto"
        ):  # Older versions did not write down what a machine made of it.
            known["precision"] = plain["trainer"].get("precision")
        old["trainer"] = {name: known[name] for name in plain["trainer"] if name in known}
    if changed := [key for key, value in plain.items() if old.get(key) != value]:
        raise ValueError(
            f"{directory} holds a run with other settings ({', '.join(changed)}); choose another "
            f"output."
        )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value


END = "checkpoint"


class KeptCheckpoints:
    """Writes a policy into folders of its run, each replaced as a whole."""

    def __init__(
        self,
        directory: Path,
        policy: ChunkPolicy,
        model: Mapping[str, Any],
        record: Mapping[str, Any],
        steps: int,
    ) -> None:
        """Has written nothing yet.

        Args:
            directory: Of the run.
            policy: With the weights to keep, whenever it is asked to.
            model: The configuration that it was built from.
            record: How it is trained, plain data.
            steps: Of the whole run.
        """
        self._directory = directory
        self._policy = policy
        self._model = model
        self._record = dict(record)
        self._steps = steps

    def keep(self, model: nn.Module, name: str, steps_done: int) -> None:
        """Writes `directory/name`; `model` is the policy."""
        save_policy(
            self._directory / name, self._policy, self._model, {**self._record, "steps": steps_done}
        )

    def end(self, model: nn.Module) -> None:
        """Writes `directory/checkpoint`."""
        self.keep(model, END, self._steps)
