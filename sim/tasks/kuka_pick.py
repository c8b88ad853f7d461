"""Pick a thing up with the KUKA's arm."""

from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.sim.tasks.drawn_thing import CLEAR_M, DrawnThingTask
from stringline.sim.tasks.judgement import Lasting

LIFTED_M = 0.1
# m/s of the thing's fastest point. Rest is no part of the task: learned policies, which are asked anew twice a second, hold a
# thing up for as long as one likes and go on moving it at 3 to 13 cm/s.
CALM_SPEED = 0.2


class KukaPick(DrawnThingTask):
    """A thing is held between the pads, all of it at least 10 cm above the table, and is not waved about.

    Start: one of 24 forms (boxes, cylinders, a ball, bent and branched bars, hollow ones, things put together from several
    solids), drawn for each episode, at x U(0.46, 0.68), y U(-0.2, 0.2) m and any yaw. Success: its lowest point at least 10 cm
    above the table, both pads of one gripper on it, no part of it faster than 20 cm/s, for 0.5 s without a break. Forms, sizes
    and ranges are ours, as those of the paper's experiment are not published.
    """

    name: ClassVar[str] = "kuka_pick"
    instruction: ClassVar[str] = "pick up the object"
    stages: ClassVar[tuple[str, ...]] = ("start", "grasped", "lifted", "success")

    def __init__(self, control_hz: float = 50.0) -> None:
        self._up = Lasting()
        super().__init__(control_hz)

    def initialize_episode(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Begins an episode."""
        self._up.reset()
        super().initialize_episode(physics, random_state)

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws the thing and where it lies."""
        self.draw_thing(physics, random_state)
        self.place(physics, self.thing, self.draw_start(random_state))

    def after_step(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Follows the episode's progress."""
        touching, clearance = self.touching(physics), self.clearance(physics)
        held = any(touching.held(arm, self.thing.name) for arm in self.embodiment.arms)
        high = held and clearance > LIFTED_M
        self.success = self._up.update(high and self.speed(physics, self.thing) < CALM_SPEED, physics.time())
        stage = 2 if held and clearance > CLEAR_M else int(held)
        self.stage = max(self.stage, 3 if self.success else stage)
