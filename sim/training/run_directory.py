"""The directory of a training run: its episodes and its checkpoints."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from torch import nn

from stringline.encoders.training.run_fingerprint import END, stored_fingerprint
from stringline.policies.algorithms.learned_policy import LearnedPolicy
from stringline.policies.checkpoints.load import save_policy
from stringline.sim.training.run_episodes import describe_change


def begun_episodes(directory: Path, stores: object) -> list[list[str]] | None:
    """Returns the names of the episodes of each store with which an unfinished run began.

    `stores` are plain data as in `TrainingData.describe`. None means that the directory holds no
    unfinished run of these stores; `check_run_directory` explains a damaged file.
    """
    if (directory / END).exists():
        return None
    try:
        run = stored_fingerprint(directory)
        if run is None:
            return None
        parts = (run["training"], run["held_out"])
        if run["store"] != stores:
            return None
        pairs = zip(*parts, strict=True) if isinstance(stores, list) else [parts]
        return [[*training, *held_out] for training, held_out in pairs]
    except (yaml.YAMLError, KeyError, TypeError, ValueError):
        return None


def changed_episodes(stored: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Returns in words how the episodes have changed since the run began, given fingerprints."""
    change = describe_change(_names(stored), _names(now))
    return change and f" The store has changed since. {change}"


def _names(fingerprint: Mapping[str, Any]) -> list[str]:
    """Returns the names of all episodes of a run, those of a mixture are in one list per store."""
    parts = [part for key in ("training", "held_out") for part in fingerprint.get(key) or ()]
    return [name for part in parts for name in ([part] if isinstance(part, str) else part)]


@dataclass(frozen=True, eq=False)
class RunCheckpoints:
    """Writes the checkpoints of a run, each replaced as a whole.

    `model` is the configuration of the policy, `record` a description of the training as plain
    data, and `steps` the number of steps of the whole run.
    """

    directory: Path
    policy: LearnedPolicy
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
