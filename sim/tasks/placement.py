"""Random starts: poses of props, the distance between props as seen from above, and drawn objects.

In a task with one object that each episode draws from many, all objects are in the model. Those
that an episode does not use float high above the table.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from dm_control import mjcf
from numpy.typing import ArrayLike

from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.props.objects import FORMS, Graspable, GraspObject
from stringline.sim.props.prop import Prop
from stringline.sim.robots.workcells import KUKA_CELL, Workcell
from stringline.sim.tasks.tabletop import TabletopTask

Range = tuple[float, float]
UP = (0.0, 0.0, 1.0)
TRIES = 40


def draw_yaw(random_state: np.random.RandomState, yaw_deg: Range) -> Matrix:
    """Draws a rotation (3, 3) about the z axis."""
    return rotation_about(UP, np.radians(random_state.uniform(*yaw_deg)))


def draw_pose(
    random_state: np.random.RandomState,
    x: Range,
    y: Range,
    height: float = 0.0,
    *,
    rotation: Matrix | None = None,
) -> Matrix:
    """Draws a pose (4, 4) relative to the table top; x and y are uniform in ranges in metres."""
    spot = (random_state.uniform(*x), random_state.uniform(*y), height)
    return pose(spot, rotation)


def draw_apart(
    draw: Callable[[], tuple[Matrix, Matrix]],
    space: Callable[[Matrix, Matrix], float],
    least: float,
) -> tuple[Matrix, Matrix]:
    """Returns the first of 40 draws of two poses with enough space between them.

    If no draw has more than `least`, the draw with the most space is returned.
    """
    found = [draw() for _ in range(TRIES)]
    return next(
        (poses for poses in found if space(*poses) > least),
        max(found, key=lambda poses: space(*poses)),
    )


def box_gap(T_table_a: Matrix, half_a: ArrayLike, T_table_b: Matrix, half_b: ArrayLike) -> float:
    """Returns the gap between two boxes as seen from above, metres; below zero where they overlap.

    It is the widest gap along a side of one of them (separating axes, Gottschalk et al. 1996),
    which is a lower bound of their distance. The z axes of both poses point up; `half_a` and
    `half_b` (2,) are half of the lengths along x and y, metres.
    """
    # (2, 2), the direction of one side per row.
    sides_a = T_table_a[:2, :2].T
    sides_b = T_table_b[:2, :2].T
    axes = np.concatenate([sides_a, sides_b])
    between = np.abs(axes @ (T_table_b[:2, 3] - T_table_a[:2, 3]))
    radii_a = np.abs(axes @ sides_a.T) @ np.asarray(half_a)
    radii_b = np.abs(axes @ sides_b.T) @ np.asarray(half_b)
    return float((between - (radii_a + radii_b)).max())


AWAY_M = 8.0  # Beyond the range of every camera.
SUSPENDED_DAMPING = 100.0  # N s/m and Nm s/rad: what the solver leaves of forces moves nothing.


class RandomObjectTask(TabletopTask):
    """One of several objects lies at x U(`object_x`), y U(`object_y`) m and at any yaw.

    Attributes:
        objects: All objects.
        object: The object of this episode.
        props: The props of this episode by name; before the first episode all of them.
    """

    cell: ClassVar[Workcell] = KUKA_CELL
    varied_starts: ClassVar[bool] = True
    object_x: ClassVar[tuple[float, float]] = (0.46, 0.68)
    object_y: ClassVar[tuple[float, float]] = (-0.2, 0.2)

    def __init__(self, control_hz: float = 50.0, *others: Prop) -> None:
        self.objects = tuple(self.make_objects())
        self._others = others
        self.object = self.objects[0]
        super().__init__(control_hz, *others, *self.objects)
        # All objects in one place would have more contacts than MuJoCo has room for.
        for place, item in enumerate(self.objects):
            mjcf.get_attachment_frame(item.mjcf_model).pos = (float(place), 0.0, AWAY_M)

    @classmethod
    def make_objects(cls) -> Sequence[Graspable]:
        """Returns the objects from which each episode draws: 24 forms, unless overridden."""
        return [GraspObject(name) for name in FORMS]

    def draw_object(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws the object of the episode; the others float away from the table."""
        self.object = self.objects[random_state.randint(len(self.objects))]
        self.props = {prop.name: prop for prop in (*self._others, self.object)}
        for place, item in enumerate(self.objects):
            self.suspend(physics, item, suspended=item is not self.object)
            if item is not self.object:
                item.set_pose(physics, (float(place), 0.0, AWAY_M), (1.0, 0.0, 0.0, 0.0))
                item.set_velocity(physics, np.zeros(3), np.zeros(3))

    def suspend(self, physics: mjcf.Physics, item: Graspable, suspended: bool) -> None:
        """Switches gravity off and damping on for an object, or back again."""
        frame = physics.bind(mjcf.get_attachment_frame(item.mjcf_model))
        first = physics.model.body_dofadr[frame.element_id]
        physics.bind(item.body).gravcomp = float(suspended)
        physics.model.dof_damping[first : first + 6] = SUSPENDED_DAMPING * suspended

    def draw_start(self, random_state: np.random.RandomState) -> Matrix:
        """Draws the pose (4, 4) of the lying object relative to the table top."""
        yaw = rotation_about(UP, random_state.uniform(-np.pi, np.pi))
        height = self.object.rest_height
        return draw_pose(random_state, self.object_x, self.object_y, height, rotation=yaw)

    def clearance(self, physics: mjcf.Physics) -> float:
        """Returns the height of the object's lowest point above the table top, metres."""
        return self.object.lowest(self.pose(physics, self.object)) - self.table_height
