"""YAML files that users write, with errors that name the file."""

from pathlib import Path
from typing import Any

import yaml


def read_yaml(kind: str, path: Path) -> Any:
    """Returns the content of a file; messages begin with `kind`, such as "The limits file".

    Raises:
        ValueError: The file cannot be read, or is not valid YAML.
    """
    try:
        return yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", error)
        raise ValueError(f"{kind} {path} cannot be read: {reason}.") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{kind} {path} is not valid YAML: {error}.") from error
