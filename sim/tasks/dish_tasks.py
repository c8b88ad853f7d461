"""Tasks that put one dish into the dish rack."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.transforms import Matrix, inverse
from stringline.sim.props.prop import Prop
from stringline.sim.props.table_props import Bowl, Glass, Plate, Rack
from stringline.sim.tasks.placement import draw_pose, draw_yaw
from stringline.sim.tasks.success import CLEAR_M, ContactState
from stringline.sim.tasks.tabletop import GoalTask

RACK_X = (-0.1, 0.1)
RACK_Y = (0.18, 0.25)
RACK_YAW_DEG = (-93.6, -86.4)
TRIES = 40
MARGIN_M = 0.01  # Smallest gap between dish and rack at the start.
PLATE_TILT_DEG = 45.0  # Smallest tilt of a plate in a slot.


class DishTask(GoalTask):
    """The base class of tasks with one dish and the rack.

    The rack stands as in aloha_sim: x U(-0.1, 0.1), y U(0.18, 0.25) m, yaw -90 +- 3.6 degrees; its
    tines are on the left as the operator sees it, its free bay on the right. The dish starts
    upright on the table at a place drawn from U(`dish_x`), U(`dish_y`), anew until its rim is 1 cm
    clear of the rack.

    The dish stands on its origin; `rim_points` (N, 3) are all around its rim in its frame, metres.
    """

    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "over_rack", "on_rack", "success")
    may_be_strict: ClassVar[bool] = True
    dish_x: ClassVar[tuple[float, float]]
    dish_y: ClassVar[tuple[float, float]]

    def __init__(self, control_hz: float, dish: Prop, rim_points: Matrix) -> None:
        self.rack = Rack()
        self.dish = dish
        self.rim_points = rim_points
        super().__init__(control_hz, self.rack, dish)
        # After a reset the props are here until they are placed. Inside one another they would have
        # thousands of contacts.
        for number, prop in enumerate(self.props.values(), start=1):
            mjcf.get_attachment_frame(prop.mjcf_model).pos = (0.0, 0.0, float(number))

    @abstractmethod
    def on_rack(self, T_rack_dish: Matrix) -> bool:
        """Returns whether the dish, at its pose (4, 4) in the upright rack's frame, is in place."""

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws the poses of rack and dish.

        Raises:
            RuntimeError: None of 40 tries has found a free place, which the ranges rule out.
        """
        yaw = draw_yaw(random_state, RACK_YAW_DEG)
        T_table_rack = draw_pose(random_state, RACK_X, RACK_Y, rotation=yaw)
        self.place(physics, self.rack, T_table_rack)
        for _ in range(TRIES):
            spot = draw_pose(random_state, self.dish_x, self.dish_y)
            if self._clear(inverse(T_table_rack) @ spot):
                self.place(physics, self.dish, spot)
                return
        raise RuntimeError(
            f"None of {TRIES} tries has found a place for {self.dish.name} beside the rack."
        )

    def reached(self, physics: mjcf.Physics) -> bool:
        """Returns whether the rack stands upright on the table and the dish is in place."""
        T_base_rack = self.pose(physics, self.rack)
        level = T_base_rack[2, 2] > 0.999 and abs(T_base_rack[2, 3] - self.table_height) < 0.005
        return bool(level and self.on_rack(inverse(T_base_rack) @ self.pose(physics, self.dish)))

    def progress(self, physics: mjcf.Physics, contacts: ContactState) -> int:
        """Returns the stage: lifted by 2 cm, held over the rack, or in place and released."""
        T_base_dish = self.pose(physics, self.dish)
        if not contacts.by_any_arm([self.dish.name]):
            return 3 if self.reached(physics) else 0
        held = contacts.held_by_any(self.dish.name)
        if not held or self.lowest(T_base_dish) - self.table_height < CLEAR_M:
            return 0
        across = (inverse(self.pose(physics, self.rack)) @ T_base_dish)[:2, 3]
        return 2 if bool((np.abs(across) < self.rack.half).all()) else 1

    def lowest(self, T_base_dish: Matrix) -> float:
        """Returns the lower height of the dish's foot and its rim, metres."""
        rim = self.rim_points @ T_base_dish[2, :3] + T_base_dish[2, 3]
        return float(min(rim.min(), T_base_dish[2, 3]))

    def _clear(self, T_rack_dish: Matrix) -> bool:
        radius = float(np.hypot(self.rim_points[:, 0], self.rim_points[:, 1]).max())
        beyond = np.maximum(np.abs(T_rack_dish[:2, 3]) - self.rack.half, 0.0)
        return bool(np.hypot(*beyond) > radius + MARGIN_M)


def circle(radius: float, height: float, count: int = 24) -> Matrix:
    """Returns points (count, 3) on a circle around the z axis, metres."""
    angles = np.arange(count) * 2 * np.pi / count
    x, y = radius * np.cos(angles), radius * np.sin(angles)
    return np.stack([x, y, np.full(count, height)], axis=-1)


