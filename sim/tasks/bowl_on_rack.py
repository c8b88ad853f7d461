"""Put the bowl onto the dish rack."""

from typing import ClassVar

from stringline.datasets.embodiments.rigid import Matrix
from stringline.sim.props.bowl import Bowl
from stringline.sim.tasks.dish_task import DishTask, circle, stands_in_bay


class BowlOnRack(DishTask):
    """The bowl stands upright in the free bay of the dish rack.

    Start: bowl at x U(0, 0.25), y U(-0.2, 0) m, clear of the rack; rack as in `DishTask`. Success: the bowl's foot within 4 mm
    of the rack's floor, upright to within 6 degrees, its whole rim within the bay; touched by no arm, all at rest, for 0.5 s.
    Sizes (bowl: diameter 114, height 40 mm) and ranges are those of aloha_sim's BowlOnRack, which accepts any contact.
    """

    name: ClassVar[str] = "bowl_on_rack"
    instruction: ClassVar[str] = "put the bowl onto the rack"
    dish_x: ClassVar[tuple[float, float]] = (0.0, 0.25)
    dish_y: ClassVar[tuple[float, float]] = (-0.2, 0.0)

    def __init__(self, control_hz: float = 50.0) -> None:
        # The wall's inner edge is at 105 mm, its outer one at 114 mm.
        self.bowl = Bowl(diameter=0.105, height=0.04, floor_diameter=0.066, thickness=0.005, mass=0.06)
        super().__init__(control_hz, self.bowl, circle(0.057, self.bowl.height))

    def on_rack(self, T_rack_dish: Matrix) -> bool:
        """Says whether the bowl stands in the rack's bay."""
        return stands_in_bay(self.rack, T_rack_dish, self.rim_points)
