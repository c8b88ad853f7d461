"""A scripted expert that puts the glass onto the rack."""

from collections.abc import Sequence

from stringline.sim.experts.dish_on_rack import StandInBayExpert
from stringline.sim.experts.grasps import Grasp
from stringline.sim.experts.rims import rim_grasps
from stringline.sim.tasks.glass_on_rack import GlassOnRack


class GlassOnRackExpert(StandInBayExpert[GlassOnRack]):
    """The right arm pinches the glass's wall at the rim, steeply, from any side in reach."""

    task_class = GlassOnRack

    def grasps(self, task: GlassOnRack) -> Sequence[Grasp]:
        """Returns the ways to take the glass by its rim."""
        radius = (task.glass.diameter - task.glass.thickness) / 2
        return rim_grasps(radius, task.glass.height, azimuths_deg=range(-180, 180, 30), pitches_deg=(70, 78, 86), depth=0.004)