def stands_in_bay(rack: Rack, T_rack_dish: Matrix, rim_points: Matrix) -> bool:
    """Returns whether a dish stands on the floor of the rack's free bay.

    It must be upright to within 6 degrees, its foot, which is its origin, within 4 mm of the floor,
    and its rim, given by points (N, 3) in its frame, metres, within the bay.
    """
    rim = (rim_points @ T_rack_dish[:3, :3].T + T_rack_dish[:3, 3])[:, :2]
    inside = (rim > rack.bay[0]).all() and (rim < rack.bay[1]).all()
    return bool(
        inside and T_rack_dish[2, 2] > 0.9945 and abs(T_rack_dish[2, 3] - rack.floor) < 0.004
    )


class BowlOnRack(DishTask):
    """The bowl stands upright in the free bay of the dish rack.

    Start: bowl at x U(0, 0.25), y U(-0.2, 0) m; rack as in `DishTask`. Success: its foot within 4
    mm of the rack's floor, upright to within 6 degrees, its whole rim within the bay.

    Sizes: bowl of diameter 114 and height 40 mm; they and the ranges are those of aloha_sim's
    BowlOnRack, which accepts any contact.
    """

    name: ClassVar[str] = "bowl_on_rack"
    instruction: ClassVar[str] = "put the bowl onto the rack"
    dish_x: ClassVar[tuple[float, float]] = (0.0, 0.25)
    dish_y: ClassVar[tuple[float, float]] = (-0.2, 0.0)

    def __init__(self, control_hz: float = 50.0) -> None:
        # The wall's inner edge is at 105 mm, its outer one at 114 mm.
        self.bowl = Bowl(
            diameter=0.105, height=0.04, floor_diameter=0.066, thickness=0.005, mass=0.06
        )
        super().__init__(control_hz, self.bowl, circle(0.057, self.bowl.height))

    def on_rack(self, T_rack_dish: Matrix) -> bool:
        """Returns whether the bowl stands in the rack's bay."""
        return stands_in_bay(self.rack, T_rack_dish, self.rim_points)


class GlassOnRack(DishTask):
    """The glass stands upright, its mouth up, in the free bay of the dish rack.

    Start: glass at x U(0, 0.25), y U(-0.2, 0) m; rack as in `DishTask`. Success: its foot within 4
    mm of the rack's floor, upright to within 6 degrees, its whole rim in the bay.

    Sizes (ours): glass of diameter 68 and height 100 mm.
    """

    name: ClassVar[str] = "glass_on_rack"
    instruction: ClassVar[str] = "put the glass onto the rack"
    dish_x: ClassVar[tuple[float, float]] = (0.0, 0.25)
    dish_y: ClassVar[tuple[float, float]] = (-0.2, 0.0)

    def __init__(self, control_hz: float = 50.0) -> None:
        self.glass = Glass()
        super().__init__(control_hz, self.glass, circle(self.glass.diameter / 2, self.glass.height))

    def on_rack(self, T_rack_dish: Matrix) -> bool:
        """Returns whether the glass stands in the rack's bay."""
        return stands_in_bay(self.rack, T_rack_dish, self.rim_points)


class PlateOnRack(DishTask):
    """The plate stands on its edge in a slot between two rows of the dish rack's tines.

    Start: plate flat at x U(-0.25, 0), y U(-0.2, 0) m, on the side of the slots; rack as in
    `DishTask`. Success: tilted by at least 45 degrees, its lowest point within 6 mm of the rack's
    floor, all of it within the rack's outline and below the tips of the same two rows of tines (to
    within 4 mm of their middles).

    Sizes: plate of diameter 210 and height 25 mm (aloha_sim's, with a steeper rim, so that a finger
    fits below it on the bare table).
    """

    name: ClassVar[str] = "plate_on_rack"
    instruction: ClassVar[str] = "put the plate onto the rack"
    dish_x: ClassVar[tuple[float, float]] = (-0.25, 0.0)
    dish_y: ClassVar[tuple[float, float]] = (-0.2, 0.0)

    def __init__(self, control_hz: float = 50.0) -> None:
        # The rim's inner edge is at 201 mm, its outer one at 210 mm.
        self.plate = Plate(diameter=0.201, floor_diameter=0.155, thickness=0.007, mass=0.08)
        lip = circle(0.105, self.plate.height - 0.0055)
        rim = circle(self.plate.diameter / 2, self.plate.height)
        self.edges = np.concatenate([rim, lip, circle(self.plate.floor_radius, 0.0)])
        super().__init__(control_hz, self.plate, lip)

    def on_rack(self, T_rack_dish: Matrix) -> bool:
        """Returns whether the plate stands in a slot."""
        rack = self.rack
        edges = self.edges @ T_rack_dish[:3, :3].T + T_rack_dish[:3, 3]
        tilted = abs(T_rack_dish[2, 2]) <= np.cos(np.radians(PLATE_TILT_DEG))
        standing = abs(edges[:, 2].min() - rack.floor) < 0.006
        if not tilted or not standing or (np.abs(edges[:, :2]) > rack.half).any():
            return False
        low = edges[edges[:, 2] < rack.height, 1]
        between = (low.min() > rack.rows[:-1] - 0.004) & (low.max() < rack.rows[1:] + 0.004)
        return bool(between.any())
