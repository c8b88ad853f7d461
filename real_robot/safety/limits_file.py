"""The limits file of a robot: measured and chosen values in YAML, beside the configuration."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stringline.datasets.contract.argument_checks import POSITIVE, Range, unknown_name
from stringline.datasets.files.yaml_file import read_yaml
from stringline.real_robot.safety.limits import REDUCED_SPEED, CommonLimits, SafetyLimits

# It must be measured, so it has no default in a file.
MEASURED = "table_height"
SPEED = "cartesian_speed"
SHARE = "speed_share"
# Configuration and file each limit these: a user who chose a lower one gets the lower one.
LOWERED = (SPEED, SHARE)
# Of real arms without a configuration of their own.
DEFAULT_SPEEDS: Mapping[str, float] = {SPEED: REDUCED_SPEED, SHARE: 1.0}


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
    settings: Mapping[str, Any],
    file: Path | None,
    *,
    emulated: bool = False,
    defaults: Mapping[str, float] = DEFAULT_SPEEDS,
) -> dict[str, Any]:
    """Returns the limits of a configuration, overridden by those of the file.

    A `cartesian_speed` (m/s) or `speed_share` of the configuration that is lower than that of the
    file is in force if the user chose it. One of `defaults` may come from the shipped configuration
    instead, so only a lower one counts as chosen. Emulated arms have no default speed.

    Raises:
        ValueError: The file is invalid; a speed of the configuration is out of range; or real arms
            have no limit of Cartesian speed, or one that the configuration raises, which only the
            file may.
    """
    found = read_limits(file) if file else {}
    chosen = _chosen_speeds(settings, {} if emulated else defaults)
    lowered = {name: speed for name, speed in chosen.items() if _is_lower(speed, name, found)}
    merged = {**settings, **found, **lowered}
    if not emulated:
        _check_real(settings, found, file)
    return merged


def describe_speeds(limits: Mapping[str, Any]) -> str:
    """Returns the speeds in force of merged limits in words."""
    speed = limits.get(SPEED, REDUCED_SPEED)
    what = "not limited" if speed is None else f"{speed:g} m/s"
    return f"{SPEED} {what}, {SHARE} {limits.get(SHARE, 1.0):g}"


def _chosen_speeds(settings: Mapping[str, Any], defaults: Mapping[str, float]) -> dict[str, float]:
    """Returns the speeds of a configuration that are lower than their defaults."""
    chosen: dict[str, float] = {}
    for name, allowed in ((SPEED, POSITIVE), (SHARE, Range(above=0, most=1))):
        if (speed := settings.get(name)) is None:
            continue
        allowed.check(**{f"robot.limits.{name}": speed})
        if name not in defaults or speed < defaults[name]:
            chosen[name] = speed
    return chosen


def _is_lower(speed: float, name: str, found: Mapping[str, Any]) -> bool:
    """Returns whether a speed is lower than that of the file; values that are invalid stay."""
    if name not in found:
        return True
    given = found[name]
    if given is None:
        return name == SPEED  # The file sets no limit.
    return given in POSITIVE and bool(speed < given)


def _check_real(settings: Mapping[str, Any], found: Mapping[str, Any], file: Path | None) -> None:
    """Checks that real arms have a limit of Cartesian speed which only the file raises."""
    asked = settings.get(SPEED, REDUCED_SPEED)
    if asked is None or asked not in Range(most=REDUCED_SPEED):
        raise ValueError(
            f"robot.limits.{SPEED} is {_in_yaml(asked)}; allowed for real arms: up to "
            f"{REDUCED_SPEED:g} (m/s). Only the limits file raises it."
        )
    if SPEED in found and found[SPEED] is None:
        raise ValueError(f"{SPEED} is null in {file}; real arms need a limit (m/s).")


def _in_yaml(value: object) -> str:
    return "null" if value is None else repr(value)
