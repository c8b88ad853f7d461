"""Forward kinematics of an embodiment beside those of MuJoCo."""

import mujoco
import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.embodiments.embodiment_file import EmbodimentFile, moving_joints
from stringline.datasets.embodiments.model_file import RobotModel
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose

POSES = 20


def largest_error(robot: RobotModel, file: EmbodimentFile, embodiment: Embodiment) -> float:
    """Returns the largest difference of gripper poses at drawn joints from MuJoCo's own."""
    random = np.random.default_rng(0)
    worst = 0.0
    for _ in range(POSES):
        q = random.uniform(embodiment.lower, embodiment.upper)
        found = embodiment.forward_kinematics(q)
        for arm, part in file.arms.items():
            data = mujoco.MjData(robot.model)
            for name, value in file.fixed.items():
                data.joint(name).qpos = value
            moving = moving_joints(robot, file, arm)
            for number, angle in zip(moving, q[embodiment.revolute_joints[arm]], strict=True):
                data.joint(number).qpos = angle
            mujoco.mj_kinematics(robot.model, data)
            T_base_tcp = inverse(frame(data, part.base)) @ frame(data, part.tcp)
            expected = part.pose.matrix @ T_base_tcp @ part.T_tcp_gripper
            worst = max(worst, float(np.abs(found[arm] - expected).max()))
    return worst


def frame(data: mujoco.MjData, name: str) -> Matrix:
    """Returns the pose (4, 4) of a body or site in the world, by MuJoCo."""
    sites = [data.model.site(number).name for number in range(data.model.nsite)]
    found = data.site(name) if name in sites else data.body(name)
    return pose(found.xpos, found.xmat.reshape(3, 3))
