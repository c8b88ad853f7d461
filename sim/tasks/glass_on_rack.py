"""Put the glass onto the dish rack."""

from typing import ClassVar

from stringline.datasets.embodiments.rigid import Matrix
from stringline.sim.props.glass import Glass
from stringline.sim.tasks.dish_task import DishTask, circle, stands_in_bay


class GlassOnRack(DishTask):
    """The glass stands upright, its mouth up, in the free bay of the dish rack.

    Start: glass at x U(0, 0.25), y U(-0.2, 0) m, as aloha_sim draws any dish, clear of the rack; rack as in `DishTask`.
    Success: the glass's foot within 4 mm of the rack's floor, upright to within 6 degrees, its whole rim in the bay; touched
    by no arm, all at rest, for 0.5 s. So lying, leaning on the wall and standing upside down do not count. Its size (diameter
    68, height 100 mm) is ours: no public version of this task exists.
    """

    name: ClassVar[str] = "glass_on_rack"
    instruction: ClassVar[str] = "put the glass onto the rack"
    dish_x: ClassVar[tuple[float, float]] = (0.0, 0.25)
    dish_y: ClassVar[tuple[float, float]] = (-0.2, 0.0)

    def __init__(self, control_hz: float = 50.0) -> None:
        self.glass = Glass()
        super().__init__(control_hz, self.glass, circle(self.glass.diameter / 2, self.glass.height))

    def on_rack(self, T_rack_dish: Matrix) -> bool:
        """Says whether the glass stands in the rack's bay."""
        return stands_in_bay(self.rack, T_rack_dish, self.rim_points)
