"""Mutants of the model of the cell: its capsules, distances and refusals."""

from dataclasses import replace
from typing import Any

from stringline.datasets.contract.argument_checks import FINITE
from stringline.datasets.embodiments.embodiment import CapsuleMount, Embodiment
from stringline.real_robot.safety import cell, clearance, collision_model, limits
from stringline.real_robot.safety.cell import Cell
from stringline.real_robot.safety.clearance import Clearance

_carried = Cell.carried
_measured_clearance = Clearance.__init__


def _without_tools(self: Cell, embodiment: Embodiment) -> dict[str, list[CapsuleMount]]:
    return _carried(replace(self, tools={}), embodiment)


def _without_cameras(self: Cell, embodiment: Embodiment) -> dict[str, list[CapsuleMount]]:
    return _carried(self, replace(embodiment, cameras=()))


def _without_meshes(self: Clearance, embodiment: Embodiment, *given: Any, **more: Any) -> None:
    _measured_clearance(self, replace(embodiment, enclosing_mounts=()), *given, **more)


# Name: owner, attribute, and what replaces it.
CELL_GUARDS: dict[str, tuple[Any, str, Any]] = {
    "tools": (Cell, "carried", _without_tools),
    "wrist cameras": (Cell, "carried", _without_cameras),
    "speed of what is carried": (collision_model, "_tips", lambda _: []),
    "published meshes": (Clearance, "__init__", _without_meshes),
    "pairs of one arm": (clearance, "_own_pairs", lambda *_: ()),
    "pose before torque": (Clearance, "overlaps", lambda *_: []),
    "units of places": (cell, "_PLACE_M", FINITE),
    "units of radii": (cell, "_RADIUS_M", FINITE),
    "units of sizes": (cell, "_SIZE_M", FINITE),
    "units of masses": (cell, "_MASS_KG", FINITE),
    "units of heights": (limits, "_HEIGHT_M", FINITE),
    "units of clearances": (limits, "_CLEARANCE_M", FINITE),
    "entries that are needed": (cell, "_check_complete", lambda *_: None),
}
