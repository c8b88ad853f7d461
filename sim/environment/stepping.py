"""The compiled physics of a task, advanced by control periods."""

import mujoco
import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.sim.robots.robot_model import RobotModel, set_robot_model
from stringline.sim.tasks.tabletop import TabletopTask

# In the order of MuJoCo's counters; the last member is the number of the others.
PROBLEMS = tuple(mujoco.mjtWarning.__members__)[:-1]


def compile_task(
    task: TabletopTask, robot_model: RobotModel, random_state: np.random.RandomState
) -> mjcf.Physics:
    """Compiles the model of a task, with the arms drawn by a robot model."""
    set_robot_model(task.robot, robot_model)
    physics = mjcf.Physics.from_mjcf_model(task.root_entity.mjcf_model)
    for entity in task.root_entity.iter_entities():
        entity.after_compile(physics, random_state)
    task.after_compile(physics, random_state)
    return physics


class Stepper:
    """Advances the physics by control periods of `substeps`, and resets it if it diverges.

    Attributes:
        problems: Names of MuJoCo's warnings in this episode; empty as long as the physics is
            stable.
    """

    def __init__(self, physics: mjcf.Physics, substeps: int) -> None:
        self._physics = physics
        self._substeps = substeps
        # MuJoCo's own counters, not a copy.
        self._counters: NDArray[np.int32] = physics.data.warning.number
        self.problems: tuple[str, ...] = ()

    def begin(self) -> None:
        """Begins an episode."""
        self._counters[:] = 0
        self.problems = ()

    def step(self) -> None:
        """Advances the physics by one control period."""
        model = self._physics.model.ptr
        data = self._physics.data.ptr
        # The order of dm_control's step, without its checks, which would raise: positions, contacts
        # and cameras are those of the period's end.
        mujoco.mj_step2(model, data)
        mujoco.mj_step(model, data, self._substeps - 1)
        mujoco.mj_step1(model, data)
        if self._counters.any():
            pairs = zip(PROBLEMS, self._counters, strict=False)
            # An unknown counter has no name.
            self.problems = tuple(name for name, count in pairs if count) or ("unknown",)
            self._physics.reset()
