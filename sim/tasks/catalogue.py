"""All tasks by name."""

from collections.abc import Callable, Mapping

from stringline.datasets.names import unknown_name
from stringline.sim.tasks.bowl_on_rack import BowlOnRack
from stringline.sim.tasks.double_insertion import DoubleInsertion
from stringline.sim.tasks.fmb_1 import Fmb1
from stringline.sim.tasks.fmb_2 import Fmb2
from stringline.sim.tasks.fruit_bowl import FruitBowl
from stringline.sim.tasks.glass_on_rack import GlassOnRack
from stringline.sim.tasks.hand_over_banana import HandOverBanana
from stringline.sim.tasks.hand_over_pen import HandOverPen
from stringline.sim.tasks.imported import import_task, is_imported
from stringline.sim.tasks.kuka_bimanual_pick import KukaBimanualPick
from stringline.sim.tasks.kuka_bimanual_place import KukaBimanualPlace
from stringline.sim.tasks.kuka_hand_over import KukaHandOver
from stringline.sim.tasks.kuka_pick import KukaPick
from stringline.sim.tasks.kuka_place import KukaPlace
from stringline.sim.tasks.mug_on_plate import MugOnPlate
from stringline.sim.tasks.plate_on_rack import PlateOnRack
from stringline.sim.tasks.single_insertion import SingleInsertion
from stringline.sim.tasks.storage_bin import StorageBin
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
