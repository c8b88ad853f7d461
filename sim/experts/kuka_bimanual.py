"""The experts of one KUKA arm, with two of them: the nearest that can take a thing does it all."""

from stringline.sim.experts.kuka_pick import KukaPickExpert
from stringline.sim.experts.kuka_place import KukaPlaceExpert
from stringline.sim.tasks.kuka_bimanual_pick import KukaBimanualPick
from stringline.sim.tasks.kuka_bimanual_place import KukaBimanualPlace


class KukaBimanualPickExpert(KukaPickExpert):
    """Picks with the arm that is near."""

    task_class = KukaBimanualPick


class KukaBimanualPlaceExpert(KukaPlaceExpert):
    """Places with the arm that is near."""

    task_class = KukaBimanualPlace
