"""The limits file of a robot: measured and chosen values in YAML, beside the configuration."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stringline.datasets.contract.argument_checks import Range, unknown_name
from stringline.datasets.files.yaml_file import read_yaml
from stringline.real_robot.safety.limits import REDUCED_SPEED, CommonLimits, SafetyLimits

# It must be measured, so it has no default in a file.
MEASURED = "table_height"
SPEED = "cartesian_speed"


def read_limits(path: Path) -> dict[str, Any]:
    """Returns the arguments of `SafetyLimits.of` in a file.

    Raises:
        ValueError: The file cannot be read, is empty, has an unknown name or lacks the height of
            the table.
    """
    found = read_yaml("The limits file", path)
    if not isinstance(found, dict) or not found:
        raise ValueError(
            f"The limits file {path} must be a list of `name: value`, such as `table_height: "
            f"0.012`."
        )
    known = {**inspect.signature(SafetyLimits.of).parameters, **CommonLimits.__annotations__}
    names = [name for name in known if name not in ("embodiment", "more")]
    for name in found:
        if name not in names:
            raise unknown_name("limit", str(name), names)
    if MEASURED not in found:
        raise ValueError(
            f"The limits file {path} lacks {MEASURED}. Measure the height of the table top in the "
            f"frame between the bases of the arms, in metres."
        )
    return {str(name): value for name, value in _with_paths(found, path.parent).items()}


def _with_paths(found: Any, folder: Path) -> Any:
    """Returns the content with the files of meshes relative to the folder of the limits file."""
    if not isinstance(found, dict):
        return found
    return {
        name: str(folder / value)
        if name == "file" and isinstance(value, str)
        else _with_paths(value, folder)
        for name, value in found.items()
    }


def merged_limits(
    settings: Mapping[str, Any], file: Path | None, *, emulated: bool = False
) -> dict[str, Any]:
    """Returns the limits of a configuration, overridden by those of the file.

    Raises:
        ValueError: The file is invalid; or real arms have no limit of Cartesian speed, or one that
            the configuration raises, which only the file may.
    """
    merged = {**settings, **(read_limits(file) if file else {})}
    if emulated:
        return merged
    asked = settings.get(SPEED, REDUCED_SPEED)
    if asked is None or asked not in Range(most=REDUCED_SPEED):
        raise ValueError(
            f"robot.limits.{SPEED} is {_in_yaml(asked)}; allowed for real arms: up to "
            f"{REDUCED_SPEED:g} (m/s). Only the limits file raises it."
        )
    if SPEED in merged and merged[SPEED] is None:
        raise ValueError(f"{SPEED} is null in {file}; real arms need a limit (m/s).")
    return merged


def _in_yaml(value: object) -> str:
    return "null" if value is None else repr(value)
