"""Put all the snack boxes into the storage bin."""

from typing import ClassVar

import numpy as np

from stringline.datasets.embodiments.rigid import Matrix, pose
from stringline.sim.props.snack_box import SnackBox
from stringline.sim.props.storage_bin import Bin
from stringline.sim.tasks.gathering_task import GatheringTask, Solid


class StorageBin(GatheringTask):
    """A red, a yellow and a blue snack box go into the bin in the middle, whose walls are 100 mm high.

    Start: bin at x and y U(-0.04, 0.04) m, yaw +-15 degrees; boxes stand at |x| U(0.18, 0.32), y U(-0.17, 0.17) m at any yaw,
    two on one side and one on the other, 5 cm clear of each other and of the bin. Success: all corners of all boxes are between
    the bin's walls, above its floor and below its rim (walls and floor give way 1 mm); the bin stands; no arm touches anything
    and all is at rest for 0.5 s. Sizes are ours, as no public task has them: boxes of 120 x 40 x 50, 90 x 44 x 36 and the
    upright 44 x 40 x 80 mm (the gripper opens 58.6 mm), a bin of 160 x 290 mm inside.
    """

    name: ClassVar[str] = "storage_bin"
    instruction: ClassVar[str] = "put all the snack boxes into the storage bin"

    def __init__(self, control_hz: float = 50.0) -> None:
        self.bin = Bin()
        self.boxes = (
            SnackBox("red_box", size=(0.12, 0.04, 0.05), colour=(0.85, 0.12, 0.10, 1.0)),
            SnackBox("yellow_box", size=(0.09, 0.044, 0.036), colour=(0.96, 0.76, 0.10, 1.0)),
            SnackBox("blue_box", size=(0.044, 0.04, 0.08), colour=(0.10, 0.35, 0.85, 1.0)),
        )
        things = [Solid(box, box.points, np.zeros(len(box.points))) for box in self.boxes]
        super().__init__(control_hz, Solid(self.bin, self.bin.outline, np.zeros(len(self.bin.outline))), things)

    def contains(self, points: Matrix) -> bool:
        """Says whether points (N, 3) in the bin's frame, metres, are inside it."""
        return self.bin.contains(points)

    def lying(self, thing: Solid) -> Matrix:
        """Returns the pose (4, 4) of a box that stands on the table at the origin."""
        return pose((0.0, 0.0, -float(thing.points[:, 2].min())))
