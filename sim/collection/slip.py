"""Slip of a held object in the gripper, a disturbance from which experts recover."""

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.transforms import Matrix, pose, quaternion
from stringline.sim.tasks.tabletop import TabletopTask

HELD_STEPS = (5, 60)  # Range of control periods in the gripper before the slip.


class Slip:
    """Moves a held object along the pads of a gripper, once in an episode.

    The distance is 0 to 0.05 m; time and direction of the slip are random.
    """

    def __init__(self, distance: float, rng: np.random.Generator) -> None:
        if not 0 <= distance <= 0.05:
            raise ValueError(f"The slip is {distance} m; allowed: 0 to 0.05.")
        angle = rng.uniform(-np.pi, np.pi)
        # The pads close along y.
        self._along_pads = distance * np.array([np.cos(angle), 0.0, np.sin(angle)])
        self._remaining = int(rng.integers(*HELD_STEPS)) if distance else -1

    @property
    def happened(self) -> bool:
        """Whether the object has slipped."""
        return self._remaining == 0

    def after_step(self, task: TabletopTask, physics: mjcf.Physics) -> None:
        """Counts the control periods of a held, lifted object, and moves it after the last one."""
        if self._remaining <= 0:
            return
        contacts = task.contact_state(physics)
        held = [
            (arm, prop)
            for arm in task.embodiment.arms
            for prop in task.props.values()
            if contacts.held(arm, prop.name) and not contacts.between(prop.name, "table")
        ]
        if not held:
            return
        self._remaining -= 1
        if not self._remaining:
            arm, prop = held[0]
            T_base_gripper = task.embodiment.forward_kinematics(task.robot.positions(physics))[arm]
            T_base_prop: Matrix = pose(T_base_gripper[:3, :3] @ self._along_pads) @ task.pose(
                physics, prop
            )
            prop.set_pose(physics, T_base_prop[:3, 3], quaternion(T_base_prop[:3, :3]))
