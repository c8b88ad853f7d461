"""All tasks by name."""

from collections.abc import Callable, Mapping

from stringline.datasets.contract.arguments import unknown_name
from stringline.sim.tasks.dish_tasks import BowlOnRack, GlassOnRack, PlateOnRack
from stringline.sim.tasks.gathering_tasks import FruitBowl, StorageBin
from stringline.sim.tasks.hand_over_tasks import HandOverBanana, HandOverPen
from stringline.sim.tasks.imported import import_task, is_imported
from stringline.sim.tasks.insertion_tasks import DoubleInsertion, SingleInsertion
from stringline.sim.tasks.kuka_tasks import (
    KukaBimanualPick,
    KukaBimanualPlace,
    KukaHandOver,
    KukaPick,
    KukaPlace,
)
from stringline.sim.tasks.mug_task import MugOnPlate
from stringline.sim.tasks.recess_tasks import Fmb1, Fmb2
from stringline.sim.tasks.tabletop import TabletopTask

TASKS: Mapping[str, Callable[[float], TabletopTask]] = {
    BowlOnRack.name: BowlOnRack,
    DoubleInsertion.name: DoubleInsertion,
    Fmb1.name: Fmb1,
    Fmb2.name: Fmb2,
    FruitBowl.name: FruitBowl,
    GlassOnRack.name: GlassOnRack,
    HandOverBanana.name: HandOverBanana,
    HandOverPen.name: HandOverPen,
    KukaBimanualPick.name: KukaBimanualPick,
    KukaBimanualPlace.name: KukaBimanualPlace,
    KukaHandOver.name: KukaHandOver,
    KukaPick.name: KukaPick,
    KukaPlace.name: KukaPlace,
    MugOnPlate.name: MugOnPlate,
    PlateOnRack.name: PlateOnRack,
    SingleInsertion.name: SingleInsertion,
    StorageBin.name: StorageBin,
}


def make_task(name: str, control_hz: float = 50.0) -> TabletopTask:
    """Builds the task of that name.

    Args:
        name: Of one of ours, or `module:Class` of the user's own, see `imported.py`.
        control_hz: Actions per second.

    Raises:
        ValueError: There is none; the message names the nearest ones.
    """
    if is_imported(name):
        return import_task(name)(control_hz)
    if name not in TASKS:
        raise unknown_name("task", name, TASKS)
    return TASKS[name](control_hz)
