"""A thing that slips in the gripper: a disturbance from which an expert shows how to recover."""

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.transforms import Matrix, pose, quaternion
from stringline.sim.tasks.tabletop import TabletopTask

HELD_STEPS = (5, 60)  # After how many control periods in the gripper a thing slips.


class Slip:
    """Once in an episode, moves what a gripper holds between its pads.

    Args:
        distance: How far, metres; 0 for never.
        rng: Draws when and in which direction along the pads.

    Raises:
        ValueError: The distance is out of range.
    """

    def __init__(self, distance: float, rng: np.random.Generator) -> None:
        if not 0 <= distance <= 0.05:
            raise ValueError(f"The slip is {distance} m; allowed: 0 to 0.05.")
        angle = rng.uniform(-np.pi, np.pi)
        self._along_pads = distance * np.array(
            [np.cos(angle), 0.0, np.sin(angle)]
        )  # The pads close along y.
        self._left = int(rng.integers(*HELD_STEPS)) if distance else -1

    @property
    def happened(self) -> bool:
        """Whether it has slipped."""
        return self._left == 0

    def after_step(self, task: TabletopTask, physics: mjcf.Physics) -> None:
        """Counts how long something has been held off the table, and lets it slip when it is time."""
        if self._left <= 0:
            return
        touching = task.touching(physics)
        held = [
            (arm, prop)
            for arm in task.embodiment.arms
            for prop in task.props.values()
            if touching.held(arm, prop.name) and not touching.between(prop.name, "table")
        ]
        if not held:
            return
        self._left -= 1
        if not self._left:
            arm, prop = held[0]
            T_base_gripper = task.embodiment.forward_kinematics(task.robot.positions(physics))[arm]
            T_base_prop: Matrix = pose(T_base_gripper[:3, :3] @ self._along_pads) @ task.pose(
                physics, prop
            )
            prop.set_pose(physics, T_base_prop[:3, 3], quaternion(T_base_prop[:3, :3]))
