"""What every scripted expert offers, and all of them by the name of their task."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import numpy as np

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.embodiments.embodiment import Vector
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.dish_experts import BowlOnRackExpert, GlassOnRackExpert
from stringline.sim.experts.gathering_experts import FruitBowlExpert, StorageBinExpert
from stringline.sim.experts.hand_over_experts import (
    HandOverBananaExpert,
    HandOverPenExpert,
    VariedHandOverBananaExpert,
)
from stringline.sim.experts.insertion_experts import DoubleInsertionExpert, SingleInsertionExpert
from stringline.sim.experts.kuka_experts import (
    KukaBimanualPickExpert,
    KukaBimanualPlaceExpert,
    KukaHandOverExpert,
    KukaPickExpert,
    KukaPlaceExpert,
)
from stringline.sim.experts.mug_expert import MugOnPlateExpert
from stringline.sim.experts.plate_expert import PlateOnRackExpert
from stringline.sim.experts.recess_experts import Fmb1Expert, Fmb2Expert
from stringline.sim.rollout.world_interface import World
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
PLAIN_EXPERTS: Mapping[str, Callable[[], Expert[TaskEnvironment]]] = {
    HandOverBanana.name: HandOverBananaExpert
}


def make_expert(task: str, *, varied: bool = True) -> Expert[TaskEnvironment]:
    """Builds the expert of a task.

    Args:
        task: Name of the task.
        varied: Whether one of ours varies and recovers; else it is the plain one, which only some
            tasks have.

    Raises:
        ValueError: There is none; the message names the nearest ones.
    """
    if is_imported(task):
        return _own_expert(task)
    experts = EXPERTS if varied else PLAIN_EXPERTS
    if task not in experts:
        raise unknown_name(
            "expert for the task" if varied else "plain expert for the task", task, experts
        )
    return experts[task]()


def _own_expert(task: str) -> Expert[TaskEnvironment]:
    make: Callable[[], Expert[TaskEnvironment]] | None = getattr(
        import_task(task), "make_expert", None
    )
    if make is None:
        raise ValueError(
            f"{task} has no expert. Give its class a static method make_expert(), or record by "
            f"stringline-teleop."
        )
    return make()
