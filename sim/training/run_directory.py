"""The directory of a training run: its fingerprint and its checkpoints."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from torch import nn

from stringline.datasets.files.atomic import write_file
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.checkpoints.load import save_policy

FILE = "run.yaml"
END = "checkpoint"


def is_main_process() -> bool:
    """Returns whether this is the first or only process of a run."""
    return os.environ.get("RANK", "0") == "0"


def process_count() -> int:
    """Returns the number of processes of a run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def check_run_directory(directory: Path, fingerprint: Mapping[str, Any]) -> None:
    """Stores the fingerprint of a run, or compares it with that of the run to continue.

    The fingerprint is all settings that decide the weights, plain data.

    Raises:
        ValueError: The directory holds a run with another fingerprint, or its file is damaged.
    """
    file = directory / FILE
    plain = _plain(fingerprint)
    if not file.exists():
        if is_main_process():
            directory.mkdir(parents=True, exist_ok=True)
            write_file(file, yaml.safe_dump(plain, sort_keys=False).encode())
        return
    stored = yaml.safe_load(file.read_text())
    if not isinstance(stored, dict):
        raise ValueError(
            f"{file} is damaged. Choose another output, or remove {directory} to start again."
        )
    if changed := [key for key, value in plain.items() if stored.get(key) != value]:
        raise ValueError(
            f"{directory} holds a run with other settings ({', '.join(changed)}). Choose another "
            f"output."
        )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True, eq=False)
class RunCheckpoints:
    """Writes the checkpoints of a run, each replaced as a whole.

    `model` is the configuration of the policy, `record` a description of the training as plain
    data, and `steps` the number of steps of the whole run.
    """

    directory: Path
    policy: ChunkPolicy
    model: Mapping[str, Any]
    record: Mapping[str, Any]
    steps: int

    def keep(self, model: nn.Module, name: str, steps_done: int) -> None:
        """Writes `directory/name`; `model` is the policy."""
        record = {**self.record, "steps": steps_done}
        save_policy(self.directory / name, self.policy, self.model, record)

    def end(self, model: nn.Module) -> None:
        """Writes `directory/checkpoint`."""
        self.keep(model, END, self.steps)
