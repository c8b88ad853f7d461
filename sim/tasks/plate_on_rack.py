"""Put the plate onto the dish rack, on its edge between two rows of tines."""

from typing import ClassVar

import numpy as np

from stringline.datasets.embodiments.rigid import Matrix
from stringline.sim.props.plate import Plate
from stringline.sim.tasks.dish_task import DishTask, circle

TILT_DEG = 45.0
DIAMETER_M = 0.21


class PlateOnRack(DishTask):
    """The plate stands on its edge in a slot between two rows of the dish rack's tines.

    Start: plate flat on the table at x U(-0.25, 0), y U(-0.2, 0) m, clear of the rack; rack as in `DishTask`. The range is
    aloha_sim's for any dish, mirrored, because the slots are on the left. Success: the plate is tilted by at least 45 degrees,
    its lowest point within 6 mm of the rack's floor, all of it within the rack's outline, and all of it below the tines' tips
    between the same two rows (to within 4 mm of their middles); touched by no arm, all at rest, for 0.5 s. The plate's size
    (diameter 210, height 25 mm) is aloha_sim's; its rim is steeper than that of `Plate` by default, so that
    there is room for a finger below it on the bare table. The task exists in no public simulation.
    """

    name: ClassVar[str] = "plate_on_rack"
    instruction: ClassVar[str] = "put the plate onto the rack"
    dish_x: ClassVar[tuple[float, float]] = (-0.25, 0.0)
    dish_y: ClassVar[tuple[float, float]] = (-0.2, 0.0)

    def __init__(self, control_hz: float = 50.0) -> None:
        # The rim's inner edge is at 201 mm, its outer one at 210 mm.
        self.plate = Plate(diameter=0.201, floor_diameter=0.155, thickness=0.007, rim_from=0.007, mass=0.08)
        radius = DIAMETER_M / 2
        lip = circle(radius, self.plate.height - 0.0055)
        edges = (circle(self.plate.diameter / 2, self.plate.height), lip, circle(self.plate.floor_radius, 0.0))
        self.edges = np.concatenate(edges)
        super().__init__(control_hz, self.plate, lip)

    def on_rack(self, T_rack_dish: Matrix) -> bool:
        """Says whether the plate stands in a slot."""
        rack, edges = self.rack, self.edges @ T_rack_dish[:3, :3].T + T_rack_dish[:3, 3]
        tilted = abs(T_rack_dish[2, 2]) <= np.cos(np.radians(TILT_DEG))
        standing = abs(edges[:, 2].min() - rack.floor) < 0.006
        if not tilted or not standing or (np.abs(edges[:, :2]) > rack.half).any():
            return False
        low = edges[edges[:, 2] < rack.height, 1]
        return bool(((low.min() > rack.rows[:-1] - 0.004) & (low.max() < rack.rows[1:] + 0.004)).any())
