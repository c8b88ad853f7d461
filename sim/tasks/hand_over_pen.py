"""Hand the pen over from the right arm to the left one, which stands it in the holder.

Start ranges are those of aloha_sim's HandOverPen; there the hand-over itself is optional, here it is required.
"""

from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.rigid import Matrix, pose, rotation_about
from stringline.sim.props.holder import Holder
from stringline.sim.props.pen import Pen
from stringline.sim.tasks.hand_over_task import HandOverTask
from stringline.sim.tasks.judgement import in_frame, upright

PEN_X, PEN_Y = (0.12, 0.18), (-0.1, 0.1)
PEN_YAW_DEG = (-108.0, -72.0)
HOLDER_X, HOLDER_Y = (-0.18, -0.12), (-0.1, 0.1)
ABOVE_FLOOR_M = 0.02  # A leaning pen touches the floor with its edge; the middle of its end is that much higher at most.


class HandOverPen(HandOverTask):
    """The pen goes from the right gripper to the left one and stands in the holder.

    Start: the pen's middle at x 0.12 to 0.18 m and y -0.1 to 0.1 m, turned by -108 to -72 degrees (along x, give or take 18);
    the holder at x -0.18 to -0.12 m, y -0.1 to 0.1 m.

    Success: the pen was handed over as in `HandOverTask`; its lower end is in the upright holder, no more than 2 cm above the
    floor; its axis leaves the holder through the opening, or its upper end is inside as well; no arm touches it and it is at
    rest, for half a second. Sizes are aloha_sim's: pen 18 x 185 x 15.5 mm, holder 90 x 107 mm; the pen weighs 20 g.

    Stages: lifted by the right gripper, handed over, in the holder, success.
    """

    name: ClassVar[str] = "hand_over_pen"
    instruction: ClassVar[str] = "hand over the pen and put it into the holder"
    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "handed_over", "in_holder", "success")

    def __init__(self, control_hz: float = 50.0) -> None:
        self.pen, self.holder = Pen(), Holder()
        super().__init__(control_hz, self.pen, self.holder)

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws where pen and holder are."""
        yaw = rotation_about((0.0, 0.0, 1.0), np.radians(random_state.uniform(*PEN_YAW_DEG)))
        spot = (random_state.uniform(*PEN_X), random_state.uniform(*PEN_Y), self.pen.radius)
        self.place(physics, self.pen, pose(spot, yaw))
        self.place(physics, self.holder, pose((random_state.uniform(*HOLDER_X), random_state.uniform(*HOLDER_Y), 0.0)))

    def inside(self, T_base_item: Matrix, T_base_container: Matrix) -> bool:
        """Says whether the pen's lower end is at the bottom of the upright holder and the pen leaves it through its opening."""
        ends = in_frame(T_base_container, T_base_item, self.pen.points[[0, -1]])
        low, high = ends[np.argsort(ends[:, 2])]
        share = min(1.0, (self.holder.height - low[2]) / max(high[2] - low[2], 1e-6))
        leaves = low + share * (high - low)
        within = np.hypot(*low[:2]) < self.holder.inner_radius and np.hypot(*leaves[:2]) < self.holder.inner_radius
        return bool(upright(T_base_container) and within and 0 < low[2] < self.holder.thickness + ABOVE_FLOOR_M)

    def lowest(self, T_base_item: Matrix) -> float:
        """Returns the height of the pen's lowest point, metres."""
        heights = self.pen.points @ T_base_item[2, :3] + T_base_item[2, 3]
        return float(heights.min()) - self.pen.radius
