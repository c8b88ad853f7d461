"""What a pixel can show: nothing, the table, an arm, or one of the things on the table."""

from dataclasses import dataclass

import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.sim.tasks.tabletop import TabletopTask

NOTHING = "nothing"
TABLE = "table"


@dataclass(frozen=True)
class Segments:
    """The segments of one task, numbered.

    Attributes:
        names: By number: 0 `nothing`, 1 `table`, then the arms (2 `left` and 3 `right` where there
            are two), then the task's things by their names, in the order in which the task adds
            them, so that a task's numbers are always the same.
        of_geom: (G,), the number of each shape of the compiled model.
        first_thing: Number of the first thing of the task.
    """

    names: tuple[str, ...]
    of_geom: NDArray[np.uint8]
    first_thing: int

    @property
    def things(self) -> NDArray[np.bool_]:
        """(G,), which shapes are neither of the table nor of an arm."""
        return self.of_geom >= self.first_thing


def segments(task: TabletopTask, physics: mjcf.Physics) -> Segments:
    """Numbers what there is in a task.

    Args:
        task: Its entities besides the robot are its things.
        physics: The compiled task.
    """
    names = [NOTHING, TABLE, *task.embodiment.arms]
    of_geom = np.full(physics.model.ngeom, names.index(TABLE), dtype=np.uint8)
    for arm in task.embodiment.arms:
        of_geom[_numbers(physics, task.robot.shapes(arm))] = names.index(arm)
    first_thing = len(names)
    for entity in task.root_entity.iter_entities(exclude_self=True):
        if entity is not task.robot:
            of_geom[_numbers(physics, entity.mjcf_model.find_all("geom"))] = len(names)
            names.append(str(entity.mjcf_model.model))
    return Segments(tuple(names), of_geom, first_thing)


def _numbers(physics: mjcf.Physics, shapes: list[mjcf.Element]) -> NDArray[np.int_]:
    return np.array(
        [physics.model.name2id(shape.full_identifier, "geom") for shape in shapes], dtype=int
    )
