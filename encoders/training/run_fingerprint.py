"""The settings that decide the weights of a run, in its directory, compared when it continues."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from stringline.datasets.files.atomic import write_file

# Those of libyaml need a tenth of the time for the names of many episodes.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

FILE = "run.yaml"
END = "checkpoint"

Explain = Callable[[Mapping[str, Any], Mapping[str, Any]], str]
"""Explains a difference, given the stored and the new fingerprint; "": there is nothing to add."""


def is_main_process() -> bool:
    """Returns whether this is the first or only process of a run."""
    return os.environ.get("RANK", "0") == "0"


def process_count() -> int:
    """Returns the number of processes of a run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def stored_fingerprint(directory: Path) -> Any:
    """Returns the fingerprint of the run in a directory, as the file has it; None: no run.

    Raises:
        yaml.YAMLError: The file is damaged.
    """
    file = directory / FILE
    return yaml.load(file.read_bytes(), _Loader) if file.is_file() else None


def check_run_directory(
    directory: Path, fingerprint: Mapping[str, Any], explain: Explain | None = None
) -> None:
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
    stored = stored_fingerprint(directory)
    if not isinstance(stored, dict):
        raise ValueError(
            f"{file} is damaged. Choose another output, or remove {directory} to start again."
        )
    if changed := [key for key, value in plain.items() if stored.get(key) != value]:
        raise ValueError(
            f"{directory} holds a run with other settings ({', '.join(changed)}). Choose another "
            f"output.{explain(stored, plain) if explain else ''}"
        )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value
