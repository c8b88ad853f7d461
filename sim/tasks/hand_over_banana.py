"""Hand the banana over from the right arm to the left one, which puts it into the bowl.

Start ranges are those of aloha_sim's HandOverBanana; there the hand-over itself is optional, here it is required.
"""

from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.rigid import Matrix, inverse, pose, rotation_about
from stringline.sim.props.banana import Banana
from stringline.sim.props.bowl import Bowl
from stringline.sim.tasks.tabletop import TabletopTask

BANANA_X, BANANA_Y = (0.12, 0.18), (-0.1, 0.1)
BANANA_YAW_DEG = (-108.0, -72.0)
BOWL_X, BOWL_Y = (-0.18, -0.12), (-0.1, 0.1)
CLEAR_M = 0.02  # Lifted means that far off the table.
REST_SECONDS = 0.5
REST_SPEED = 0.01  # m/s of the fastest point. aloha_sim asks for 1e-3 at one instant; rolling to rest takes seconds until then.


class HandOverBanana(TabletopTask):
    """The banana goes from the right gripper to the left one and into the bowl.

    Success needs, in this order: held by the right gripper off the table; held by the left one, still off the table, while the
    right one has let go; then the whole banana inside the bowl, touched by neither arm, and at rest for half a second.
    A banana that falls onto the table has to be handed over again.
    """

    name: ClassVar[str] = "hand_over_banana"
    instruction: ClassVar[str] = "hand over the banana and put it into the bowl"
    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "handed_over", "in_bowl", "success")

    def __init__(self, control_hz: float = 50.0) -> None:
        self.banana, self.bowl = Banana(), Bowl()
        self._phase, self._rest_since = 0, np.inf
        super().__init__(control_hz, self.banana, self.bowl)

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws where banana and bowl are."""
        self._phase, self._rest_since = 0, np.inf
        yaw = rotation_about((0.0, 0.0, 1.0), np.radians(random_state.uniform(*BANANA_YAW_DEG)))
        spot = (random_state.uniform(*BANANA_X), random_state.uniform(*BANANA_Y), self.banana.radius)
        self.place(physics, self.banana, pose(spot, yaw))
        self.place(physics, self.bowl, pose((random_state.uniform(*BOWL_X), random_state.uniform(*BOWL_Y), 0.0)))

    def after_step(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Follows the episode's progress."""
        touching = self._contacts.touching(physics)
        held = {
            arm: all(frozenset((f"{arm}/{side}_pad", "banana")) in touching for side in ("left", "right"))
            for arm in ("left", "right")
        }
        touched = {
            arm: any(frozenset((part, "banana")) in touching for part in (arm, f"{arm}/left_pad", f"{arm}/right_pad"))
            for arm in ("left", "right")
        }
        T_base_banana = self.pose(physics, self.banana)
        clear = self._lowest(T_base_banana) > CLEAR_M
        inside = self.inside(T_base_banana, self.pose(physics, self.bowl))
        if frozenset(("banana", "table")) in touching:
            self._phase = 0
        if self._phase == 0 and held["right"] and clear:
            self._phase = 1
        if self._phase == 1 and held["left"] and not touched["right"] and clear:
            self._phase = 2
        if self._phase == 2 and inside:
            self._phase = 3
        free = inside and not any(touched.values())
        self._update_rest(physics, free)
        self.success = self._phase == 3 and physics.time() - self._rest_since >= REST_SECONDS - 1e-9
        self.stage = max(self.stage, 4 if self.success else self._phase)

    def inside(self, T_base_banana: Matrix, T_base_bowl: Matrix) -> bool:
        """Says whether the banana's whole axis is within the upright bowl's rim and between its floor and its rim's height."""
        T_bowl_banana = inverse(T_base_bowl) @ T_base_banana
        points = self.banana.points @ T_bowl_banana[:3, :3].T + T_bowl_banana[:3, 3]
        upright = T_base_bowl[2, 2] > 0.95
        within = np.hypot(points[:, 0], points[:, 1]) < self.bowl.rim_radius
        between = (points[:, 2] > 0) & (points[:, 2] < self.bowl.height)
        return bool(upright and within.all() and between.all())

    def _lowest(self, T_base_banana: Matrix) -> float:
        """Returns the height of the banana's lowest point over the table."""
        heights = self.banana.points @ T_base_banana[2, :3] + T_base_banana[2, 3]
        return float(heights.min()) - self.banana.radius - self.table_height

    def _update_rest(self, physics: mjcf.Physics, free: bool) -> None:
        at_rest = free and max(self.speed(physics, prop) for prop in (self.banana, self.bowl)) < REST_SPEED
        self._rest_since = min(self._rest_since, physics.time()) if at_rest else np.inf
