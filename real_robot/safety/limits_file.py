"""The limits file of a robot: what was measured and decided where it stands, in YAML, beside the configuration."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from stringline.datasets.contract.arguments import unknown_name
from stringline.real_robot.safety.limits import SafetyLimits

# What nobody can know who has not measured it.
MEASURED = "table_height"


def read_limits(path: Path) -> dict[str, Any]:
    """Returns the arguments of `SafetyLimits.of` that a file gives.

    Raises:
        ValueError: It is missing, says nothing, or says something that no limit is called; the
            message names the nearest.
    """
    try:
        found = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ValueError(f"The limits file {path} cannot be read: {error.strerror}.") from error
    except yaml.YAMLError as error:
        raise ValueError(f"The limits file {path} is no YAML: {error}.") from error
    if not isinstance(found, dict) or not found:
        raise ValueError(
            f"The limits file {path} must be a list of `name: value`, such as `table_height: "
            f"0.012`."
        )
    known = [name for name in inspect.signature(SafetyLimits.of).parameters if name != "embodiment"]
    for name in found:
        if name not in known:
            raise unknown_name("limit", str(name), known)
    if MEASURED not in found:
        raise ValueError(
            f"The limits file {path} does not say {MEASURED}. Measure the height of the table top "
            f"in the frame between the "
            "arms' bases, in metres."
        )
    return {str(name): value for name, value in found.items()}


def merged_limits(settings: Mapping[str, Any], file: str | None) -> dict[str, Any]:
    """Returns the limits of a configuration, overruled by those of a file if there is one."""
    return {**settings, **(read_limits(Path(file)) if file else {})}
