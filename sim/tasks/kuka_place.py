"""Put a thing into the tray with the KUKA's arm."""

from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.rigid import Matrix, pose, rotation_about
from stringline.sim.props.tray import Tray
from stringline.sim.tasks.drawn_thing import CLEAR_M, DrawnThingTask
from stringline.sim.tasks.goal_task import GoalTask
from stringline.sim.tasks.judgement import Touching, in_frame, upright

APART_M = 0.04  # Between the thing and the tray: room for a finger.
DRAWS = 100


class KukaPlace(GoalTask, DrawnThingTask):
    """A thing lies or stands in the tray, all of it within the rim.

    Start: one of 24 forms as in `KukaPick`, at x U(0.46, 0.68), y U(-0.22, 0.22) m and any yaw, and the tray at x U(0.48,
    0.64), y U(-0.2, 0.2) m, yaw U(-45, 45) degrees (of a square any), at least 4 cm apart. Success: no point of it beyond the
    inside of the rim (200 x 200 mm), its lowest one on the tray's floor (to 4 mm), the tray flat; touched by no arm, all at
    rest, for 0.5 s. Sizes and ranges are ours.
    """

    name: ClassVar[str] = "kuka_place"
    instruction: ClassVar[str] = "put the object into the tray"
    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "over_tray", "in_tray", "success")
    thing_y: ClassVar[tuple[float, float]] = (-0.22, 0.22)
    tray_x: ClassVar[tuple[float, float]] = (0.48, 0.64)
    tray_y: ClassVar[tuple[float, float]] = (-0.2, 0.2)

    def __init__(self, control_hz: float = 50.0) -> None:
        self.tray = Tray()
        super().__init__(control_hz, self.tray)

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws the thing, and where it and the tray are."""
        self.draw_thing(physics, random_state)
        T_thing, T_tray = self.draw_start(random_state), self._draw_tray(random_state)
        for _ in range(DRAWS):
            if self._apart(T_thing, T_tray):
                break
            T_thing, T_tray = self.draw_start(random_state), self._draw_tray(random_state)
        self.place(physics, self.thing, T_thing)
        self.place(physics, self.tray, T_tray)

    def reached(self, physics: mjcf.Physics) -> bool:
        """Says whether the thing is in the tray."""
        T_base_tray = self.pose(physics, self.tray)
        points = in_frame(T_base_tray, self.pose(physics, self.thing), self.thing.points)
        return upright(T_base_tray, 0.999) and self.tray.holds(points, self.thing.radii)

    def progress(self, physics: mjcf.Physics, touching: Touching) -> int:
        """Returns how far the thing is."""
        if self.reached(physics):
            return 3
        held = any(touching.held(arm, self.thing.name) for arm in self.embodiment.arms)
        if not held or self.clearance(physics) < CLEAR_M:
            return 0
        x, y, _ = in_frame(self.pose(physics, self.tray), self.pose(physics, self.thing), np.zeros(3))
        return 2 if max(abs(x), abs(y)) < self.tray.inner else 1

    def _draw_tray(self, random_state: np.random.RandomState) -> Matrix:
        yaw = rotation_about((0.0, 0.0, 1.0), random_state.uniform(-np.pi / 4, np.pi / 4))
        return pose((random_state.uniform(*self.tray_x), random_state.uniform(*self.tray_y), 0.0), yaw)

    def _apart(self, T_thing: Matrix, T_tray: Matrix) -> bool:
        """Says whether the thing, of which a disc is taken, keeps off the tray."""
        points = in_frame(T_tray, T_thing, self.thing.points)
        beyond = np.maximum(np.abs(points[:, :2]) - self.tray.outer, 0.0)
        return bool((np.hypot(*beyond.T) - self.thing.radii > APART_M).all())
