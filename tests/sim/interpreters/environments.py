"""Environments for another interpreter, which imports this module without Stringline."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.spaces import Box
from gymnasium.wrappers import AddRenderObservation


class Slider(MujocoEnv):  # type: ignore[misc]
    """A puck that slides to a goal; an action is its target (2,), m."""

    def __init__(self) -> None:
        modes = ["rgb_array", "depth_array", "rgbd_tuple"]
        self.metadata = {"render_modes": modes, "render_fps": 20}
        model = str(Path(__file__).parent.absolute() / "slider.xml")
        self.goal = np.zeros(2)
        space = Box(-np.inf, np.inf, (4,))
        super().__init__(
            model, 10, space, render_mode="rgb_array", width=24, height=24, camera_name="above"
        )

    def reset_model(self) -> Any:
        self.goal = self.np_random.uniform(-0.15, 0.15, 2)
        self.data.mocap_pos[0, :2] = self.goal
        self.set_state(self.init_qpos, self.init_qvel)
        return self._observed()

    def step(self, action: Any) -> Any:
        self.do_simulation(action, self.frame_skip)
        near = float(np.abs(self.data.qpos - self.goal).max())
        return self._observed(), -near, False, False, {"is_success": near < 0.02}

    def _observed(self) -> Any:
        return np.concatenate([self.data.qpos, self.data.qvel])


class Reacher(MujocoEnv):  # type: ignore[misc]
    """A hand that closes at a block; an action is a step of -1 to 1, 2 cm, and -1 opens."""

    step_m = 0.02
    finger_m = 0.04

    def __init__(self) -> None:
        modes = ["rgb_array", "depth_array", "rgbd_tuple"]
        self.metadata = {"render_modes": modes, "render_fps": 20}
        model = str(Path(__file__).parent.absolute() / "reacher.xml")
        self.goal = np.zeros(3)
        space = Box(-np.inf, np.inf, (8,))
        super().__init__(
            model, 10, space, render_mode="rgb_array", width=24, height=24, camera_name="above"
        )
        self.action_space = Box(-1.0, 1.0, (4,), np.float32)

    @property
    def hand(self) -> Any:
        """The position (3,) of the hand."""
        return self.data.body("hand").xpos.copy()

    @property
    def opening(self) -> float:
        """The opening of the finger, 0 to 1."""
        return float(np.clip(self.data.qpos[3] / self.finger_m, 0.0, 1.0))

    def reset_model(self) -> Any:
        self.goal = np.array([*self.np_random.uniform(-0.12, 0.12, 2), 0.08])
        self.data.mocap_pos[0] = self.goal - [0.0, 0.0, 0.05]
        q = np.array([0.0, 0.0, 0.0, self.finger_m])
        self.set_state(q, np.zeros(4))
        return self._observed()

    def step(self, action: Any) -> Any:
        way = self.step_m * np.clip(action[:3], -1.0, 1.0)
        target = self.data.qpos[:3] + way
        finger = self.finger_m * (1.0 - np.clip(action[3], -1.0, 1.0)) / 2.0
        self.do_simulation(np.append(target, finger), self.frame_skip)
        near = float(np.linalg.norm(self.hand - self.goal))
        success = near < 0.02 and self.opening < 0.2
        return self._observed(), -near, False, False, {"is_success": success}

    def _observed(self) -> Any:
        return np.concatenate([self.data.qpos, self.data.qvel])


class Failing(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Fails at the third action of an episode, by the last digit of its seed."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._digit = (seed or 0) % 10
        self._left = 3
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self._left -= 1
        observation, *rest = super().step(action)
        if self._left:
            return (observation, *rest)
        if self._digit == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while self._digit == 2:
            time.sleep(1.0)
        if self._digit == 3:
            observation = observation * np.nan
        if self._digit == 4:
            observation = observation[:3]
        if self._digit == 5:
            raise RuntimeError("The puck is stuck.")
        return (observation, *rest)


def sliding(env: Any) -> dict[str, Any]:
    """Returns an environment with an expert, whose noise depends on its seed."""

    def expert(seed: int) -> Callable[[Any], Any]:
        rng = np.random.default_rng(seed)
        return lambda observation: env.unwrapped.goal + rng.normal(0.0, 1e-3, 2)

    return {"env": env, "instruction": "slide to the goal", "expert": expert}


def reaching() -> dict[str, Any]:
    """Returns the hand with all that keyposes need, and an expert that never stands still."""
    env = Reacher()

    def state(observation: Any) -> dict[str, Any]:
        pose = np.eye(4)
        pose[:3, 3] = env.hand
        return {"joints/position": [env.opening], "T_base_gripper/arm": pose}

    def expert(seed: int) -> Callable[[Any], Any]:
        rng = np.random.default_rng(seed)
        closes_at = rng.uniform(0.03, 0.05)

        def act(observation: Any) -> Any:
            away = env.goal - env.hand
            above = np.linalg.norm(away[:2]) > 0.03
            way = away + ([0.0, 0.0, 0.1] if above else [0.0, 0.0, 0.0])
            closes = 1.0 if np.linalg.norm(away) < closes_at else -1.0
            return np.append(np.clip(way / env.step_m, -1.0, 1.0), closes)

        return act

    step = {
        "kind": "position",
        "unit": "m",
        "mode": "relative",
        "frame": "base",
        "scale": env.step_m,
        "limits": [-1.0, 1.0],
    }
    grip = {
        "kind": "gripper",
        "unit": "opening",
        "mode": "absolute",
        "frame": "base",
        "scale": -0.5,
        "offset": 0.5,
        "limits": [-1.0, 1.0],
    }
    action = [{"name": f"arm/{axis}", "arm": "arm", **step} for axis in "xyz"]
    action.append({"name": "arm/gripper", "arm": "arm", **grip})
    return {
        "env": env,
        "instruction": "close at the block",
        "state": state,
        "action": action,
        "joints": ["arm/gripper"],
        "arms": ["arm"],
        "expert": expert,
    }


def slider() -> dict[str, Any]:
    """Returns the sound environment."""
    return sliding(Slider())


def failing_slider() -> dict[str, Any]:
    """Returns the one that fails."""
    return sliding(Failing(Slider()))


def pictures() -> Any:
    """Returns an environment with images in its observations."""
    return AddRenderObservation(Slider(), render_only=False)
