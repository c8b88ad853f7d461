"""Tasks with one thing that each episode draws from many: all are in the model, and those that are not there float far up."""

from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.props.objects import FORMS, Thing
from stringline.sim.props.prop import Prop
from stringline.sim.robots.workcells import KUKA_CELL, Workcell
from stringline.sim.tasks.tabletop import TabletopTask

AWAY_M = 8.0  # Farther than any camera draws.
CLEAR_M = 0.02  # Lifted means that far off the table.
SUSPENDED_DAMPING = 100.0  # N s/m, Nm s/rad: what the solver leaves of forces moves nothing.


class DrawnThingTask(TabletopTask):
    """A thing of one of 24 forms lies at x U(`thing_x`), y U(`thing_y`) m and at any yaw.

    Args:
        control_hz: Actions per second.
        others: Props that are there in every episode.

    Attributes:
        things: All of them.
        thing: What there is in this episode.
        props: What there is in this episode, by name; before the first one everything.
    """

    cell: ClassVar[Workcell] = KUKA_CELL
    thing_x: ClassVar[tuple[float, float]] = (0.46, 0.68)
    thing_y: ClassVar[tuple[float, float]] = (-0.2, 0.2)

    def __init__(self, control_hz: float, *others: Prop) -> None:
        self.things = tuple(Thing(name) for name in FORMS)
        self._others = others
        self.thing = self.things[0]
        super().__init__(control_hz, *others, *self.things)
        for place, thing in enumerate(
            self.things
        ):  # All in one place are more contacts than MuJoCo has room for.
            mjcf.get_attachment_frame(thing.mjcf_model).pos = (float(place), 0.0, AWAY_M)

    def draw_thing(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws which thing there is; the others go away, where no gravity pulls at them."""
        self.thing = self.things[random_state.randint(len(self.things))]
        self.props = {prop.name: prop for prop in (*self._others, self.thing)}
        for place, thing in enumerate(self.things):
            self.suspend(physics, thing, suspended=thing is not self.thing)
            if thing is not self.thing:
                thing.set_pose(physics, (float(place), 0.0, AWAY_M), (1.0, 0.0, 0.0, 0.0))
                thing.set_velocity(physics, np.zeros(3), np.zeros(3))

    def suspend(self, physics: mjcf.Physics, thing: Thing, suspended: bool) -> None:
        """Lets a thing float where it is, or fall."""
        first = physics.model.body_dofadr[
            physics.bind(mjcf.get_attachment_frame(thing.mjcf_model)).element_id
        ]
        physics.bind(thing.body).gravcomp = float(suspended)
        physics.model.dof_damping[first : first + 6] = SUSPENDED_DAMPING * suspended

    def draw_start(self, random_state: np.random.RandomState) -> Matrix:
        """Draws where the thing lies (4, 4), relative to the table top."""
        yaw = rotation_about((0.0, 0.0, 1.0), random_state.uniform(-np.pi, np.pi))
        spot = (
            random_state.uniform(*self.thing_x),
            random_state.uniform(*self.thing_y),
            self.thing.rest_height,
        )
        return pose(spot, yaw)

    def clearance(self, physics: mjcf.Physics) -> float:
        """Returns how high the lowest point of the thing is above the table top, metres."""
        return self.thing.lowest(self.pose(physics, self.thing)) - self.table_height
