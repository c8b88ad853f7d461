"""Tasks that put one dish onto the dish rack."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.rigid import Matrix, inverse, pose, rotation_about
from stringline.sim.props.prop import Prop
from stringline.sim.props.rack import Rack
from stringline.sim.tasks.goal_task import GoalTask
from stringline.sim.tasks.judgement import Touching

RACK_X, RACK_Y = (-0.1, 0.1), (0.18, 0.25)
RACK_YAW_DEG = (-93.6, -86.4)
TRIES = 40
MARGIN_M = 0.01  # Between dish and rack at the start.
CLEAR_M = 0.02  # Lifted means that far off the table.


class DishTask(GoalTask):
    """One dish and the rack; stages are start, lifted, over_rack, on_rack and success.

    The rack stands as in aloha_sim: x U(-0.1, 0.1), y U(0.18, 0.25) m, yaw -90 +- 3.6 degrees; its tines are on the left as
    the operator sees it, its free bay on the right. The dish starts upright on the table at a place drawn evenly from `dish_x`
    and `dish_y`, again and again until its rim is 1 cm clear of the rack.

    Args:
        control_hz: Actions per second.
        dish: What goes onto the rack; it stands on its origin.
        rim_points: (N, 3), points all around its rim in its frame, metres.
    """

    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "over_rack", "on_rack", "success")
    dish_x: ClassVar[tuple[float, float]]
    dish_y: ClassVar[tuple[float, float]]

    def __init__(self, control_hz: float, dish: Prop, rim_points: Matrix) -> None:
        self.rack, self.dish, self.rim_points = Rack(), dish, rim_points
        super().__init__(control_hz, self.rack, dish)
        # A reset leaves props here before they are placed: not inside one another, which would be thousands of contacts.
        for number, prop in enumerate(self.props.values(), start=1):
            mjcf.get_attachment_frame(prop.mjcf_model).pos = (0.0, 0.0, float(number))

    @abstractmethod
    def on_rack(self, T_rack_dish: Matrix) -> bool:
        """Says by geometry alone whether the dish at its pose (4, 4) in the frame of the upright rack is where it belongs."""

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws where rack and dish are.

        Raises:
            RuntimeError: In 40 tries there was no free place, which the ranges rule out.
        """
        yaw = rotation_about((0.0, 0.0, 1.0), np.radians(random_state.uniform(*RACK_YAW_DEG)))
        T_table_rack = pose((random_state.uniform(*RACK_X), random_state.uniform(*RACK_Y), 0.0), yaw)
        self.place(physics, self.rack, T_table_rack)
        for _ in range(TRIES):
            spot = pose((random_state.uniform(*self.dish_x), random_state.uniform(*self.dish_y), 0.0))
            if self._clear(inverse(T_table_rack) @ spot):
                self.place(physics, self.dish, spot)
                return
        raise RuntimeError(f"No place for {self.dish.name} beside the rack in {TRIES} tries.")

    def reached(self, physics: mjcf.Physics) -> bool:
        """Says whether the rack stands upright on the table and the dish is where it belongs."""
        T_base_rack = self.pose(physics, self.rack)
        level = T_base_rack[2, 2] > 0.999 and abs(T_base_rack[2, 3] - self.table_height) < 0.005
        return bool(level and self.on_rack(inverse(T_base_rack) @ self.pose(physics, self.dish)))

    def progress(self, physics: mjcf.Physics, touching: Touching) -> int:
        """Lifted: held 2 cm off the table; over the rack: held, its middle above it; on the rack: where it belongs, let go."""
        T_base_dish = self.pose(physics, self.dish)
        if not touching.by_any_arm([self.dish.name]):
            return 3 if self.reached(physics) else 0
        held = any(touching.held(arm, self.dish.name) for arm in ("left", "right"))
        if not held or self.lowest(T_base_dish) - self.table_height < CLEAR_M:
            return 0
        across = (inverse(self.pose(physics, self.rack)) @ T_base_dish)[:2, 3]
        return 2 if bool((np.abs(across) < self.rack.half).all()) else 1

    def lowest(self, T_base_dish: Matrix) -> float:
        """Returns the height of the lower of the dish's foot and the lowest point of its rim, metres."""
        rim = self.rim_points @ T_base_dish[2, :3] + T_base_dish[2, 3]
        return float(min(rim.min(), T_base_dish[2, 3]))

    def _clear(self, T_rack_dish: Matrix) -> bool:
        radius = float(np.hypot(self.rim_points[:, 0], self.rim_points[:, 1]).max())
        beyond = np.maximum(np.abs(T_rack_dish[:2, 3]) - self.rack.half, 0.0)
        return bool(np.hypot(*beyond) > radius + MARGIN_M)


def circle(radius: float, height: float, count: int = 24) -> Matrix:
    """Returns points (count, 3) on a circle around the z axis, metres."""
    angles = np.arange(count) * 2 * np.pi / count
    return np.stack([radius * np.cos(angles), radius * np.sin(angles), np.full(count, height)], axis=-1)


def stands_in_bay(rack: Rack, T_rack_dish: Matrix, rim_points: Matrix) -> bool:
    """Says whether a dish stands on the floor of the rack's free bay.

    Args:
        rack: Whose frame is used.
        T_rack_dish: (4, 4), of a dish that stands on its origin.
        rim_points: (N, 3), around its rim in its frame, metres.

    Returns:
        Whether it is upright to within 6 degrees, its foot within 4 mm of the floor, and all of its rim within the bay.
    """
    rim = (rim_points @ T_rack_dish[:3, :3].T + T_rack_dish[:3, 3])[:, :2]
    inside = (rim > rack.bay[0]).all() and (rim < rack.bay[1]).all()
    return bool(inside and T_rack_dish[2, 2] > 0.9945 and abs(T_rack_dish[2, 3] - rack.floor) < 0.004)
