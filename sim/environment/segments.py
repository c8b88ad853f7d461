"""The segments of an image: nothing, the table, the arms and the objects on the table."""

from dataclasses import dataclass

import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.sim.looks.look_slots import FLOOR, WALLS
from stringline.sim.tasks.tabletop import TabletopTask

NOTHING = "nothing"
TABLE = "table"


@dataclass(frozen=True)
class Segments:
    """The numbered segments of one task.

    Attributes:
        names: Names by number: 0 `nothing`, 1 `table`, then the arms (2 `left` and 3 `right` if
            there are two), then the task's objects in the order in which the task adds them, so
            that a task's numbers never change.
        of_geom: (G,), segment of each geom of the compiled model.
        first_object: Number of the task's first object.
    """

    names: tuple[str, ...]
    of_geom: NDArray[np.uint8]
    first_object: int

    @property
    def objects(self) -> NDArray[np.bool_]:
        """(G,), whether each geom belongs to an object of the task."""
        return self.of_geom >= self.first_object


def segments(task: TabletopTask, physics: mjcf.Physics) -> Segments:
    """Numbers the segments of a task; its entities besides the robot are its objects."""
    names = [NOTHING, TABLE, *task.embodiment.arms]
    of_geom = np.full(physics.model.ngeom, names.index(TABLE), dtype=np.uint8)
    for name in (FLOOR, *WALLS):
        of_geom[physics.model.name2id(name, "geom")] = names.index(NOTHING)
    for arm in task.embodiment.arms:
        of_geom[_numbers(physics, task.robot.shapes(arm))] = names.index(arm)
    first_object = len(names)
    for entity in task.root_entity.iter_entities(exclude_self=True):
        if entity is not task.robot:
            of_geom[_numbers(physics, entity.mjcf_model.find_all("geom"))] = len(names)
            names.append(str(entity.mjcf_model.model))
    return Segments(tuple(names), of_geom, first_object)


def _numbers(physics: mjcf.Physics, shapes: list[mjcf.Element]) -> NDArray[np.int_]:
    return np.array(
        [physics.model.name2id(shape.full_identifier, "geom") for shape in shapes], dtype=int
    )
