"""Scales of robosuite's operational space controller: actions from -1 to 1 in m and rad."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import ActionMode

OPTION = "format.controller={position_m: NUMBER, rotation_rad: NUMBER, relative: true or false}"


@dataclass(frozen=True)
class Controller:
    """The scales of an action: metres and radians at 1; relative to the measured pose or not."""

    position_m: float
    rotation_rad: float
    mode: ActionMode


def named_controller(named: Mapping[str, Any]) -> Controller:
    """Builds a controller from a user's fields."""
    fields = ("position_m", "rotation_rad", "relative")
    for name in named:
        if name not in fields:
            raise unknown_name("field of the controller", name, fields)
    if set(named) != set(fields):
        raise ValueError(
            f"The controller has the fields {', '.join(named) or 'none'}; needed: "
            f"{', '.join(fields)}."
        )
    return Controller(
        named["position_m"], named["rotation_rad"], "relative" if named["relative"] else "absolute"
    )


def controller_of(environment: Mapping[str, Any]) -> Controller:
    """Reads the controller of a recorded environment from `env_args` of the file.

    Since robosuite 1.5 a controller has one part for each arm; all parts must be equal.
    """
    settings = environment.get("env_kwargs", {}).get("controller_configs")
    parts = settings if isinstance(settings, list) else [settings]
    if len(parts) == 1 and isinstance(parts[0], Mapping) and "body_parts" in parts[0]:
        bodies = parts[0]["body_parts"]
        arms = bodies.get("arms", bodies)
        parts = [arms[name] for name in ("left", "right") if name in arms]
    found = {_read(part) for part in parts}
    if len(found) != 1 or None in found:
        raise ValueError(
            f"The file does not contain the scales of its actions in m and rad; set {OPTION}."
        )
    (controller,) = found
    assert controller is not None
    return controller


def _read(part: Any) -> Controller | None:
    if not isinstance(part, Mapping) or part.get("type") != "OSC_POSE":
        return None
    if part.get("control_delta", part.get("input_type", "delta") == "delta") is False:
        return Controller(1.0, 1.0, "absolute")
    limits = part.get("output_max")
    if (
        not isinstance(limits, list)
        or len(limits) != 6
        or len(set(limits[:3])) != 1
        or len(set(limits[3:])) != 1
    ):
        return None
    return Controller(float(limits[0]), float(limits[3]), "relative")
