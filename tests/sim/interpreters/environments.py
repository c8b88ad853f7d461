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


def slider() -> dict[str, Any]:
    """Returns the sound environment."""
    return sliding(Slider())


def failing_slider() -> dict[str, Any]:
    """Returns the one that fails."""
    return sliding(Failing(Slider()))


def pictures() -> Any:
    """Returns an environment with images in its observations."""
    return AddRenderObservation(Slider(), render_only=False)
