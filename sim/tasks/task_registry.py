"""The table of tasks and their experts, and tasks that users define in modules of their own.

Importing this module loads neither the simulation nor graphics: a class of the table is imported on
first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.extensions.trust import ClassName, import_class, is_class_name

if TYPE_CHECKING:
    from stringline.sim.tasks.tabletop import TabletopTask


@dataclass(frozen=True)
class TaskEntry:
    """The classes of one task, each as `module:Class`.

    The task is in a module of `sim/tasks`, the experts are in modules of `sim/experts`: one whose
    motions vary unless it is plain, and for some tasks a plain one of its own.
    """

    task: str
    expert: str
    plain_expert: str | None = None


TASKS: Mapping[str, TaskEntry] = {
    "bowl_on_rack": TaskEntry("dish_tasks:BowlOnRack", "dish_experts:BowlOnRackExpert"),
    "double_insertion": TaskEntry(
        "insertion_tasks:DoubleInsertion", "insertion_experts:DoubleInsertionExpert"
    ),
    "fmb_1": TaskEntry("recess_tasks:Fmb1", "recess_experts:Fmb1Expert"),
    "fmb_2": TaskEntry("recess_tasks:Fmb2", "recess_experts:Fmb2Expert"),
    "fruit_bowl": TaskEntry("gathering_tasks:FruitBowl", "gathering_experts:FruitBowlExpert"),
    "glass_on_rack": TaskEntry("dish_tasks:GlassOnRack", "dish_experts:GlassOnRackExpert"),
    "hand_over_banana": TaskEntry(
        "hand_over_tasks:HandOverBanana",
        "hand_over_experts:VariedHandOverBananaExpert",
        plain_expert="hand_over_experts:HandOverBananaExpert",
    ),
    "hand_over_pen": TaskEntry(
        "hand_over_tasks:HandOverPen", "hand_over_experts:HandOverPenExpert"
    ),
    "kuka_bimanual_pick": TaskEntry(
        "kuka_tasks:KukaBimanualPick", "kuka_experts:KukaBimanualPickExpert"
    ),
    "kuka_bimanual_place": TaskEntry(
        "kuka_tasks:KukaBimanualPlace", "kuka_experts:KukaBimanualPlaceExpert"
    ),
    "kuka_hand_over": TaskEntry("kuka_tasks:KukaHandOver", "kuka_experts:KukaHandOverExpert"),
    "kuka_pick": TaskEntry("kuka_tasks:KukaPick", "kuka_experts:KukaPickExpert"),
    "kuka_place": TaskEntry("kuka_tasks:KukaPlace", "kuka_experts:KukaPlaceExpert"),
    "mug_on_plate": TaskEntry("mug_task:MugOnPlate", "mug_expert:MugOnPlateExpert"),
    "plate_on_rack": TaskEntry("dish_tasks:PlateOnRack", "dish_experts:PlateOnRackExpert"),
    "single_insertion": TaskEntry(
        "insertion_tasks:SingleInsertion", "insertion_experts:SingleInsertionExpert"
    ),
    "storage_bin": TaskEntry("gathering_tasks:StorageBin", "gathering_experts:StorageBinExpert"),
}


OWN_TASKS = tuple(
    f"stringline.real_robot.calibration.board_world:{name}"
    for name in ("KukaBoardInHand", "KukaBoardOnTable")
)
"""Tasks of this package outside of the table: worlds of other folders, by `module:Class`."""


REMOTE = "remote:"
"""The beginning of the names of environments in another interpreter, `remote:MODULE:FUNCTION`."""
METAWORLD = "metaworld:"
"""The beginning of the names of the tasks of MetaWorld, which has an interpreter of its own."""


def is_remote_task(name: str) -> bool:
    """Returns whether a name belongs to an environment in another interpreter."""
    return name.startswith((REMOTE, METAWORLD))


def code_of_task(name: str) -> ClassName | None:
    """Returns what a name makes run of other packages, `module:name`; None for known tasks.

    Raises:
        ValueError: The name has another form.
    """
    if name.startswith(METAWORLD):
        return None
    if name.startswith(REMOTE):
        return ClassName.parse(name.removeprefix(REMOTE), "environment")
    return ClassName.parse(name, "task") if is_user_task(name) else None


def make_task(name: str, control_hz: float = 50.0, embodiment: str | None = None) -> TabletopTask:
    """Builds a task by its name in `TASKS`, or a user's task by `module:Class`.

    The caller has checked names that a file contains by `Trust`: this runs the code of the module.

    Args:
        name: The task.
        control_hz: Actions per second.
        embodiment: Another arm than that of the workcell, such as `menagerie:ur5e`.

    Raises:
        ValueError: There is no such task or arm; the message contains the nearest names.
    """
    return task_class(name, embodiment)(control_hz)


def task_class(name: str, embodiment: str | None = None) -> type[TabletopTask]:
    """Returns the class of a task; see `make_task`."""
    if embodiment is not None:
        return task_class(name).with_embodiment(embodiment)
    if is_user_task(name):
        return _user_task(name)
    if name not in (*TASKS, *OWN_TASKS):
        raise unknown_name("task", name, TASKS)
    place = name if name in OWN_TASKS else f"{__package__}.{TASKS[name].task}"
    found: type[TabletopTask] = resolve_name(place)
    return found


def is_user_task(name: str) -> bool:
    """Returns whether a name has the form `module:Class` of a task outside this package."""
    return is_class_name(name) and name not in OWN_TASKS and not is_remote_task(name)


def _user_task(name: str) -> type[TabletopTask]:
    from stringline.sim.tasks.tabletop import TabletopTask  # Loads the simulation.

    task = import_class(ClassName.parse(name, "task"), TabletopTask, "task")
    # Episodes store the name, and commands look for the class under it.
    if (own_name := getattr(task, "name", None)) != name:
        raise ValueError(f"The class {name} has the name {own_name!r}; set name = {name!r} in it.")
    return task
