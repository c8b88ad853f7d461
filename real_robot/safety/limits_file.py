"""The limits file of a robot: measured and chosen values in YAML, beside the configuration."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from stringline.datasets.contract.argument_checks import FINITE, POSITIVE, Range, unknown_name
from stringline.datasets.files.yaml_file import read_yaml
from stringline.real_robot.safety.limits import (
    AGES,
    CLEARANCES,
    REDUCED_SPEED,
    CommonLimits,
    SafetyLimits,
)

# It must be measured, so it has no default in a file.
MEASURED = "table_height"
SPEED = "cartesian_speed"
SHARE = "speed_share"
# Of real arms without a configuration of their own.
DEFAULT_LIMITS: Mapping[str, Any] = {SPEED: REDUCED_SPEED, SHARE: 1.0}
# Configuration and file each limit these: a user who chose a tighter one gets the tighter one.
_LOOSER_ABOVE = frozenset(
    {
        *(SPEED, SHARE, "acceleration", "gripper_acceleration", "tracking_rad", "effort"),
        *("hold_after_misses", "fault_after_misses", "fault_after_rejects", "hold_after_effort_s"),
        *("hold_temperature", "fault_temperature", *AGES),
    }
)
_LOOSER_BELOW = frozenset({"margin_rad", "soft_start_s", MEASURED, *CLEARANCES})
TIGHTENED = _LOOSER_ABOVE | _LOOSER_BELOW
BUILT_IN: Mapping[str, Any] = {
    **{field.name: field.default for field in fields(SafetyLimits) if field.name in TIGHTENED},
    **{
        name: parameter.default
        for name, parameter in inspect.signature(SafetyLimits.of).parameters.items()
        if name in TIGHTENED
    },
}


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
    defaults: Mapping[str, Any] = DEFAULT_LIMITS,
) -> dict[str, Any]:
    """Returns the limits of a configuration, overridden by those of the file.

    A limit of the configuration that is tighter than that of the file is in force if the user chose
    it: an acceleration that is lower, or a clearance that is larger. One of `defaults` may come
    from the shipped configuration instead, so only a tighter one counts as chosen. Emulated arms
    have no default speed.

    Raises:
        ValueError: The file is invalid; a speed of the configuration is out of range; or real arms
            have no limit of Cartesian speed, or a limit that the configuration loosens, which only
            the file may.
    """
    found = read_limits(file) if file else {}
    chosen = _chosen_limits(settings, None if emulated else defaults)
    tightened = {name: limit for name, limit in chosen.items() if _is_chosen(name, limit, found)}
    merged = {**settings, **found, **tightened}
    if not emulated:
        _check_real(settings, found, file, defaults)
    return merged


def describe_speeds(limits: Mapping[str, Any]) -> str:
    """Returns the speeds in force of merged limits in words."""
    speed = limits.get(SPEED, REDUCED_SPEED)
    what = "not limited" if speed is None else f"{speed:g} m/s"
    return f"{SPEED} {what}, {SHARE} {limits.get(SHARE, 1.0):g}"


def _chosen_limits(
    settings: Mapping[str, Any], defaults: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Returns the limits of a configuration that are tighter than their defaults.

    Without defaults, as of emulated arms, all speeds are chosen, and nothing else is.
    """
    for name, allowed in ((SPEED, POSITIVE), (SHARE, Range(above=0, most=1))):
        if settings.get(name) is not None:
            allowed.check(**{f"robot.limits.{name}": settings[name]})
    if defaults is None:
        given = ((name, settings.get(name)) for name in (SPEED, SHARE))
        return {name: speed for name, speed in given if speed is not None}
    base = {**BUILT_IN, **defaults}
    return {
        name: limit
        for name, limit in settings.items()
        if name in TIGHTENED and _is_chosen(name, limit, base)
    }


def _is_chosen(name: str, limit: Any, others: Mapping[str, Any]) -> bool:
    """Returns whether a limit is tighter than another one; values that are invalid stay."""
    if name not in others:
        return True
    return _is_looser(name, others[name], limit)


def _is_looser(name: str, limit: Any, base: Any) -> bool:
    """Returns whether a limit allows more than another one, in any of its numbers."""
    if limit is None or base is None:
        return limit is None and base is not None and name in (SPEED, "effort")
    some = limit if isinstance(limit, Sequence) else [limit]
    others = base if isinstance(base, Sequence) else [base]
    pairs = zip(some, others, strict=False)
    numbers = [(one, other) for one, other in pairs if one in FINITE and other in FINITE]
    sign = 1 if name in _LOOSER_ABOVE else -1
    return any(sign * one > sign * other for one, other in numbers)


def _check_real(
    settings: Mapping[str, Any],
    found: Mapping[str, Any],
    file: Path | None,
    defaults: Mapping[str, Any],
) -> None:
    """Checks that real arms have a limit of Cartesian speed, and that only the file loosens any."""
    base = {**BUILT_IN, **defaults, SPEED: REDUCED_SPEED}
    for name, limit in settings.items():
        if name not in TIGHTENED or not _is_looser(name, limit, base[name]):
            continue
        bound, verb = ("up to", "raises") if name in _LOOSER_ABOVE else ("from", "lowers")
        onwards = "" if name in _LOOSER_ABOVE else " on"
        unit = " (m/s)" if name == SPEED else ""
        raise ValueError(
            f"robot.limits.{name} is {_in_yaml(limit)}; allowed for real arms: {bound} "
            f"{_in_yaml(base[name])}{onwards}{unit}. Only the limits file {verb} it."
        )
    if SPEED in found and found[SPEED] is None:
        raise ValueError(f"{SPEED} is null in {file}; real arms need a limit (m/s).")


def _in_yaml(value: object) -> str:
    return "null" if value is None else repr(value)
