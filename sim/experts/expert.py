"""What every scripted expert offers, and all of them by the name of their task."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.names import unknown_name
from stringline.sim.environment import TaskEnvironment
from stringline.sim.experts.bowl_on_rack import BowlOnRackExpert
from stringline.sim.experts.double_insertion import DoubleInsertionExpert
from stringline.sim.experts.fmb_1 import Fmb1Expert
from stringline.sim.experts.fmb_2 import Fmb2Expert
from stringline.sim.experts.fruit_bowl import FruitBowlExpert
from stringline.sim.experts.glass_on_rack import GlassOnRackExpert
from stringline.sim.experts.hand_over_banana import HandOverBananaExpert
from stringline.sim.experts.hand_over_pen import HandOverPenExpert
from stringline.sim.experts.kuka_bimanual import KukaBimanualPickExpert, KukaBimanualPlaceExpert
from stringline.sim.experts.kuka_hand_over import KukaHandOverExpert
from stringline.sim.experts.kuka_pick import KukaPickExpert
from stringline.sim.experts.kuka_place import KukaPlaceExpert
from stringline.sim.experts.mug_on_plate import MugOnPlateExpert
from stringline.sim.experts.plate_on_rack import PlateOnRackExpert
from stringline.sim.experts.single_insertion import SingleInsertionExpert
from stringline.sim.experts.storage_bin import StorageBinExpert
from stringline.sim.experts.varied_hand_over_banana import VariedHandOverBananaExpert
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
from stringline.sim.world import World

WorldT = TypeVar("WorldT", bound=World, contravariant=True)


class Expert(Protocol[WorldT]):
    """Sees the true state of a world and commands its robot."""

    def reset(self, env: WorldT, rng: np.random.Generator) -> None:
        """Begins an episode that `env` has just begun; `rng` is for variety."""

    def act(self, env: WorldT) -> Vector:
        """Returns the next action.

        Raises:
            OutOfReachError: It cannot go on.
        """
        ...


EXPERTS: Mapping[str, Callable[[], Expert[TaskEnvironment]]] = {
    BowlOnRack.name: BowlOnRackExpert,
    DoubleInsertion.name: DoubleInsertionExpert,
    Fmb1.name: Fmb1Expert,
    Fmb2.name: Fmb2Expert,
    FruitBowl.name: FruitBowlExpert,
    GlassOnRack.name: GlassOnRackExpert,
    HandOverBanana.name: VariedHandOverBananaExpert,
    HandOverPen.name: HandOverPenExpert,
    KukaBimanualPick.name: KukaBimanualPickExpert,
    KukaBimanualPlace.name: KukaBimanualPlaceExpert,
    KukaHandOver.name: KukaHandOverExpert,
    KukaPick.name: KukaPickExpert,
    KukaPlace.name: KukaPlaceExpert,
    MugOnPlate.name: MugOnPlateExpert,
    PlateOnRack.name: PlateOnRackExpert,
    SingleInsertion.name: SingleInsertionExpert,
    StorageBin.name: StorageBinExpert,
}


# Those that do a task in one way, at one pace.
PLAIN_EXPERTS: Mapping[str, Callable[[], Expert[TaskEnvironment]]] = {HandOverBanana.name: HandOverBananaExpert}


def make_expert(task: str, *, varied: bool = True) -> Expert[TaskEnvironment]:
    """Builds the expert of a task.

    Args:
        task: Name of the task.
        varied: Whether one of ours varies and recovers; else it is the plain one, which only some tasks have.

    Raises:
        ValueError: There is none; the message names the nearest ones.
    """
    if is_imported(task):
        return _own_expert(task)
    experts = EXPERTS if varied else PLAIN_EXPERTS
    if task not in experts:
        raise unknown_name("expert for the task" if varied else "plain expert for the task", task, experts)
    return experts[task]()


def _own_expert(task: str) -> Expert[TaskEnvironment]:
    make: Callable[[], Expert[TaskEnvironment]] | None = getattr(import_task(task), "make_expert", None)
    if make is None:
        raise ValueError(f"{task} has no expert. Give its class a static method make_expert(), or record by stringline-teleop.")
    return make()
