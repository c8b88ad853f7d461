"""A scripted expert that puts the bowl onto the rack."""

from collections.abc import Sequence

from stringline.sim.experts.dish_on_rack import StandInBayExpert
from stringline.sim.experts.grasps import Grasp
from stringline.sim.experts.rims import rim_grasps
from stringline.sim.tasks.bowl_on_rack import BowlOnRack


class BowlOnRackExpert(StandInBayExpert[BowlOnRack]):
    """The right arm pinches the bowl's slanted wall along its slope, 60 degrees and steeper, from any side in reach."""

    task_class = BowlOnRack

    def grasps(self, task: BowlOnRack) -> Sequence[Grasp]:
        """Returns the ways to take the bowl by its rim."""
        radius = task.bowl.rim_radius + 1.5 * task.bowl.thickness
        return rim_grasps(radius, task.bowl.height, azimuths_deg=range(-180, 180, 30), pitches_deg=(60, 66, 72), depth=0.002)
