"""The tasks of MetaWorld 3 with their scripted experts, for `environment_server.py`.

This file runs in MetaWorld's interpreter, without Stringline. MetaWorld moves the hand of a Sawyer
arm by a mocap body, at most 10 mm per axis in a control period of 12.5 ms, and turns it never. Here
an action is the absolute target of the point between the fingertips, which is fixed to that body,
and the opening of the gripper; see `command`. The hand follows by a soft weld: at 0.8 m/s it is
36 mm behind along x and 17 mm along z, and at rest up to 4 mm off, mostly below.

Yu et al., Meta-World: A Benchmark and Evaluation for Multi-Task and Meta Reinforcement Learning,
CoRL 2019, arXiv 1910.10897.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any

import numpy as np

CONTROL_HZ = 80.0  # Five steps of 2.5 ms.
STEP_M = 0.01  # MetaWorld's `action_scale`: the way of its target per axis and period.
JOINTS = tuple(f"right_j{index}" for index in range(7))
TIP_M = np.array([0.0, 0.0, -0.045])  # The point between the fingertips, from the hand.
MET = 0.295  # MetaWorld's measure of the gripper where its fingers meet; open it is 1.
GRIPPER = "arm/gripper"
DIMENSIONS: tuple[dict[str, Any], ...] = (
    *(
        {"name": f"arm/{axis}", "kind": "position", "unit": "m", "speed": STEP_M * CONTROL_HZ}
        for axis in "xyz"
    ),
    {"name": GRIPPER, "kind": "gripper", "unit": "opening", "limits": [0.0, 1.0]},
)


class RefusedError(Exception):
    """A name that MetaWorld does not know; the server passes the message on."""


class MetaWorldTask:
    """One task with the goal visible to its expert.

    Args:
        name: Name in MetaWorld, such as `peg-insert-side-v3`.

    Raises:
        RefusedError: There is no such task.
    """

    def __init__(self, name: str) -> None:
        environments = import_module("metaworld.env_dict").ALL_V3_ENVIRONMENTS
        if name not in environments:
            raise _unknown(name, sorted(environments))
        self._policy = import_module("metaworld.policies").ENV_POLICY_MAP[name]
        self.env = environments[name]()
        # The expert reads the goal from the observation.
        self.env._partially_observable = False
        self.env.__dict__.pop("sawyer_observation_space", None)
        self.env._freeze_rand_vec = False
        self.env._set_task_called = True
        self.env.seeded_rand_vec = True
        self._turn_upright()

    def begin(self, seed: int) -> Any:
        """Begins the episode of a seed: its random vector is uniform, as in MetaWorld's sets."""
        self.env.seed(seed)
        self.env._freeze_rand_vec = False
        self.env.reset()
        self.env._freeze_rand_vec = True  # `reset` draws more than once; the last one counts.
        return self.env.reset()[0]

    def command(self, action: Any) -> Any:
        """Returns MetaWorld's action (4,) for a target (3,) in m and an opening.

        MetaWorld clips the first three numbers to -1 to 1, which is 10 mm, and the target to its
        box. The gripper is a force from -1, which opens, to 1: opening 1 is -1, opening 0 is 1.
        """
        step = (action[:3] - TIP_M - self.env.data.mocap_pos[0]) / self.env.action_scale
        effort = 1.0 - 2.0 * np.clip(action[3], 0.0, 1.0)
        return np.append(step, effort)

    def state(self, observation: Any) -> dict[str, Any]:
        """Returns joints, the opening of the gripper and its pose by the contract's keys."""
        data = self.env.data
        joints = [float(data.joint(name).qpos[0]) for name in JOINTS]
        tcp = self.env.tcp_center
        forward = _unit(tcp - data.body("hand").xpos)
        across = data.body("leftclaw").xpos - data.body("rightclaw").xpos
        across = _unit(across - (across @ forward) * forward)
        pose = np.eye(4)
        pose[:3, :3] = np.stack([forward, across, np.cross(forward, across)], axis=1)
        pose[:3, 3] = tcp
        opening = float(np.clip((observation[3] - MET) / (1.0 - MET), 0.0, 1.0))
        return {"joints/position": [*joints, opening], "T_base_gripper/arm": pose}

    def expert(self, seed: int) -> Any:
        """Returns MetaWorld's expert of the task, which does not vary."""
        del seed
        policy = self._policy()

        def act(observation: Any) -> Any:
            action = np.asarray(policy.get_action(observation), dtype=np.float64)
            step = np.clip(action[:3], -1.0, 1.0) * self.env.action_scale
            effort = float(np.clip(action[3], -1.0, 1.0))
            target = self.env.data.mocap_pos[0] + TIP_M + step
            return np.append(target, (1.0 - effort) / 2.0)

        return act

    def _turn_upright(self) -> None:
        """Turns fixed cameras that MetaWorld mounts upside down by 180 degrees."""
        model = self.env.model
        for number in range(model.ncam):
            w, x, y, z = model.cam_quat[number]
            up = 2.0 * (y * z + w * x)  # The vertical part of the image's upward direction.
            if model.cam_bodyid[number] == 0 and up < 0:
                model.cam_quat[number] = [-z, y, -x, w]  # Times a half turn about its own z.


def metaworld_task(name: str) -> dict[str, Any]:
    """Returns a task for `environment_server.GymnasiumWorld`."""
    task = MetaWorldTask(name)
    words = name.rpartition("-v")[0].replace("-", " ")
    return {
        "env": task.env,
        "embodiment": "metaworld_sawyer",
        "instruction": words,
        "control_hz": CONTROL_HZ,
        "base_frame": "MetaWorld's: foot of the arm on the table, x right, y away from it, z up",
        "joints": [*JOINTS, GRIPPER],
        "arms": ["arm"],
        "action": [
            {"arm": "arm", "mode": "absolute", "frame": "base", **each} for each in DIMENSIONS
        ],
        "state": task.state,
        "command": task.command,
        "success": lambda info: bool(info["success"]),
        "expert": task.expert,
        "seed": task.begin,
        "packages": ["metaworld"],
    }


def _unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


def _unknown(name: str, known: list[str]) -> RefusedError:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return RefusedError(
        f"There is no task of MetaWorld {name!r}.{hint} Allowed: {', '.join(known)}."
    )
