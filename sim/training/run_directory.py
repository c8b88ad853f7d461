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
from stringline.sim.training.run_episodes import describe_change

# Those of libyaml need a tenth of the time for the names of many episodes.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

FILE = "run.yaml"
END = "checkpoint"


def is_main_process() -> bool:
    """Returns whether this is the first or only process of a run."""
    return os.environ.get("RANK", "0") == "0"


def process_count() -> int:
    """Returns the number of processes of a run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def begun_episodes(directory: Path, stores: object) -> list[list[str]] | None:
    """Returns the names of the episodes of each store with which an unfinished run began.

    `stores` are plain data as in `TrainingData.describe`. None means that the directory holds no
    unfinished run of these stores; `check_run_directory` explains a damaged file.
    """
    file = directory / FILE
    if not file.is_file() or (directory / END).exists():
        return None
    try:
        run = yaml.load(file.read_bytes(), _Loader)
        parts = (run["training"], run["held_out"])
        if run["store"] != stores:
            return None
        pairs = zip(*parts, strict=True) if isinstance(stores, list) else [parts]
        return [[*training, *held_out] for training, held_out in pairs]
    except (yaml.YAMLError, KeyError, TypeError, ValueError):
        return None


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
            write_file(file, yaml.dump(plain, Dumper=_Dumper, sort_keys=False).encode())
        return
    stored = yaml.load(file.read_bytes(), _Loader)
    if not isinstance(stored, dict):
        raise ValueError(
            f"{file} is damaged. Choose another output, or remove {directory} to start again."
        )
    if changed := [key for key, value in plain.items() if stored.get(key) != value]:
        raise ValueError(
            f"{directory} holds a run with other settings ({', '.join(changed)}). Choose another "
            f"output.{_changed_episodes(stored, plain)}"
        )


def _changed_episodes(stored: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Returns in words how the episodes have changed since the run began."""
    change = describe_change(_names(stored), _names(now))
    return change and f" The store has changed since. {change}"


def _names(fingerprint: Mapping[str, Any]) -> list[str]:
    """Returns the names of all episodes of a run, those of a mixture are in one list per store."""
    parts = [part for key in ("training", "held_out") for part in fingerprint.get(key) or ()]
    return [name for part in parts for name in ([part] if isinstance(part, str) else part)]


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
