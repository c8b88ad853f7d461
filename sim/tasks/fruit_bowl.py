"""Put all the fruits into the bowl."""

from typing import ClassVar

import numpy as np

from stringline.datasets.embodiments.rigid import Matrix, pose, rotation_about
from stringline.sim.props.banana import Banana
from stringline.sim.props.bowl import Bowl
from stringline.sim.props.fruit import Apple, Pear
from stringline.sim.tasks.gathering_task import GatheringTask, Solid


class FruitBowl(GatheringTask):
    """A banana, an apple and a pear go into the bowl in the middle.

    Start: bowl at x and y U(-0.04, 0.04) m; fruits lie at |x| U(0.18, 0.32), y U(-0.17, 0.17) m at any yaw, two on one side and
    one on the other, 5 cm clear of each other and of the rim. Success: the middle of each ball of each fruit (apple 1, pear 3,
    along the banana's axis 6) is within the bowl's slanted wall, above its floor and below its rim; the bowl stands; no arm
    touches anything and all is at rest for 0.5 s. Sizes are ours, as no public task has them: the gripper opens 58.6 mm, apple
    and pear are 50 mm thick, the banana 150 by 36 mm, the bowl is 280 mm wide and 80 mm high.
    """

    name: ClassVar[str] = "fruit_bowl"
    instruction: ClassVar[str] = "put all the fruits into the bowl"

    def __init__(self, control_hz: float = 50.0) -> None:
        self.bowl = Bowl(diameter=0.28, height=0.08, floor_diameter=0.18, mass=0.5)
        self.banana, self.apple, self.pear = Banana(length=0.15), Apple(), Pear()
        fruits = (
            Solid(self.banana, self.banana.points, np.full(len(self.banana.points), self.banana.radius)),
            Solid(self.pear, self.pear.points, self.pear.radii),
            Solid(self.apple, self.apple.points, self.apple.radii),
        )
        super().__init__(control_hz, Solid(self.bowl, np.zeros((1, 3)), np.array([self.bowl.reach])), fruits)

    def contains(self, points: Matrix) -> bool:
        """Says whether points (N, 3) in the bowl's frame, metres, are inside it."""
        return self.bowl.contains(points)

    def lying(self, thing: Solid) -> Matrix:
        """Returns the pose (4, 4) of a fruit that lies on the table at the origin."""
        tilt = self.pear.tilt if thing.prop is self.pear else 0.0
        return pose((0.0, 0.0, float(thing.radii[0])), rotation_about((1.0, 0.0, 0.0), -tilt))
