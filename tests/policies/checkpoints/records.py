"""Checkpoints that consist of a record, for tests of commands that read it."""

from pathlib import Path
from typing import Any

import yaml


def described(folder: Path, **training: Any) -> Path:
    """Writes the description of a checkpoint."""
    folder.mkdir()
    (folder / "checkpoint.yaml").write_text(yaml.safe_dump({"format": 1, "training": training}))
    return folder
