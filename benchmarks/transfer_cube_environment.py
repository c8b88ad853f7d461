"""gym-aloha's TransferCube as gymnasium has it, for another interpreter, without Stringline.

`task=remote:transfer_cube_environment:transfer_cube` runs it from this folder. Its own images,
three in each step, are left out.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gym_aloha.env import AlohaEnv


class Blind(AlohaEnv):  # type: ignore[misc]
    """The environment without its own images."""

    def _make_env_task(self, task_name: str) -> Any:
        made = super()._make_env_task(task_name)
        made.task.get_observation = lambda physics: {
            "qpos": made.task.get_qpos(physics),
            "images": {"top": np.zeros(1)},
        }
        return made


def transfer_cube() -> dict[str, Any]:
    """Returns the environment for `environment_server.GymnasiumWorld`."""
    env = Blind("transfer_cube", obs_type="pixels_agent_pos")

    def mujoco() -> Any:
        return env._env.physics.model.ptr, env._env.physics.data.ptr

    def state(observation: Mapping[str, Any]) -> dict[str, Any]:
        return {"joints/position": observation["agent_pos"]}

    return {
        "env": env,
        "control_hz": 50.0,
        "mujoco": mujoco,
        "state": state,
        "command": lambda action: action,  # Its space has 32 bits, Stringline's worlds have 64.
    }
